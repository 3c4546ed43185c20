"""Runs a training script as `python SCRIPT` would, and marks its steps for the farm.

    python -m benchfarm.run SCRIPT [ARGS...]

SCRIPT is a file of Python source, or a folder with `__main__.py` or `main.py`. SIGUSR2 writes the
stacks of all threads to stderr.
"""

from __future__ import annotations

import builtins
import faulthandler
import io
import signal
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

from benchfarm import hooks, marks

# What Python itself answers where it cannot open the script.
_NO_SCRIPT = 2


def main() -> int:
    """Run the script that the command line names; SystemExit and KeyboardInterrupt pass."""
    if len(sys.argv) < 2:
        print("usage: python -m benchfarm.run SCRIPT [ARGS...]", file=sys.stderr)
        return _NO_SCRIPT
    marks.of_this_process = marks.take_from_environment()
    if sys.stderr is not None:
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR2, all_threads=True)
    script = _file_of(sys.argv[1])
    try:
        with io.open_code(str(Path(script).absolute())) as file:
            source = file.read()
    except OSError as error:
        print(f"benchfarm: cannot open {script!r}: {error.strerror}", file=sys.stderr)
        return _NO_SCRIPT
    if marks.of_this_process is not None:
        hooks.install(marks.of_this_process)
    sys.argv[:] = [script, *sys.argv[2:]]
    _put_folder_first(str(Path(script).resolve().parent))
    try:
        _run(script, source)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        # Only the script's own frames, as Python itself would show them.
        shown = error.with_traceback(_without_own_frames(error.__traceback__))
        sys.excepthook(type(shown), shown, shown.__traceback__)
        return 1
    return 0


def _file_of(script: str) -> str:
    for name in ("__main__.py", "main.py"):
        inside = Path(script, name)
        if inside.is_file():
            return str(inside)
    return script


def _put_folder_first(folder: str) -> None:
    # Python has put the current folder there, unless it was told not to.
    is_safe = getattr(sys.flags, "safe_path", False) or sys.flags.isolated
    sys.path[: 0 if is_safe else 1] = [folder]


def _run(script: str, source: bytes) -> None:
    """Execute the source as the module `__main__`, which stays so until the process ends.

    `runpy.run_path` would put the former `__main__` back when the script's last line is done,
    while its threads and exit handlers may still pickle what belongs to it.
    """
    path = str(Path(script).absolute())
    module = ModuleType("__main__")
    module.__dict__.update(
        __annotations__={},
        __builtins__=builtins,
        __cached__=None,
        __file__=path,
        __loader__=SourceFileLoader("__main__", path),
    )
    sys.modules["__main__"] = module
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102


def _without_own_frames(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


if __name__ == "__main__":
    sys.exit(main())

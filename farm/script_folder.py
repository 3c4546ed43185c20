"""Reads a user's training script with the files that belong to it from a folder.

It takes the files that git tracks. Without git it takes all files except hidden files, keys,
virtual environments and caches. The script is always included, and files named by a `.farmignore`
never. Ranks run a copy, so changing the original changes no running measurement.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from farm.configuration.bundle import (
    ENVIRONMENT_FILE,
    IGNORE_FILE,
    MAX_SCRIPT_BUNDLE_BYTES,
    MOST_SCRIPT_FILES,
    SCRIPT_PATH,
    ScriptBundle,
    check_files,
    check_script_size,
    is_left_out,
    is_member_path,
    is_script_path,
    matches,
    read_ignored,
)
from farm.errors import InvalidSpec
from farm.text.display import byte_count

_NAMED = 3  # of the largest files
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
# Meanwhile the module is `__main__`, where its classes are found when they are pickled.
_STARTER = "import runpy\n\nrunpy.run_module({module!r}, run_name='__main__', alter_sys=True)\n"


@dataclass(frozen=True, slots=True)
class FoundScript:
    """A script of the user's. `name`: its path within the bundle."""

    name: str
    bundle: ScriptBundle


def find_script(given: Path, *, home: Path | None) -> FoundScript:
    """Read the script and what belongs to it: the working folder, or its own if that is elsewhere.

    A script that lies below the working folder may open files as they are called from there.
    `home`: the farm's own folder, which is left out; None: it is on another machine.

    Raises:
        InvalidSpec: there is no such script, its name is not allowed, it is too much, or a file
            cannot be read.
    """
    if not is_script_here(given):
        raise InvalidSpec("script", str(given), "a Python file that is there")
    try:
        script = given.resolve()  # as Python does, which looks for modules beside it
        here = Path.cwd()
    except OSError as error:
        expected = f"a working folder that is there ({error.strerror})"
        raise InvalidSpec("script", str(given), expected) from None
    check_script_size(script.stat().st_size, "script")
    folder = here if script.is_relative_to(here) else script.parent
    name = script.relative_to(folder).as_posix()
    if not is_script_path(name):
        raise InvalidSpec("script", name, SCRIPT_PATH)
    return FoundScript(name, _bundle(_contents(script, folder, home)))


def is_script_here(path: Path) -> bool:
    """Whether there is a file of that name, which may be one that no file can have."""
    try:
        return path.is_file()
    except OSError:
        return False


def find_module(module: str, *, home: Path) -> FoundScript:
    """Read what `python -m MODULE` runs in the working folder, with all that is there but `home`.

    A script is added that starts the module as Python itself does.

    Raises:
        InvalidSpec: the folder has no such module; else as for a script.
    """
    folder = Path.cwd().resolve()
    inside = folder.joinpath(*module.split("."))
    files = (inside.with_name(f"{inside.name}.py"), inside / "__main__.py")
    found = next((file for file in files if file.is_file()), None)
    if found is None or not _MODULE.fullmatch(module):
        raise InvalidSpec("COMMAND", f"-m {module}", f"a module in {folder}")
    starter = f"run-{module.replace('.', '-')}.py"
    if not is_script_path(starter) or (folder / starter).exists():
        raise InvalidSpec("COMMAND", f"-m {module}", f"a module whose {starter} can be added here")
    content = _STARTER.format(module=module).encode()
    return FoundScript(starter, _bundle({**_contents(found, folder, home), starter: content}))


def _bundle(files: Mapping[str, bytes]) -> ScriptBundle:
    check_files(files)
    bundle = ScriptBundle(dict(sorted(files.items())))
    _refuse_too_large({path: len(content) for path, content in files.items()}, len(bundle.archive))
    return bundle


def _contents(script: Path, folder: Path, home: Path | None) -> dict[str, bytes]:
    files = {}
    for file in files_of(script, folder, home=home):
        path = file.relative_to(folder).as_posix()
        if not is_member_path(path):
            continue  # it cannot be printed, or lies too deep
        try:
            files[path] = file.read_bytes()
        except OSError as error:
            expected = f"a file that can be read ({error.strerror}), or its name in {IGNORE_FILE}"
            raise InvalidSpec("script", str(file), expected) from None
    return files


def with_bundles(
    sweep: object, *, home: Callable[[], Path | None]
) -> tuple[object, list[FoundScript]]:
    """Return a sweep as it was read with the bundles of its scripts that are in this folder.

    A script that is not, or that the sweep names by its sha256, is one that the agents have.

    Raises:
        InvalidSpec: see `find_script`.
    """
    cases = sweep.get("case") if isinstance(sweep, Mapping) else None
    if not isinstance(sweep, Mapping) or not isinstance(cases, list):
        return sweep, []  # refused later
    found: dict[str, FoundScript] = {}
    completed = []
    for case in cases:
        script = case.get("script") if isinstance(case, Mapping) else None
        if (
            not isinstance(script, str)
            or {"script_sha256", "bundle_sha256"} & case.keys()
            or not is_script_here(Path(script))
        ):
            completed.append(case)
            continue
        if script not in found:
            found[script] = find_script(Path(script), home=home())
        one = found[script]
        completed.append({**case, "script": one.name, "bundle_sha256": one.bundle.sha256})
    return {**sweep, "case": completed}, list(found.values())


def files_of(script: Path, folder: Path, *, home: Path | None) -> list[Path]:
    """Return the files of the script's bundle, which are below the folder, by name.

    None of the farm's own folder, where each measurement changes something.

    Raises:
        InvalidSpec: they are too many or too large; the largest are named.
    """
    ignored = _ignored(folder)
    if home is not None and home.resolve() == folder:
        raise InvalidSpec("FARM_HOME", str(home), "another folder than the script's")

    def is_farm_file(file: Path) -> bool:
        return home is not None and file.is_relative_to(home.resolve())

    found = {script}
    for file in _tracked(folder) or _walk(folder):
        name = file.relative_to(folder).as_posix()
        if is_farm_file(file) or matches(name, ignored) or not file.is_file():
            continue
        target = file.resolve()  # of a link, which is followed within the folder
        if target.is_relative_to(folder) and not is_farm_file(target):
            found.add(file)
        if len(found) > MOST_SCRIPT_FILES:
            expected = f"at most {MOST_SCRIPT_FILES} files beside it; name others in {IGNORE_FILE}"
            raise InvalidSpec("script", str(script), expected)
    sizes = {file.relative_to(folder).as_posix(): file.stat().st_size for file in found}
    _refuse_too_large(sizes, sum(sizes.values()))
    return sorted(found)


def _refuse_too_large(sizes: Mapping[str, int], total: int) -> None:
    if total <= MAX_SCRIPT_BUNDLE_BYTES:
        return
    largest = sorted(sizes, key=lambda path: -sizes[path])[:_NAMED]
    named = ", ".join(f"{path} ({byte_count(sizes[path])})" for path in largest)
    expected = (
        f"at most {byte_count(MAX_SCRIPT_BUNDLE_BYTES)} with the files beside it; largest: {named}"
    )
    raise InvalidSpec("script", byte_count(total), f"{expected}; see {IGNORE_FILE}")


def _tracked(folder: Path) -> list[Path]:
    """Return what git tracks there; nothing where it tracks nothing, or is not there."""
    try:
        listed = subprocess.run(
            ["git", "-C", str(folder), "ls-files", "-z", "--recurse-submodules"],  # noqa: S607 (the user's own)
            capture_output=True,
            check=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [folder / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        here = Path(parent)
        folders[:] = [
            name
            for name in sorted(folders)
            if not is_left_out(name) and not (here / name / ENVIRONMENT_FILE).exists()
        ]
        for name in sorted(files):
            if not is_left_out(name):
                yield here / name


def _ignored(folder: Path) -> list[str]:
    ignored = folder / IGNORE_FILE
    if not ignored.is_file():
        return []
    try:
        content = ignored.read_bytes()
    except OSError:
        raise InvalidSpec("script", str(ignored), "a file that can be read") from None
    return read_ignored(content, name=str(ignored))

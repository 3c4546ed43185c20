"""Programs whose output nobody reads to its end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
_PROGRAMS = pytest.mark.parametrize(
    "arguments",
    [
        ("worker_agent", "--check"),
        ("worker_agent", "--help"),
        ("farm.cli.main", "--help"),
        ("farm.cli.main", "agent", "add", "--help"),
        ("farm.cli.main", "--version"),
    ],
    ids=" ".join,
)


def _run(
    arguments: tuple[str, ...],
    folder: Path,
    *,
    stdout: int | None = None,
    stderr: int = subprocess.PIPE,
    before: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        stdout=stdout,
        stderr=stderr,
        text=True,
        cwd=_ROOT,
        env={"PATH": os.environ["PATH"], "AGENT_STATE_DIR": str(folder), "AGENT_CLOUD": "never"},
        preexec_fn=before,
        check=False,
    )


@pytest.fixture
def broken_pipe() -> int:
    """The end of a pipe that nobody will ever read."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@_PROGRAMS
def test_a_reader_that_has_gone_away_is_no_error_to_speak_of(
    arguments: tuple[str, ...], broken_pipe: int, tmp_path: Path
) -> None:
    done = _run(arguments, tmp_path, stdout=broken_pipe)
    os.close(broken_pipe)
    assert "Broken" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 1


def test_standard_error_may_go_into_the_broken_pipe_as_well(
    broken_pipe: int, tmp_path: Path
) -> None:
    done = _run(("worker_agent", "--check"), tmp_path, stdout=broken_pipe, stderr=subprocess.STDOUT)
    os.close(broken_pipe)
    assert done.returncode == 1


@_PROGRAMS
def test_a_full_disk_is_named_in_one_line(arguments: tuple[str, ...], tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = _run(arguments, tmp_path, stdout=full.fileno())
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1] == "standard output: No space left on device"
    assert done.returncode == 1


def test_a_full_disk_under_a_file_of_the_programs_own_is_not_hidden() -> None:
    script = (
        "import errno\n"
        "from farm.processes.standard_output import standard_output\n"
        "with standard_output():\n"
        "    raise OSError(errno.ENOSPC, 'a file')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert "OSError: [Errno 28] a file" in done.stderr


@_PROGRAMS
def test_a_program_runs_with_its_standard_output_closed(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    done = _run(arguments, tmp_path, before=lambda: os.close(1))
    assert "Traceback" not in done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(
    "arguments", [("import", "table", "-", "--origin", "q"), ("predict", "-")], ids=" ".join
)
def test_a_closed_standard_input_is_an_empty_one(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    done = _run(("farm.cli.main", *arguments), tmp_path, before=lambda: os.close(0))
    assert done.stderr.startswith("farm: column world_size: expected this column")
    assert len(done.stderr.splitlines()) == 1
    assert done.returncode == 2


def test_files_do_not_take_the_numbers_of_closed_streams(tmp_path: Path) -> None:
    script = (
        "import os\n"
        "from farm.processes.standard_output import standard_output\n"
        "with standard_output():\n"
        f"    with open({str(tmp_path / 'file')!r}, 'w') as file:\n"
        "        os.system('echo from a child')\n"
        "        assert file.fileno() > 2\n"
    )
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        ["bash", "-c", '"$0" "$1" <&- >&-', sys.executable, tmp_path / "script.py"],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    assert (tmp_path / "file").read_text() == ""


def test_a_broken_connection_of_the_programs_own_is_not_hidden(tmp_path: Path) -> None:
    script = (
        "from farm.processes.standard_output import standard_output\n"
        "with standard_output():\n"
        "    raise BrokenPipeError('a socket')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert "BrokenPipeError: a socket" in done.stderr

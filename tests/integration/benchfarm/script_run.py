"""Runs scripts as a rank does: by `benchfarm.run`, with a pipe for marks."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIME_LIMIT_S = 240.0


@dataclass(frozen=True, slots=True)
class Ended:
    """What a script left. `reported`: what came by the pipe until all write ends were closed."""

    status: int
    output: str
    error: str
    reported: list[dict[str, Any]]

    @property
    def marks(self) -> list[dict[str, Any]]:
        return [line for line in self.reported if "mark" in line]

    def numbers(self) -> list[int]:
        return [mark["mark"] for mark in self.marks]


@dataclass(slots=True)
class ScriptRun:
    """A script that runs, with its pipe."""

    process: subprocess.Popen[bytes]
    read_end: int
    folder: Path

    def error(self) -> str:
        return (self.folder / "stderr").read_text()

    def end(self) -> Ended:
        """Read all marks, then wait for the script."""
        with os.fdopen(self.read_end) as pipe:
            lines = [json.loads(line) for line in pipe]
        status = self.process.wait(TIME_LIMIT_S)
        return Ended(status, (self.folder / "stdout").read_text(), self.error(), lines)


def write_script(folder: Path, text: str, name: str = "train.py") -> Path:
    script = folder / name
    script.parent.mkdir(exist_ok=True)
    script.write_text(textwrap.dedent(text))
    return script


@contextlib.contextmanager
def started(
    script: Path,
    *arguments: str,
    last_mark: int | None = None,
    environment: dict[str, str] | None = None,
    output: Path | None = None,
) -> Iterator[ScriptRun]:
    """Start a script; end its process if it still runs when the block is left.

    `output`: the folder for stdout and stderr, by default that of the script.
    """
    folder = output or script.parent
    read_end, write_end = os.pipe()
    variables = {**os.environ, **(environment or {}), "FARM_MARKS_FD": str(write_end)}
    if last_mark is not None:
        variables["FARM_LAST_MARK"] = str(last_mark)
    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchfarm.run", str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(write_end,),
            env=variables,
        )
    os.close(write_end)
    try:
        yield ScriptRun(process, read_end, folder)
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def run_script(
    script: Path,
    *arguments: str,
    last_mark: int | None = None,
    environment: dict[str, str] | None = None,
) -> Ended:
    with started(script, *arguments, last_mark=last_mark, environment=environment) as running:
        return running.end()

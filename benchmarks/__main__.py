"""Run every benchmark, one at a time, and print one table: `make bench`.

Each is a process of its own, so that none finds what another has imported. `--write FILE` puts the
table with its date and machine between the two markers of a Markdown page.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.figures import (
    STOPPED_STATUS,
    Figure,
    cells_of,
    print_figures,
    root,
    say,
    stopping_once,
    warn_if_loaded,
)
from benchmarks.machine import describe_machine

# In the order in which they run, the quick ones first.
BENCHMARKS = (
    "placement",
    "memory",
    "ingest",
    "dispatch",
    "warm",
    "overhead",
    "sampler",
    "precision",
)
BEGIN_MARKER = "<!-- benchmarks: begin -->"
END_MARKER = "<!-- benchmarks: end -->"
_LIMIT_S = 3600.0  # of one benchmark
_GRACE_S = 60.0  # a benchmark that is stopped ends its farm


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked for; return 1 if any of it failed or missed a limit, 130 if stopped."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(BENCHMARKS)}; default all")
    parser.add_argument("--quick", action="store_true", help="short runs, held to no limit")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this page")
    given = parser.parse_args(argv)
    unknown = sorted(set(given.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"{', '.join(unknown)}: expected some of {', '.join(BENCHMARKS)}")
    if given.write and (given.names or given.quick):
        parser.error("--write: expected a whole run, without names and --quick")
    if given.write and not has_markers(given.write):
        parser.error(f"--write {given.write}: expected a page with the line {BEGIN_MARKER}")
    warn_if_loaded()
    begun_at = dt.datetime.now(dt.UTC)
    results: dict[str, list[Figure]] = {}
    failed: list[str] = []
    try:
        with stopping_once():
            for name in given.names or BENCHMARKS:
                say(f"-- {name}")
                results[name], has_succeeded = run_one(name, is_quick=given.quick)
                if not has_succeeded:
                    failed.append(name)
    except KeyboardInterrupt:
        say("stopped")
        return STOPPED_STATUS
    print_figures([figure for figures in results.values() for figure in figures], as_json=False)
    if given.write and all(results.values()):
        write_table(given.write, results, begun_at=begun_at)
    elif given.write:
        say(f"{given.write} is as before: a table without some of its figures would mislead")
    if failed:
        say(f"failed or missed a limit: {', '.join(failed)}")
    return int(bool(failed))


def run_one(name: str, *, is_quick: bool) -> tuple[list[Figure], bool]:
    """Run one benchmark; return its figures and whether it succeeded."""
    command = [sys.executable, "-P", "-m", f"benchmarks.{name}", "--json"]
    if is_quick:
        command.append("--quick")
    # In a group of its own, a Ctrl-C reaches it once, from here, and can be waited for.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=root(), process_group=0
    ) as run:
        try:
            output, _ = run.communicate(timeout=_LIMIT_S)
            figures = [Figure(**fields) for fields in json.loads(output)]
        except subprocess.TimeoutExpired:
            say(f"{name}: stopped, not done within {_LIMIT_S / 60:.0f} min")
            return [], False
        except (ValueError, TypeError):
            return [], False
        finally:
            end(run)
        return figures, run.returncode == 0


def end(run: subprocess.Popen[str]) -> None:
    """End a benchmark, if it has not ended yet, with all that it has started."""
    run.terminate()
    try:
        run.wait(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()


def has_markers(page: Path) -> bool:
    """Whether a table can be put into the page."""
    return page.is_file() and all(
        marker in page.read_text() for marker in (BEGIN_MARKER, END_MARKER)
    )


def write_table(
    page: Path, results: Mapping[str, Sequence[Figure]], *, begun_at: dt.datetime
) -> None:
    """Replace what stands between the page's markers."""
    head, rest = page.read_text().split(BEGIN_MARKER, 1)
    _, tail = rest.split(END_MARKER, 1)
    table = markdown_table(results, begun_at=begun_at)
    page.write_text(f"{head}{BEGIN_MARKER}\n\n{table}\n\n{END_MARKER}{tail}")


def markdown_table(results: Mapping[str, Sequence[Figure]], *, begun_at: dt.datetime) -> str:
    """Return date, machine, the table and the notes below it."""
    machine = "; ".join(f"{what} {which}" for what, which in describe_machine())
    lines = [
        f"Measured on {begun_at:%Y-%m-%d}, {begun_at:%H:%M} UTC, on one machine: {machine}.",
        "",
        "| benchmark | figure | ours | baseline | which is | ratio | limit | reached |",
        "|---|---|---|---|---|---|---|---|",
    ]
    notes = []
    for name, figures in results.items():
        for figure in figures:
            cells = [cell.replace("|", r"\|") for cell in cells_of(figure)]
            lines.append(f"| `{name}` | {' | '.join(cells)} |")
            if figure.note:
                notes.append(f"- {figure.name}: {figure.note}")
    return "\n".join([*lines, *([""] if notes else []), *notes])


if __name__ == "__main__":
    sys.exit(main())

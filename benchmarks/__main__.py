"""Run every benchmark, one at a time, and print one table: `make bench`.

Beside each ratio stands the one that docs/performance.md had of it before. Each benchmark is a
process of its own, so that none finds what another has imported. `--write FILE` keeps the table
between the two markers of a Markdown page: each benchmark's lines are replaced as soon as it is
done, and those of the others stay, each with its date, and with the machine of that date.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.committed import print_beside, read_committed
from benchmarks.figures import (
    STOPPED_STATUS,
    BenchmarkFigure,
    cells_of,
    root,
    say,
    stopping_once,
    warn_if_loaded,
)
from benchmarks.machine import describe_machine
from benchmarks.marked_part import MarkedPart

# Name and module, in the order in which they run, the quick ones first.
BENCHMARKS = {
    "placement": "benchmarks.server.placement",
    "schedule_sim": "benchmarks.server.schedule_sim",
    "memory": "benchmarks.jobs.memory",
    "signing": "benchmarks.server.signing",
    "messages": "benchmarks.server.messages",
    "ingest": "benchmarks.server.ingest",
    "recommend": "benchmarks.web.recommend",
    "pages": "benchmarks.web.pages",
    "dispatch": "benchmarks.jobs.dispatch",
    "warm": "benchmarks.training.warm",
    "compare": "benchmarks.jobs.compare",
    "scale": "benchmarks.fleet.scale",
    "evaluation": "benchmarks.evaluation",
    "overhead": "benchmarks.training.overhead",
    "scripts": "benchmarks.training.scripts",
    "sampler": "benchmarks.training.sampler",
    "precision": "benchmarks.jobs.precision",
}
PAGE = root() / "docs" / "performance.md"
TABLE = MarkedPart("benchmarks")
_MACHINE = re.compile(r"- Machine of (\d{4}-\d\d-\d\d): (.+)")
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
    if given.write and given.quick:
        parser.error("--write: expected runs that are held to their limits, without --quick")
    if given.write and not TABLE.is_in(given.write):
        parser.error(f"--write {given.write}: expected a page with the line {TABLE.begin}")
    warn_if_loaded()
    # What is short is not comparable.
    committed = {} if given.quick else read_committed(PAGE)
    results: dict[str, list[BenchmarkFigure]] = {}
    failed: list[str] = []
    try:
        with stopping_once():
            for name in given.names or BENCHMARKS:
                say(f"-- {name}")
                results[name], has_succeeded = run_one(name, is_quick=given.quick)
                if not has_succeeded:
                    failed.append(name)
                if given.write and results[name]:
                    write_lines(given.write, name, results[name], at=dt.datetime.now(dt.UTC))
    except KeyboardInterrupt:
        say("stopped")
        return STOPPED_STATUS
    print_beside(results, committed)
    if failed:
        say(f"failed or missed a limit: {', '.join(failed)}")
    return int(bool(failed))


def run_one(name: str, *, is_quick: bool) -> tuple[list[BenchmarkFigure], bool]:
    """Run one benchmark; return its figures and whether it succeeded."""
    command = [sys.executable, "-P", "-m", BENCHMARKS[name], "--json"]
    if is_quick:
        command.append("--quick")
    # In a group of its own, a Ctrl-C reaches it once, from here, and can be waited for.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=root(), process_group=0
    ) as run:
        try:
            output, _ = run.communicate(timeout=_LIMIT_S)
            figures = [BenchmarkFigure(**fields) for fields in json.loads(output)]
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


def write_lines(
    page: Path, name: str, figures: Sequence[BenchmarkFigure], *, at: dt.datetime
) -> None:
    """Replace one benchmark's lines of the table; the others' stay if their machine is told.

    One machine is told for each date, so today's lines of another machine go.
    """
    day = f"{at:%Y-%m-%d}"
    machine = "; ".join(f"{what} {which}" for what, which in describe_machine())
    kept = TABLE.read(page).splitlines()
    machines = {match[1]: match[2] for line in kept if (match := _MACHINE.match(line))}
    if machines.get(day, machine) != machine:
        del machines[day]
        say(f"{page}: the other lines of {day} go, they are of another machine")
    others = [line for line in of_others(kept, "| `", name) if is_known(line, machines)]
    names = {benchmark_of(line) for line in others}
    machines[day] = machine
    rows = [*others, *(f"| `{name}` | {' | '.join(escaped(f))} | {day} |" for f in figures)]
    notes = [line for line in of_others(kept, "- `", name) if benchmark_of(line) in names]
    notes += [f"- `{name}`, {figure.name}: {figure.note}" for figure in figures if figure.note]
    days = sorted({day_of(row) for row in rows})
    lines = [
        *(f"- Machine of {date}: {machines[date]}" for date in days),
        "",
        "| benchmark | figure | ours | baseline | which is | ratio | limit | reached | measured |",
        "|---|---|---|---|---|---|---|---|---|",
        *ordered(rows),
        "",
        *ordered(notes),
    ]
    TABLE.write(page, lines)


def is_known(row: str, machines: Mapping[str, str]) -> bool:
    """Whether there is still such a benchmark, and its machine is told."""
    return benchmark_of(row) in BENCHMARKS and day_of(row) in machines


def day_of(row: str) -> str:
    """Return the date in the last cell of a row."""
    return row.split("|")[-2].strip()


def benchmark_of(line: str) -> str:
    """Return the benchmark that a line is of."""
    return line.split("`")[1]


def escaped(figure: BenchmarkFigure) -> list[str]:
    """Return the cells of a figure as a Markdown table takes them."""
    return [cell.replace("|", r"\|") for cell in cells_of(figure)]


def of_others(lines: Sequence[str], prefix: str, name: str) -> list[str]:
    """Return the lines of that kind that are not of the benchmark `name`."""
    return [
        line
        for line in lines
        if line.startswith(prefix) and not line.startswith(f"{prefix}{name}`")
    ]


def ordered(lines: Sequence[str]) -> list[str]:
    """Sort lines by the order in which their benchmarks run; one's own stay as they are."""
    order = list(BENCHMARKS)
    return sorted(lines, key=lambda line: order.index(benchmark_of(line)))


if __name__ == "__main__":
    sys.exit(main())

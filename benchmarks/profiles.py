"""Profiles four hot paths, and lists the functions that take most of the time.

    python -m benchmarks.profiles [NAME ...]

- `collector`: 50 agents' batches of three seconds, stored together and answered.
- `round`: a round of the scheduler with 1,000 agents and 10,000 jobs, three gangs of which have
  just ended.
- `sweep`, `job`: the pages of a sweep of 5,000 jobs and of a job of it, as `pages` has them.
- `recommendation`: a warm answer of 400 measurements.

A profiler makes calls dear, so that shares are told and no times. They are of one process's
processor; what the database does meanwhile is in the wait for it.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks.figures import root, say
from benchmarks.profiled import PATHS, Turn

_TURNS = 20
_MOST_LINES = 8
_WAITS = ("poll", "wait", "acquire", "select", "recv")

_Function = tuple[str, int, str]
_Stats = Mapping[_Function, tuple[int, int, float, float, object]]


def main() -> int:
    """Profile what is asked for, and print it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiles", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(PATHS)}; default all")
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - set(PATHS)):
        parser.error(f"{', '.join(unknown)}: expected some of {', '.join(PATHS)}")
    for name in given.names or PATHS:
        say(name)
        with tempfile.TemporaryDirectory(prefix="farm-profile-") as folder:
            table = profile_table(name, profile(PATHS[name](Path(folder))))
        print(table, end="\n\n", flush=True)
    return 0


def profile(path: AbstractContextManager[Turn]) -> _Stats:
    """Run a path once to warm it up, and then under the profiler."""
    profiler = cProfile.Profile()
    with path as turn:
        turn.prepare()
        turn.run()
        for _ in range(_TURNS):
            turn.prepare()
            profiler.enable()
            turn.run()
            profiler.disable()
    stats: _Stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined] # not in its stub
    return stats


def profile_table(name: str, stats: _Stats) -> str:
    """Return a Markdown table: who owns the time, and the functions with most of it."""
    total_s = sum(entry[2] for entry in stats.values()) or 1.0
    owners: Counter[str] = Counter()
    for function, entry in stats.items():
        owners[owner(function)] += entry[2]  # type: ignore[assignment] # seconds
    parts = ", ".join(f"{who} {s / total_s:.0%}" for who, s in owners.most_common(6))
    most = sorted(stats.items(), key=lambda item: -item[1][2])[:_MOST_LINES]
    lines = [f"| {e[2] / total_s:.1%} | {e[1] / _TURNS:,.0f} | `{place(f)}` |" for f, e in most]
    head = [f"`{name}`: {parts}.", "", "| own time | calls a turn | function |", "|---|---|---|"]
    return "\n".join([*head, *lines])


def owner(function: _Function) -> str:
    """Return whose code a function is: a package's, ours, Python's own, or a wait's."""
    file, _, name = function
    if name == "wait" or (file == "~" and any(word in name for word in _WAITS)):
        return "waiting"
    if file.startswith(str(root())) and "site-packages" not in file:
        return "Benchfarm"
    if "site-packages/" in file:
        return file.split("site-packages/")[1].split("/")[0].removesuffix(".py")
    return "Python"


def place(function: _Function) -> str:
    """Return file and name of a function, without where the file lies on this machine."""
    file, _, name = function
    if file in ("~", ""):
        return name.replace("|", "/")
    file = re.sub(r"^.*/(site-packages|python3\.\d+)/", "", file).removeprefix(f"{root()}/")
    return f"{file}: {name}"


if __name__ == "__main__":
    sys.exit(main())

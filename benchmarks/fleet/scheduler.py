"""Runs the scheduler process, and records how long its operations take.

`python -m benchmarks.fleet.scheduler FILE` is `farm run scheduler`, but for the lines of JSON that
it adds to FILE, one for each turn of its two loops.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import farm.scheduler.advancing
import farm.scheduler.main
import farm.scheduler.placing
from farm.log import configure
from farm.settings.server import load_settings

# The parts of a turn by the name under which its module calls them.
PARTS: dict[Any, tuple[str, ...]] = {
    farm.scheduler.advancing: ("attempts_to_decide", "active_attempts"),
    farm.scheduler.placing: ("live_agents", "_queue", "place", "_lease"),
}


class Clock:
    """Sums up for how long each part of a turn took, computed, and how much it returned."""

    def __init__(self) -> None:
        self.times_s: dict[str, float] = {}
        self.cpu_s: dict[str, float] = {}
        self.counts: dict[str, int] = {}

    def around(self, name: str, part: Callable[..., Any]) -> Callable[..., Any]:
        """Return the part, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            begun_s, had_s = time.perf_counter(), time.thread_time()
            try:
                result = part(*args, **kwargs)
            finally:
                spent_s, used_s = time.perf_counter() - begun_s, time.thread_time() - had_s
                self.times_s[name] = self.times_s.get(name, 0.0) + spent_s
                self.cpu_s[name] = self.cpu_s.get(name, 0.0) + used_s
            has_length = isinstance(result, Sequence)
            self.counts[name] = self.counts.get(name, 0) + (len(result) if has_length else 1)
            return result

        return timed


def main() -> None:
    """Run until SIGTERM."""
    main_module: Any = farm.scheduler.main
    with Path(sys.argv[1]).open("a", buffering=1) as file:
        for name, module in (
            ("advance_once", farm.scheduler.advancing),
            ("place_once", farm.scheduler.placing),
        ):
            clock = Clock()
            for part in PARTS[module]:
                setattr(module, part, clock.around(part, getattr(module, part)))
            turn = _logged(name, getattr(main_module, name), clock, file)
            setattr(main_module, name, turn)
        settings = load_settings(dict(os.environ))
        configure(settings.log_level)
        main_module.run(settings)


def _logged(name: str, turn: Callable[..., Any], clock: Clock, file: TextIO) -> Callable[..., Any]:
    """Return the turn, which tells the file of itself; each is one thread's."""

    def logged(*args: Any, **kwargs: Any) -> Any:
        clock.times_s.clear()
        clock.cpu_s.clear()
        clock.counts.clear()
        begun_s, cpu_s = time.perf_counter(), time.thread_time()
        result = turn(*args, **kwargs)
        line = {
            "name": name,
            "at_s": time.time(),
            "turn_s": time.perf_counter() - begun_s,
            "cpu_s": time.thread_time() - cpu_s,
            "times_s": clock.times_s,
            "parts_cpu_s": clock.cpu_s,
            "counts": clock.counts,
        }
        file.write(json.dumps(line) + "\n")
        return result

    return logged


if __name__ == "__main__":
    main()

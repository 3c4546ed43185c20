"""The scheduler's process with a clock at what it does.

`python -m benchmarks.fleet.scheduler FILE` is `farm run scheduler`, but for the lines of JSON that
it adds to FILE, one for each round.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import farm.scheduler.main
import farm.scheduler.placing
import farm.scheduler.rounds
from farm.config import load_settings
from farm.log import configure

# The parts of a round by the name under which it is called.
PARTS = (
    "attempts_to_decide",
    "active_attempts",
    "live_agents",
    "_queue",
    "place",
    "_lease",
)


class Clock:
    """Sums up for how long each part of a round took, and how much it returned."""

    def __init__(self) -> None:
        self.times_s: dict[str, float] = {}
        self.counts: dict[str, int] = {}

    def around(self, name: str, part: Callable[..., Any]) -> Callable[..., Any]:
        """Return the part, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            begun_s = time.perf_counter()
            try:
                result = part(*args, **kwargs)
            finally:
                spent_s = time.perf_counter() - begun_s
                self.times_s[name] = self.times_s.get(name, 0.0) + spent_s
            has_length = isinstance(result, Sequence)
            self.counts[name] = self.counts.get(name, 0) + (len(result) if has_length else 1)
            return result

        return timed


def main() -> None:
    """Run until SIGTERM."""
    clock = Clock()
    for name in PARTS:
        module = next(
            m for m in (farm.scheduler.placing, farm.scheduler.rounds) if hasattr(m, name)
        )
        setattr(module, name, clock.around(name, getattr(module, name)))
    main_module: Any = farm.scheduler.main
    for name in ("lead_attempts", "place_jobs", "send_all"):
        setattr(main_module, name, clock.around(name, getattr(main_module, name)))
    one_round = main_module._round
    with Path(sys.argv[1]).open("a", buffering=1) as file:

        def told(*args: Any, **kwargs: Any) -> None:
            clock.times_s.clear()
            clock.counts.clear()
            begun_s, cpu_s = time.perf_counter(), time.process_time()
            one_round(*args, **kwargs)
            line = {
                "at_s": time.time(),
                "round_s": time.perf_counter() - begun_s,
                "cpu_s": time.process_time() - cpu_s,
                "times_s": clock.times_s,
                "counts": clock.counts,
            }
            file.write(json.dumps(line) + "\n")

        main_module._round = told
        settings = load_settings(dict(os.environ))
        configure(settings.log_level)
        main_module.run(settings)


if __name__ == "__main__":
    main()

"""A real agent on a machine of its own, as far as it can tell, for a farm that is one machine.

Only what it is told of the machine is made up: the id that says whose cores its cores are, in
CHAOS_MACHINE_ID, and the trainers, which are fakes forked from a fake template, unless CHAOS_TRAINS
is there. A wrong clock is `tests/chaos/clock`; CHAOS_WIRE_VERSION makes it one of another version;
CHAOS_PLANT plants a bug.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from farm.messages import envelope as messages
from tests.chaos import planted
from worker_agent import __main__ as program
from worker_agent.config import AgentConfig, load_config
from worker_agent.machine import hardware

TEMPLATE = Path(__file__).parents[1] / "fakes" / "template.py"


def load(environ: Mapping[str, str], *, file: Path | None = None) -> AgentConfig:
    config = load_config(environ, file=file)
    if "CHAOS_TRAINS" in environ:
        return config
    return dataclasses.replace(config, template=(sys.executable, str(TEMPLATE)))


def main() -> int:
    machine_id = os.environ["CHAOS_MACHINE_ID"]
    hardware.read_machine_id = lambda: machine_id
    program.load_config = load  # type: ignore[attr-defined] # the name that it has imported
    messages.WIRE_VERSION = int(os.environ.get("CHAOS_WIRE_VERSION", messages.WIRE_VERSION))
    planted.plant(os.environ.get("CHAOS_PLANT"))
    return program.main([])


if __name__ == "__main__":
    sys.exit(main())

"""A real agent, except that its warm trainers come from the fake template.

Its arguments are the fake template's.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

from farm.log import configure
from farm.processes.service_manager import ServiceManager
from worker_agent.config import load_config
from worker_agent.machine.hardware import read_facts
from worker_agent.supervisor.supervisor import Supervisor

TEMPLATE = Path(__file__).with_name("template.py")


def main() -> None:
    config = load_config(os.environ)
    python = config.trainer[0]  # its user may not be able to run this one's
    config = dataclasses.replace(config, template=(python, str(TEMPLATE), *sys.argv[1:]))
    configure(config.settings.log_level)
    config.settings.state_dir.mkdir(parents=True, exist_ok=True)
    Supervisor(config, read_facts(config)).run(ServiceManager({}))


if __name__ == "__main__":
    main()

"""`farm-agent`: run the agent of this machine."""

from __future__ import annotations

import argparse
import fcntl
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

try:
    from farm.configuration.catalogue import TORCH
    from farm.configuration.spec import TENSORFLOW
    from farm.errors import FarmError, InvalidSpec
    from farm.log import configure
    from farm.messages.agents import AgentFacts
    from farm.processes.private_files import make_private_folder
    from farm.processes.service_manager import ServiceManager
    from farm.processes.standard_output import standard_output
    from farm.settings.declaration import settings_help
    from farm.values.codec import to_json
    from worker_agent.config import load_config, load_state_dir
    from worker_agent.network.guard import open_lock
    from worker_agent.settings import AgentSettings
    from worker_agent.trainer_process import privilege
    from worker_agent.trainer_process import user as trainer_user
except ModuleNotFoundError as error:
    sys.exit(f"farm-agent: {error.name} is not installed: pip install 'benchfarm[agent]'")

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 stopped on request, 1 failed, 2 wrong usage or settings."""
    with standard_output():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    manager = ServiceManager(os.environ)
    try:
        if options.clear_network:
            clear_network(load_state_dir(os.environ, file=options.config))
            return 0
        config = load_config(os.environ, file=options.config)
        # Imported late, so that --help and a wrong setting answer at once.
        from worker_agent.machine.hardware import builds_without_gpus, read_facts

        configure(config.settings.log_level, form=config.settings.log_format)
        facts = read_facts(config)
        _warn_of_frameworks(facts, builds_without_gpus())
        if options.check:
            print(json.dumps(to_json(facts), indent=2))
            return 0
        trainer_user.keep_files_private()
        privilege.drop_capabilities()
        privilege.hide()
        if config.open_ports_reason is not None:
            logger.warning(
                "ports of this agent's ranks are open to any host that reaches this machine: %s",
                config.open_ports_reason,
            )
        with _only_agent(config.settings.state_dir):
            from worker_agent.supervisor.supervisor import Supervisor

            Supervisor(config, facts).run(manager)
    except InvalidSpec as error:
        print(f"farm-agent: {error}", file=sys.stderr)
        return 2
    except FarmError as error:
        print(f"farm-agent: {error}", file=sys.stderr)
        return 1
    return 0


def _warn_of_frameworks(facts: AgentFacts, without_gpus: Mapping[str, str]) -> None:
    """Log which jobs this agent does not get because it cannot run them, or not on its GPUs.

    `without_gpus`: frameworks installed without GPU support, and how to install them with it.
    """
    if TENSORFLOW not in facts.capabilities:
        logger.warning(
            "TensorFlow is not installed for %s, so this agent is given %s: "
            "pip install 'benchfarm[agent]' there, and start it again",
            sys.executable,
            "jobs of PyTorch alone" if TORCH in facts.capabilities else "no jobs",
        )
    if facts.hardware.accelerators:
        for build, command in without_gpus.items():
            logger.warning("%s cannot use this machine's GPUs: %s", build, command)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="farm-agent",
        description="Run benchmark ranks on this machine as the farm's server orders.",
        epilog="settings, from the environment or a TOML file of the same names:\n"
        + "\n".join(settings_help(AgentSettings)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings")
    parser.add_argument(
        "--check", action="store_true", help="print what would be reported as JSON, and exit"
    )
    parser.add_argument(
        "--clear-network",
        action="store_true",
        help="undo the network profile and the closed ports that an ended agent has left, and "
        "exit; needs no broker",
    )
    return parser


def clear_network(state_dir: Path) -> None:
    """Undo the network changes of this directory's agent, and print them.

    Raises:
        InvalidSpec: that agent is running, and undoes its changes itself. EmulationFailed:
        something may still be shaped.
    """
    from worker_agent.network.undo import undo_all

    with _only_agent(state_dir):
        undone = undo_all(str(state_dir))
    for what in undone:
        print(f"undone: {what}")
    if not undone:
        print(f"nothing was applied, according to {state_dir}")


@contextmanager
def _only_agent(state_dir: Path) -> Iterator[None]:
    """Lock the state directory. Raises InvalidSpec if it is unusable or in use."""
    try:
        make_private_folder(state_dir)
        lock = open_lock(state_dir / "lock")
    except OSError as error:
        raise InvalidSpec(
            "AGENT_STATE_DIR", str(state_dir), f"a writable folder ({error})"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidSpec(
                "AGENT_STATE_DIR", str(state_dir), "a folder of its own: another agent uses it"
            ) from None
        yield


if __name__ == "__main__":
    sys.exit(main())

"""The agent's settings, read once at the entry point into one frozen value."""

from __future__ import annotations

import re
import shlex
import socket
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from farm.core.agents import check_agent_id
from farm.core.settings import Setting, read_settings, seconds, whole_number
from farm.errors import InvalidSpec
from farm.wire import require_redis
from worker_agent.emulators.site import Site
from worker_agent.machine import DEFAULT_PORT, address_towards, interface_of, own_cpus


def parse_agent_id(text: str) -> str:
    """Accept what the server accepts."""
    try:
        return check_agent_id(text)
    except InvalidSpec as error:
        raise ValueError(error.expected) from None


def parse_port_range(text: str) -> tuple[int, int]:
    """Read "20000-20999", both ends included."""
    first, dash, last = text.partition("-")
    if not (dash and first.strip().isdigit() and last.strip().isdigit()):
        raise ValueError("two ports such as 20000-20999")
    low, high = int(first), int(last)
    # A rank needs one port for its probe and one for each of its trainers.
    if not 1024 <= low < high <= 65535:
        raise ValueError("a range of at least two ports within 1024-65535")
    return low, high


def parse_cpus(text: str) -> tuple[int, ...]:
    """Read a kernel-style list such as "0-3,6"."""
    cpus: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,5})(?:-(\d{1,5}))?\s*", part)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise ValueError("a list of cores such as 0-3,6")
        cpus.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(cpus))


def parse_labels(text: str) -> dict[str, str]:
    """Read "instance_type=Standard_D2s_v3,zone=1"."""
    labels: dict[str, str] = {}
    for pair in text.split(","):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (key and equals and value) or key in labels:
            raise ValueError("pairs such as instance_type=Standard_D2s_v3,zone=1, each key once")
        labels[key] = value
    return labels


def parse_command(text: str) -> tuple[str, ...]:
    """Split a command line as a shell would."""
    words = tuple(shlex.split(text))
    if not words:
        raise ValueError("a command")
    return words


def parse_switch(text: str) -> bool:
    """Read "true" or "false"."""
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def parse_log_level(text: str) -> str:
    """Accept a level's name in any case."""
    if text.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise ValueError("DEBUG, INFO, WARNING or ERROR")
    return text.upper()


AGENT_SETTINGS = (
    Setting(
        name="AGENT_ID",
        default=None,
        meaning="the agent's name in the farm; the host's name unless given",
        parse=parse_agent_id,
    ),
    Setting(
        name="AGENT_ADVERTISE_ADDRESS",
        default=None,
        meaning="where the other ranks reach this machine; the address that faces the broker "
        "unless given",
    ),
    Setting(
        name="AGENT_INTERFACE",
        default=None,
        meaning="whose bytes are counted; the interface of the advertised address unless given",
    ),
    Setting(
        name="AGENT_PORT_RANGE",
        default="20000-20999",
        meaning="ports for trainers and probes, open between the agents",
        parse=parse_port_range,
    ),
    Setting(
        name="AGENT_CPUS",
        default=None,
        meaning="cores for the trainers, such as 0-3,6; all that this process may use unless given",
        parse=parse_cpus,
    ),
    Setting(
        name="AGENT_SHARES_CORES",
        default="false",
        meaning="ranks of one gang may share this agent's cores, as hosts of a lab do, "
        "if all of their agents say so",
        parse=parse_switch,
    ),
    Setting(
        name="AGENT_LABELS",
        default=None,
        meaning="what jobs may ask for, such as instance_type=Standard_D2s_v3,zone=1",
        parse=parse_labels,
    ),
    Setting(
        name="AGENT_STATE_DIR",
        default="~/.local/state/benchfarm-agent",
        meaning="spool and fencing token, on a disk that survives a restart; one agent each",
    ),
    Setting(
        name="AGENT_TRAINER",
        default=None,
        meaning="command that trains, for tests; this Python's farm.trainers unless given",
        parse=parse_command,
    ),
    Setting(
        name="AGENT_WARM_TRAINERS",
        default="true",
        meaning="keep a process that has imported TensorFlow, some 600 MB, to fork trainers from; "
        "AGENT_TRAINER is always started anew",
        parse=parse_switch,
    ),
    Setting(
        name="AGENT_HEARTBEAT_S",
        default="5",
        meaning="interval of heartbeats; less than half of FARM_LEASE_S",
        parse=seconds(0.1, 60),
    ),
    Setting(
        name="AGENT_PROGRESS_TIMEOUT_S",
        default="120",
        meaning="a trainer that says nothing for this long is stalled, and killed",
        parse=seconds(1, 86400),
    ),
    Setting(
        name="AGENT_SPOOL_MAX_BYTES",
        default=str(256 * 1024 * 1024),
        meaning="unconfirmed reports on disk beyond which no new rank is taken",
        parse=whole_number(4096, 2**40),
    ),
    Setting(
        name="FARM_BROKER_URL",
        default="redis://127.0.0.1:6379/0",
        meaning="URL of the Redis that carries commands and reports",
    ),
    Setting(
        name="FARM_DATA_DIR",
        default=None,
        meaning="where trainers look for data sets first and put what they download",
    ),
    Setting(
        name="FARM_LEASE_S",
        default="20",
        meaning="as on the server; a rank without a confirmed heartbeat for half of it is killed",
        parse=seconds(2, 3600),
    ),
    Setting(
        name="FARM_LOG_LEVEL",
        default="INFO",
        meaning="DEBUG, INFO, WARNING or ERROR",
        parse=parse_log_level,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """Checked values of `AGENT_SETTINGS`, with what this machine fills in."""

    agent_id: str
    address: str
    interface: str
    first_port: int
    last_port: int
    cpus: tuple[int, ...]
    shares_cores: bool
    labels: dict[str, str]
    state_dir: Path
    trainer: tuple[str, ...]
    template: tuple[str, ...] | None  # its command; None: every trainer starts cold
    heartbeat_s: float
    progress_timeout_s: float
    spool_max_bytes: int
    broker_url: str
    data_dir: str | None
    lease_s: float
    log_level: str

    @property
    def site(self) -> Site:
        """What an emulator may know. The broker's traffic is spared, even to a peer's machine."""
        return Site(
            state_dir=str(self.state_dir),
            interface=self.interface,
            cpus=self.cpus,
            spared_ports=(urlsplit(self.broker_url).port or DEFAULT_PORT,),
        )


def load_config(environ: Mapping[str, str], *, file: Path | None = None) -> AgentConfig:
    """Read the settings from the environment and, below it, a TOML file of the same names.

    What is not given is asked of this machine: host name, addresses, interfaces, affinity.

    Raises:
        InvalidSpec: the file is not TOML, or a value does not fit this machine.
    """
    values = read_settings(AGENT_SETTINGS, environ, file=_read_file(file) if file else {})
    broker_url = cast(str, values["FARM_BROKER_URL"])
    require_redis(broker_url)
    address = cast(str | None, values["AGENT_ADVERTISE_ADDRESS"]) or address_towards(broker_url)
    first_port, last_port = cast(tuple[int, int], values["AGENT_PORT_RANGE"])
    heartbeat_s = cast(float, values["AGENT_HEARTBEAT_S"])
    lease_s = cast(float, values["FARM_LEASE_S"])
    if not heartbeat_s < lease_s / 2:
        raise InvalidSpec("AGENT_HEARTBEAT_S", heartbeat_s, f"less than {lease_s / 2:g} s")
    cpus = own_cpus(cast(tuple[int, ...] | None, values["AGENT_CPUS"]))
    trainer = cast(tuple[str, ...] | None, values["AGENT_TRAINER"])
    cores = ",".join(map(str, cpus))
    is_warm = trainer is None and cast(bool, values["AGENT_WARM_TRAINERS"])
    return AgentConfig(
        agent_id=cast(str | None, values["AGENT_ID"]) or _host_name(),
        address=address,
        interface=interface_of(cast(str | None, values["AGENT_INTERFACE"]), address),
        first_port=first_port,
        last_port=last_port,
        cpus=cpus,
        shares_cores=cast(bool, values["AGENT_SHARES_CORES"]),
        labels=cast(dict[str, str] | None, values["AGENT_LABELS"]) or {},
        state_dir=_state_dir(values),
        trainer=trainer or (sys.executable, "-P", "-m", "farm.trainers"),
        template=(sys.executable, "-P", "-m", "farm.trainers.template", cores) if is_warm else None,
        heartbeat_s=heartbeat_s,
        progress_timeout_s=cast(float, values["AGENT_PROGRESS_TIMEOUT_S"]),
        spool_max_bytes=cast(int, values["AGENT_SPOOL_MAX_BYTES"]),
        broker_url=broker_url,
        data_dir=cast(str | None, values["FARM_DATA_DIR"]),
        lease_s=lease_s,
        log_level=cast(str, values["FARM_LOG_LEVEL"]),
    )


def load_state_dir(environ: Mapping[str, str], *, file: Path | None = None) -> Path:
    """Read AGENT_STATE_DIR alone, which needs neither a broker nor a network.

    Raises:
        InvalidSpec: the file is not TOML, or a setting has no sense.
    """
    return _state_dir(read_settings(AGENT_SETTINGS, environ, file=_read_file(file) if file else {}))


def _state_dir(values: Mapping[str, object]) -> Path:
    return Path(cast(str, values["AGENT_STATE_DIR"])).expanduser().absolute()


def _read_file(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidSpec("--config", str(path), f"a readable TOML file ({error})") from None


def _host_name() -> str:
    name = socket.gethostname()
    try:
        return parse_agent_id(name)
    except ValueError as error:
        raise InvalidSpec("AGENT_ID", name, f"{error}; the host's name does not serve") from None

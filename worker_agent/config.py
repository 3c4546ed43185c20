"""The agent's settings, read once at the entry point into one frozen value."""

from __future__ import annotations

import dataclasses
import socket
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import psutil

from farm.broker_url import check_broker_url, redact, stays_here
from farm.core.agent_keys import AgentKey, read_key
from farm.core.plaintext import plaintext_in
from farm.core.settings import read_settings
from farm.core.trainer_lines import TrainerLimits
from farm.errors import InvalidSpec, Unreachable
from worker_agent.agent_settings import AGENT_SETTINGS, parse_agent_id
from worker_agent.cloud import cloud_of, read_firmware
from worker_agent.emulators.site import Site
from worker_agent.machine import DEFAULT_PORT, address_towards, interface_of, own_cpus
from worker_agent.model_folder import ModelFolder
from worker_agent.nft import NoAnswer, find_obstacle
from worker_agent.trainer_user import TrainerUser, close_to_others, find_user

_NVIDIA = Path("/dev/nvidiactl")
OWN_TRAINER = (sys.executable, "-P", "-m", "farm.trainers")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """Checked values of `AGENT_SETTINGS`, with what this machine fills in."""

    agent_id: str
    address: str
    interface: str
    networks: dict[str, str]  # name to this machine's address in it
    first_port: int
    last_port: int
    cpus: tuple[int, ...]
    shares_cores: bool
    labels: dict[str, str]
    cloud: str | None = None  # whose metadata service is asked for other labels; None: none's
    state_dir: Path
    trainer: tuple[str, ...]
    trainer_user: TrainerUser | None = None  # None: the agent's own
    trainer_limits: TrainerLimits = field(default_factory=TrainerLimits)
    trainer_variables: frozenset[str] = frozenset()  # passed to trainers beside the usual
    template: tuple[str, ...] | None  # its command; None: every trainer starts cold
    heartbeat_s: float
    progress_timeout_s: float
    spool_max_bytes: int
    broker_url: str
    data_dir: str | None
    models: ModelFolder = field(default_factory=ModelFolder)
    lease_s: float
    # Why strangers reach a gang's ports; None: they do not.
    open_ports_reason: str | None = "it was not asked for"
    log_level: str
    log_as_json: bool = False
    key: AgentKey | None = None  # None: the broker is on this machine, and nothing is signed

    def within(self, network: str | None) -> AgentConfig:
        """Return the settings of a rank in one of `networks`; None: in the usual one.

        Raises:
            InvalidSpec: there is no such network, or its address has gone since the start.
        """
        if network is None:
            return self
        if network not in self.networks:
            known = ", ".join(self.networks) or "none"
            raise InvalidSpec("network", network, f"one of this agent's, {known}")
        address = self.networks[network]
        return dataclasses.replace(self, address=address, interface=interface_of(None, address))

    @property
    def trainer_uid(self) -> int | None:
        """Whose processes trainers are; None: the agent's own user's."""
        return None if self.trainer_user is None else self.trainer_user.uid

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
    check_broker_url(broker_url, may_be_plain=plaintext_in(values).broker)
    address = cast(str | None, values["AGENT_ADVERTISE_ADDRESS"]) or address_towards(broker_url)
    first_port, last_port = cast(tuple[int, int], values["AGENT_PORT_RANGE"])
    heartbeat_s = cast(float, values["AGENT_HEARTBEAT_S"])
    lease_s = cast(float, values["FARM_LEASE_S"])
    if not heartbeat_s < lease_s / 2:
        raise InvalidSpec("AGENT_HEARTBEAT_S", heartbeat_s, f"less than {lease_s / 2:g} s")
    cpus = own_cpus(cast(tuple[int, ...] | None, values["AGENT_CPUS"]))
    trainer = cast(tuple[str, ...] | None, values["AGENT_TRAINER"])
    cores = ",".join(map(str, cpus))
    user = _trainer_user(values, trainer)
    is_warm = trainer is None and cast(bool, values["AGENT_WARM_TRAINERS"])
    return AgentConfig(
        agent_id=cast(str | None, values["AGENT_ID"]) or _host_name(),
        address=address,
        interface=interface_of(cast(str | None, values["AGENT_INTERFACE"]), address),
        networks=_networks(values),
        first_port=first_port,
        last_port=last_port,
        open_ports_reason=_open_ports_reason(cast(str, values["AGENT_CLOSES_PORTS"])),
        cpus=cpus,
        shares_cores=cast(bool, values["AGENT_SHARES_CORES"]),
        labels=cast(dict[str, str] | None, values["AGENT_LABELS"]) or {},
        cloud=_cloud(cast(str, values["AGENT_CLOUD"])),
        state_dir=_state_dir(values),
        trainer=trainer or OWN_TRAINER,
        trainer_user=user,
        trainer_limits=_trainer_limits(values, is_alone=user is not None),
        trainer_variables=cast(frozenset[str] | None, values["AGENT_TRAINER_ENVIRONMENT"])
        or frozenset(),
        template=(sys.executable, "-P", "-m", "farm.trainers.template", cores) if is_warm else None,
        heartbeat_s=heartbeat_s,
        progress_timeout_s=cast(float, values["AGENT_PROGRESS_TIMEOUT_S"]),
        spool_max_bytes=cast(int, values["AGENT_SPOOL_MAX_BYTES"]),
        broker_url=broker_url,
        data_dir=cast(str | None, values["FARM_DATA_DIR"]),
        models=_models(values),
        lease_s=lease_s,
        log_level=cast(str, values["FARM_LOG_LEVEL"]),
        log_as_json=values["FARM_LOG_FORMAT"] == "JSON",
        key=_key(values, broker_url),
    )


def load_state_dir(environ: Mapping[str, str], *, file: Path | None = None) -> Path:
    """Read AGENT_STATE_DIR alone, which needs neither a broker nor a network.

    Raises:
        InvalidSpec: the file is not TOML, or a setting has no sense.
    """
    return _state_dir(read_settings(AGENT_SETTINGS, environ, file=_read_file(file) if file else {}))


def _key(values: Mapping[str, object], broker_url: str) -> AgentKey | None:
    """Return the key that messages are signed with; beyond this machine there has to be one."""
    text, file = (cast(str | None, values[name]) for name in ("AGENT_KEY", "AGENT_KEY_FILE"))
    if text is not None:
        return read_key(text.strip())
    if file is not None:
        try:
            return read_key(Path(file).read_text().strip(), name="AGENT_KEY_FILE")
        except (OSError, ValueError) as error:
            expected = f"a file with this agent's key ({error})"
            raise InvalidSpec("AGENT_KEY_FILE", file, expected) from None
    if stays_here(broker_url):
        return None
    expected = (
        f"this agent's key, since the broker {redact(broker_url)} is beyond this machine: "
        "`farm agent add NAME` on the server prints it"
    )
    raise InvalidSpec("AGENT_KEY", None, expected)


def _cloud(wish: str) -> str | None:
    if wish == "NEVER":
        return None
    return cloud_of(read_firmware) if wish == "AUTO" else wish.lower()


def _networks(values: Mapping[str, object]) -> dict[str, str]:
    """Return the named networks, each of which has to be there."""
    networks = cast(dict[str, str] | None, values["AGENT_NETWORKS"]) or {}
    for name, address in networks.items():
        try:
            interface_of(None, address)
        except InvalidSpec:
            expected = "an address that an interface of this machine holds"
            raise InvalidSpec(f"AGENT_NETWORKS {name}", address, expected) from None
    return networks


def _open_ports_reason(wish: str) -> str | None:
    """Return why a gang's ports stay open to everybody; None where they will be closed."""
    if wish == "NEVER":
        return "AGENT_CLOSES_PORTS is never"
    try:
        obstacle = find_obstacle()
    except NoAnswer as error:
        # To leave the ports open for the agent's life because nft was slow once would be wrong.
        raise Unreachable(
            f"AGENT_CLOSES_PORTS: {error}, so whether this agent can close its ports is not known: "
            "start it again, or set AGENT_CLOSES_PORTS=never"
        ) from None
    if wish == "ALWAYS" and obstacle is not None:
        raise InvalidSpec(
            "AGENT_CLOSES_PORTS",
            "always",
            f"CAP_NET_ADMIN, and a kernel with nftables ({obstacle})",
        )
    return obstacle


def _trainer_user(
    values: Mapping[str, object], trainer: tuple[str, ...] | None
) -> TrainerUser | None:
    """Return who trainers run as, and keep him out of the agent's directory."""
    name = cast(str | None, values["AGENT_TRAINER_USER"])
    if name is None:
        return None
    program: tuple[str, ...] = (sys.executable, "-P", "-c", "import farm.trainers.process")
    if trainer is not None:
        program = ("/bin/sh", "-c", 'command -v "$1"', "sh", trainer[0])
    user = find_user(name, program=program)
    state_dir, data_dir = _state_dir(values), cast(str | None, values["FARM_DATA_DIR"])
    if data_dir is not None and Path(data_dir).absolute().is_relative_to(state_dir):
        raise InvalidSpec(
            "FARM_DATA_DIR", data_dir, f"a folder outside of {state_dir}, which {name} cannot enter"
        )
    close_to_others(state_dir)
    return user


def _trainer_limits(values: Mapping[str, object], *, is_alone: bool) -> TrainerLimits:
    """Return what a trainer may use. Processes are counted by user, so only where he is alone.

    Beside a GPU memory is limited only if asked for: what CUDA maps was never measured.
    """
    limits = cast(TrainerLimits, values["AGENT_TRAINER_LIMITS"])
    if limits.memory_bytes is None and not _NVIDIA.exists():
        limits = dataclasses.replace(limits, memory_bytes=psutil.virtual_memory().total)
    return limits if is_alone else dataclasses.replace(limits, process_count=None)


def _models(values: Mapping[str, object]) -> ModelFolder:
    """Return the folder of models, if there is one, with the names that are allowed."""
    folder = cast(str | None, values["AGENT_MODEL_DIR"])
    allowed = cast(frozenset[str] | None, values["AGENT_MODELS"]) or frozenset()
    if folder is None:
        return ModelFolder(allowed=allowed)
    return ModelFolder(path=Path(folder).expanduser().resolve(), allowed=allowed)


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

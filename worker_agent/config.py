"""The agent's settings, with defaults taken from its machine; read once at the entry point."""

from __future__ import annotations

import dataclasses
import logging
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from farm.broker.url import DEFAULT_PORT, check_broker_url, is_local_broker, redact
from farm.configuration.model_files import ANY, is_file_name, trouble_of
from farm.errors import InvalidSpec, Unreachable
from farm.messages.agent_keys import AgentKey, read_key
from farm.messages.trainer_lines import TrainerLimits
from farm.processes.marked import EMBEDDED_MARK
from farm.settings.declaration import read_file, read_settings
from worker_agent.machine.cloud import cloud_of, read_firmware
from worker_agent.machine.gpus import open_nvml, own_gpus
from worker_agent.machine.machine import address_towards, interface_of, own_cpus
from worker_agent.network.emulators.contracts import Site
from worker_agent.network.nft import NoAnswer, find_obstacle
from worker_agent.rank.bundles import BundleFolder
from worker_agent.settings import AgentSettings, parse_agent_id
from worker_agent.trainer_process.user import TrainerUser, close_to_others, find_user

logger = logging.getLogger(__name__)

# Of one folder: the names travel with every heartbeat.
MOST_OFFERED = 100
_NVIDIA = Path("/dev/nvidiactl")
OWN_TRAINER = (sys.executable, "-P", "-m", "farm.trainers")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """A folder of installed models or scripts, and which of them may be run.

    `path` None: there is none. `allowed`: names of files, or `*` for all that are there.
    """

    path: Path | None = None
    allowed: frozenset[str] = frozenset()

    def names(self) -> tuple[str, ...]:
        """Return the models that a rank could use now; the log says why others cannot be used."""
        if self.path is None or not self.allowed:
            return ()
        trouble = _trouble_with(self.path, is_folder=True)
        if trouble is not None:
            logger.warning("no model of the folder is offered: %s %s", self.path, trouble)
            return ()
        found = sorted(p.name for p in self.path.iterdir() if p.suffix == ".py")
        wanted = found if ANY in self.allowed else sorted(self.allowed)
        offered = [name for name in wanted if self._is_offered(self.path / name)]
        if len(offered) > MOST_OFFERED:
            logger.warning("only %d models of %d are offered", MOST_OFFERED, len(offered))
        return tuple(offered[:MOST_OFFERED])

    def path_of(self, name: str) -> Path | None:
        """Return the path of a model's file, if it may be run; the trainer checks it again."""
        if self.path is None or not is_file_name(name) or _trouble_with(self.path, is_folder=True):
            return None
        return self.path / name if self.allowed & {name, ANY} else None

    @staticmethod
    def _is_offered(path: Path) -> bool:
        trouble = _trouble_with(path) if is_file_name(path.name) else "has no name for a model"
        if trouble is not None:
            logger.warning("model is not offered: %s %s", path, trouble)
        return trouble is None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """All settings and derived facts of an agent, as one frozen value."""

    settings: AgentSettings
    agent_id: str
    address: str
    interface: str
    cpus: tuple[int, ...]
    gpus: tuple[str, ...] | None = None  # their UUIDs; None: not known, so the trainers find out
    cloud: str | None = None  # whose metadata service is asked for other labels; None: none's
    trainer: tuple[str, ...]
    trainer_user: TrainerUser | None = None  # None: the agent's own
    trainer_limits: TrainerLimits = field(default_factory=TrainerLimits)
    template: tuple[str, ...] | None  # its command; None: every trainer starts cold
    models: ModelFolder = field(default_factory=ModelFolder)
    scripts: ModelFolder = field(default_factory=ModelFolder)
    runs_bundles: bool = False  # scripts that come over the wire
    # Why strangers reach a gang's ports; None: they do not.
    open_ports_reason: str | None = "it was not asked for"
    key: AgentKey | None = None  # None: the broker is on this machine, and nothing is signed

    def within(self, network: str | None) -> AgentConfig:
        """Return the settings of a rank in one of `networks`; None: in the usual one.

        Raises:
            InvalidSpec: there is no such network, or its address has gone since the start.
        """
        if network is None:
            return self
        networks = self.settings.networks
        if network not in networks:
            known = ", ".join(networks) or "none"
            raise InvalidSpec("network", network, f"one of this agent's, {known}")
        address = networks[network]
        return dataclasses.replace(self, address=address, interface=interface_of(None, address))

    @property
    def bundles(self) -> BundleFolder:
        """The bundles of scripts that were fetched."""
        return BundleFolder(self.settings.state_dir / "bundles")

    @property
    def trainer_uid(self) -> int | None:
        """The user id of trainers; None: that of the agent."""
        return None if self.trainer_user is None else self.trainer_user.uid

    @property
    def site(self) -> Site:
        """The facts for an emulator.

        Traffic to the broker is not shaped, even on a peer's machine.
        """
        return Site(
            state_dir=str(self.settings.state_dir),
            interface=self.interface,
            cpus=self.cpus,
            spared_ports=(urlsplit(self.settings.broker_url).port or DEFAULT_PORT,),
        )


def load_config(environ: Mapping[str, str], *, file: Path | None = None) -> AgentConfig:
    """Read the settings from the environment and, below it, a TOML file of the same names.

    Settings that are not given come from this machine: host name, addresses, interfaces, affinity.

    Raises:
        InvalidSpec: the file is not TOML, or a value does not fit this machine.
    """
    settings = _read(environ, file)
    check_broker_url(settings.broker_url, may_be_plain=settings.plaintext.broker)
    address = settings.advertise_address or address_towards(settings.broker_url)
    if not settings.heartbeat_s < settings.lease_s / 2:
        expected = f"less than {settings.lease_s / 2:g} s"
        raise InvalidSpec("AGENT_HEARTBEAT_S", settings.heartbeat_s, expected)
    cpus = own_cpus(settings.cpus)
    cores = ",".join(map(str, cpus))
    user = _trainer_user(settings)
    is_warm = settings.trainer is None and settings.warm_trainers
    agent_id = settings.agent_id or _host_name()
    interface = interface_of(settings.interface, address)
    _check_networks(settings.networks)
    return AgentConfig(
        settings=settings,
        agent_id=agent_id,
        address=address,
        interface=interface,
        open_ports_reason=_open_ports_reason(settings.closes_ports),
        cpus=cpus,
        gpus=own_gpus(open_nvml(), settings.gpus, visible=environ.get("CUDA_VISIBLE_DEVICES")),
        cloud=_cloud(settings.cloud),
        trainer=settings.trainer or OWN_TRAINER,
        trainer_user=user,
        trainer_limits=_trainer_limits(settings, is_alone=user is not None),
        template=(sys.executable, "-P", "-m", "farm.trainers.processes.template", cores)
        if is_warm
        else None,
        models=ModelFolder(path=_resolved(settings.model_dir), allowed=settings.models),
        scripts=ModelFolder(
            path=_resolved(settings.script_dir),
            allowed=frozenset(() if settings.scripts == "NONE" else {ANY}),
        ),
        runs_bundles=_runs_bundles(settings, user, is_embedded=EMBEDDED_MARK in environ),
        key=_key(settings),
    )


def load_state_dir(environ: Mapping[str, str], *, file: Path | None = None) -> Path:
    """Read AGENT_STATE_DIR alone, which needs neither a broker nor a network.

    Raises:
        InvalidSpec: the file is not TOML, or a setting has no sense.
    """
    return _read(environ, file).state_dir


def _read(environ: Mapping[str, str], file: Path | None) -> AgentSettings:
    return read_settings(AgentSettings, environ, file=read_file(file) if file else {})


def _key(settings: AgentSettings) -> AgentKey | None:
    """Return the key that messages are signed with; beyond this machine there has to be one."""
    if settings.key is not None:
        return read_key(settings.key.strip())
    if (file := settings.key_file) is not None:
        try:
            return read_key(Path(file).read_text().strip(), name="AGENT_KEY_FILE")
        except (OSError, ValueError) as error:
            expected = f"a file with this agent's key ({error})"
            raise InvalidSpec("AGENT_KEY_FILE", file, expected) from None
    if is_local_broker(settings.broker_url):
        return None
    expected = (
        f"this agent's key, since the broker {redact(settings.broker_url)} is beyond this machine: "
        "`farm agent add NAME` on the server prints it"
    )
    raise InvalidSpec("AGENT_KEY", None, expected)


def _cloud(setting: str) -> str | None:
    if setting == "NEVER":
        return None
    return cloud_of(read_firmware) if setting == "AUTO" else setting.lower()


def _check_networks(networks: Mapping[str, str]) -> None:
    """Refuse an address that this machine does not have."""
    for name, address in networks.items():
        try:
            interface_of(None, address)
        except InvalidSpec:
            expected = "an address that an interface of this machine holds"
            raise InvalidSpec(f"AGENT_NETWORKS {name}", address, expected) from None


def _open_ports_reason(setting: str) -> str | None:
    """Return why a gang's ports stay open to everybody; None where they will be closed."""
    if setting == "NEVER":
        return "AGENT_CLOSES_PORTS is never"
    try:
        obstacle = find_obstacle()
    except NoAnswer as error:
        # To leave the ports open for the agent's life because nft was slow once would be wrong.
        raise Unreachable(
            f"AGENT_CLOSES_PORTS: {error}, so whether this agent can close its ports is not known: "
            "start it again, or set AGENT_CLOSES_PORTS=never"
        ) from None
    if setting == "ALWAYS" and obstacle is not None:
        raise InvalidSpec(
            "AGENT_CLOSES_PORTS",
            "always",
            f"CAP_NET_ADMIN, and a kernel with nftables ({obstacle})",
        )
    return obstacle


def _trainer_user(settings: AgentSettings) -> TrainerUser | None:
    """Return the user that trainers run as, after making the agent's directory private."""
    name = settings.trainer_user
    if name is None:
        return None
    program: tuple[str, ...] = (
        sys.executable,
        "-P",
        "-c",
        "import farm.trainers.processes.process",
    )
    if settings.trainer is not None:
        program = ("/bin/sh", "-c", 'command -v "$1"', "sh", settings.trainer[0])
    user = find_user(name, program=program)
    state_dir, data_dir = settings.state_dir, settings.data_dir
    if data_dir is not None and Path(data_dir).absolute().is_relative_to(state_dir):
        raise InvalidSpec(
            "FARM_DATA_DIR", data_dir, f"a folder outside of {state_dir}, which {name} cannot enter"
        )
    close_to_others(state_dir)
    return user


def _trainer_limits(settings: AgentSettings, *, is_alone: bool) -> TrainerLimits:
    """Return a trainer's limits.

    Processes are counted by user, so only a user of its own is limited.

    With a GPU, memory is limited only on request, since the memory that CUDA maps was never
    measured.
    """
    limits = settings.trainer_limits
    if limits.memory_bytes is None and not _NVIDIA.exists():
        limits = dataclasses.replace(limits, memory_bytes=psutil.virtual_memory().total)
    return limits if is_alone else dataclasses.replace(limits, process_count=None)


def _runs_bundles(settings: AgentSettings, user: TrainerUser | None, *, is_embedded: bool) -> bool:
    """Return whether submitted scripts may run; they need a user without privileges."""
    if settings.scripts != "SUBMITTED":
        return False
    if user is None and not is_embedded:
        expected = "AGENT_TRAINER_USER, as whom scripts of others run, beside it"
        raise InvalidSpec("AGENT_SCRIPTS", "submitted", expected)
    return True


def _resolved(folder: str | None) -> Path | None:
    return None if folder is None else Path(folder).expanduser().resolve()


def _host_name() -> str:
    name = socket.gethostname()
    try:
        return parse_agent_id(name)
    except ValueError as error:
        raise InvalidSpec("AGENT_ID", name, f"{error}; the host's name cannot be used") from None


def _trouble_with(path: Path, *, is_folder: bool = False) -> str | None:
    try:
        held = os.lstat(path)
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    return trouble_of(
        mode=held.st_mode, owner=held.st_uid, own_uid=os.geteuid(), is_folder=is_folder
    )

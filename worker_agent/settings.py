"""The settings of an agent: names, defaults, meanings and parsers."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from farm.broker.plaintext import Plaintext
from farm.configuration.model_files import ANY, is_file_name
from farm.configuration.scripts import PYTHON_NAME
from farm.errors import InvalidSpec
from farm.messages.agents import HEARTBEAT_S, check_agent_id
from farm.messages.trainer_lines import TrainerLimits
from farm.settings.declaration import folder, one_of, seconds, setting, whole_number
from farm.settings.shared import (
    broker_url_setting,
    data_dir_setting,
    lease_setting,
    log_format_setting,
    log_level_setting,
    plaintext_setting,
)
from farm.values.fields import SHORT_NAME
from worker_agent.machine.gpus import GpuShare
from worker_agent.trainer_process.environment import ANY_NAME, parse_names

_MIB = 2**20


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


def parse_gpus(text: str) -> tuple[str, ...] | GpuShare:
    """Read "0,2" or "GPU-1bd1c6a5,GPU-7d3e90a4", a share such as "2/4", or "none"."""
    if text.strip().lower() == "none":
        return ()
    if match := re.fullmatch(r"([1-9]\d{0,3})/([1-9]\d{0,3})", text.strip()):
        number, count = int(match[1]), int(match[2])
        if number > count:
            raise ValueError("a share such as 2/4, the second of four")
        return GpuShare(number, count)
    names = tuple(name.strip() for name in text.split(","))
    if not all(re.fullmatch(r"\d{1,3}|(GPU|MIG)-[0-9A-Za-z/-]{1,80}", name) for name in names):
        raise ValueError("numbers or UUIDs of GPUs such as 0,2 or GPU-1bd1c6a5, or none")
    return names


def parse_labels(text: str) -> dict[str, str]:
    """Read "instance_type=Standard_D2s_v3,zone=1"."""
    labels: dict[str, str] = {}
    for pair in text.split(","):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (key and equals and value) or key in labels:
            raise ValueError("pairs such as instance_type=Standard_D2s_v3,zone=1, each key once")
        labels[key] = value
    return labels


def parse_networks(text: str) -> dict[str, str]:
    """Read "ethernet=10.0.0.1,infiniband=10.1.0.1": names of networks, this machine's address."""
    networks = parse_labels(text)
    if not all(SHORT_NAME.fullmatch(name) for name in networks):
        raise ValueError("names of letters, digits, '.', '_' and '-', each with an address")
    return networks


def parse_script_variables(text: str) -> frozenset[str]:
    """Read "MY_MODE,LICENSE_FILE", or "*"."""
    return frozenset({ANY_NAME}) if text.strip() == ANY_NAME else parse_names(text)


def parse_pythons(text: str) -> dict[str, str]:
    """Read "hf=/opt/hf/bin/python": names of interpreters, and where they are."""
    pythons = parse_labels(text)
    for name, path in pythons.items():
        if not PYTHON_NAME.fullmatch(name) or not Path(path).is_absolute():
            raise ValueError("names, each with the absolute path of an interpreter")
        if not os.access(path, os.X_OK) or not Path(path).is_file():
            raise ValueError(f"programs that may be run, which {path} is not")
    return pythons


def parse_models(text: str) -> frozenset[str]:
    """Read "my_model.py,other.py", or "*"."""
    names = frozenset(name for part in text.split(",") if (name := part.strip()))
    if not names or not all(name == ANY or is_file_name(name) for name in names):
        raise ValueError("names such as my_model.py,other.py without a folder, or *")
    return names


def parse_limits(text: str) -> TrainerLimits:
    """Read "memory_mib=4096,processes=500"; what is not named is not limited here."""
    fields = {
        "memory_mib": ("memory_bytes", _MIB),
        "processes": ("process_count", 1),
        "open_files": ("open_file_count", 1),
        "file_mib": ("file_bytes", _MIB),
    }
    found = {}
    for name, value in parse_labels(text).items():
        if name not in fields or not re.fullmatch(r"[1-9][0-9]{0,11}", value):
            raise ValueError(f"pairs such as memory_mib=4096, of {', '.join(fields)}")
        field, unit = fields[name]
        found[field] = int(value) * unit
    return TrainerLimits(**found)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """The settings of an agent, in the order of docs/settings.md."""

    agent_id: str | None = setting(
        "AGENT_ID",
        meaning="The agent's unique name in the farm, up to 64 letters, digits, `.`, `_` or `-`. "
        "Default: the host's name.",
        parse=parse_agent_id,
    )
    key: str | None = setting(
        "AGENT_KEY",
        meaning="Key that [signs](security.md#keys) the agent's messages, from `farm agent add "
        "NAME` on the server. Needed if the broker is not on loopback.",
        parse=str,
        secret=True,
    )
    key_file: str | None = setting(
        "AGENT_KEY_FILE",
        meaning="A file that holds the key, instead of `AGENT_KEY`.",
        parse=str,
    )
    advertise_address: str | None = setting(
        "AGENT_ADVERTISE_ADDRESS",
        meaning="Where other ranks reach this machine. Default: the address that faces the broker.",
        parse=str,
    )
    interface: str | None = setting(
        "AGENT_INTERFACE",
        meaning="Interface whose bytes are counted. Default: that of the advertised address. "
        "Required behind address translation.",
        parse=str,
    )
    port_range: tuple[int, int] = setting(
        "AGENT_PORT_RANGE",
        default="20000-20999",
        meaning="Ports for trainers and probes, both ends included. Open them between the agents "
        "only.",
        parse=parse_port_range,
    )
    closes_ports: str = setting(
        "AGENT_CLOSES_PORTS",
        default="auto",
        meaning="Let only [a rank's peers](security.md#the-gangs-ports) reach its ports, by "
        "nftables. `auto`: if the agent may (CAP_NET_ADMIN and `nft`); `always`: do not start "
        "otherwise; `never`.",
        parse=one_of("AUTO", "ALWAYS", "NEVER"),
    )
    cpus: tuple[int, ...] | None = setting(
        "AGENT_CPUS",
        meaning="Cores for the trainers, such as `0-3,6`. Default: all that the agent may use. "
        "Agents of one machine must not share any.",
        parse=parse_cpus,
    )
    shares_cores: bool = setting(
        "AGENT_SHARES_CORES",
        default="false",
        meaning="`true`: ranks of one gang may share these cores, as [hosts of a lab](lab.md) do, "
        "if all of their agents say so. Attempts never share any.",
        parse=parse_switch,
    )
    gpus: tuple[str, ...] | GpuShare | None = setting(
        "AGENT_GPUS",
        meaning="[GPUs](gpu.md) for the trainers, by `nvidia-smi`'s numbers or UUIDs, such as "
        "`0,2` or `GPU-1bd1c6a5`; or `2/4`, the second of four equal shares; or `none`. Default: "
        "those of `CUDA_VISIBLE_DEVICES`, or all.",
        parse=parse_gpus,
    )
    networks: dict[str, str] = setting(
        "AGENT_NETWORKS",
        absent=dict,
        meaning='Further networks that a job may name (`network = "infiniband"` in a sweep), each '
        "with this machine's address in it, such as `ethernet=10.0.0.1,infiniband=10.1.0.1`.",
        parse=parse_networks,
    )
    labels: dict[str, str] = setting(
        "AGENT_LABELS",
        absent=dict,
        meaning="Labels that jobs may require, such as `instance_type=Standard_D2s_v3,zone=1`.",
        parse=parse_labels,
    )
    cloud: str = setting(
        "AGENT_CLOUD",
        default="auto",
        meaning="Which cloud's [metadata "
        "service](clouds/README.md#what-an-agent-finds-out-by-itself) gives the labels "
        "`instance_type`, `region` and `zone` that `AGENT_LABELS` does not: `auto`, if the "
        "firmware names a cloud; `azure`, `aws` or `gcp`, without that check; `never`. Delays a "
        "start by at most 1 s.",
        parse=one_of("AUTO", "AZURE", "AWS", "GCP", "NEVER"),
    )
    model_dir: str | None = setting(
        "AGENT_MODEL_DIR",
        meaning="Folder of [your own models](models.md#a-model-of-your-own), Python files. Only "
        "root and the agent's user may be able to write it.",
        parse=str,
    )
    models: frozenset[str] = setting(
        "AGENT_MODELS",
        absent=frozenset,
        meaning="Models in that folder that jobs may name, such as `my_model.py,other.py`; `*`: "
        "all that exist when the agent starts.",
        parse=parse_models,
    )
    scripts: str = setting(
        "AGENT_SCRIPTS",
        default="installed",
        meaning="Which [scripts of your own](scripts.md) jobs may name: `installed`, those in "
        "`AGENT_SCRIPT_DIR`; `submitted`, also those that come with a sweep, as "
        "`AGENT_TRAINER_USER`; `none`.",
        parse=one_of("NONE", "INSTALLED", "SUBMITTED"),
    )
    script_dir: str | None = setting(
        "AGENT_SCRIPT_DIR",
        meaning="Folder of training scripts, Python files. Only root and the agent's user may be "
        "able to write it.",
        parse=str,
    )
    script_variables: frozenset[str] = setting(
        "AGENT_SCRIPT_VARIABLES",
        absent=frozenset,
        meaning="Variables that a sweep may set for its script beside those of the frameworks "
        "(`OMP_*`, `NCCL_*`, `HF_*` and the like), such as `MY_MODE,LICENSE_FILE`; `*`: any.",
        parse=parse_script_variables,
    )
    pythons: dict[str, str] = setting(
        "AGENT_PYTHON_ENVIRONMENTS",
        absent=dict,
        meaning="Interpreters that scripts may ask for by name, such as "
        "`hf=/opt/hf/bin/python,jax=/opt/jax/bin/python`. Nothing of Benchfarm's has to be "
        "installed in them.",
        parse=parse_pythons,
    )
    state_dir: Path = setting(
        "AGENT_STATE_DIR",
        default="~/.local/state/benchfarm-agent",
        meaning="Spool and fencing token, on a disk that survives a restart. One folder for each "
        "agent.",
        parse=lambda text: folder(text).absolute(),
    )
    trainer: tuple[str, ...] | None = setting(
        "AGENT_TRAINER",
        meaning="The command that trains, for tests. Default: this Python's `-m farm.trainers`.",
        parse=parse_command,
    )
    trainer_user: str | None = setting(
        "AGENT_TRAINER_USER",
        meaning="User that [trainers run as](security.md#the-trainer), so that they cannot reach "
        "the agent's files or, if it closes ports, anybody but their gang. A different one for "
        "each agent of a machine. Default: the agent's own user.",
        parse=str,
    )
    trainer_limits: TrainerLimits = setting(
        "AGENT_TRAINER_LIMITS",
        default="processes=8192,open_files=65536,file_mib=65536",
        meaning="Limits of a trainer. `memory_mib` is the machine's memory by default, and "
        "unlimited beside a GPU. `processes` applies only with `AGENT_TRAINER_USER`.",
        parse=parse_limits,
    )
    trainer_environment: frozenset[str] = setting(
        "AGENT_TRAINER_ENVIRONMENT",
        absent=frozenset,
        meaning="Variables of the agent's environment that trainers get beside the [usual "
        "ones](security.md#the-trainer), such as `MY_LIBRARY_HOME,LICENSE_FILE`. None of the "
        "farm's own.",
        parse=parse_names,
    )
    warm_trainers: bool = setting(
        "AGENT_WARM_TRAINERS",
        default="true",
        meaning="Fork trainers from a process that has imported TensorFlow: jobs start in a "
        "fraction of the time, for [some 650 MB of memory](operations.md#warm-trainers). `false`, "
        "or `AGENT_TRAINER`: start each trainer cold.",
        parse=parse_switch,
    )
    heartbeat_s: float = setting(
        "AGENT_HEARTBEAT_S",
        default=f"{HEARTBEAT_S:g}",
        meaning="Interval of heartbeats; less than half of `FARM_LEASE_S`.",
        parse=seconds(0.1, 60),
    )
    progress_timeout_s: float = setting(
        "AGENT_PROGRESS_TIMEOUT_S",
        default="120",
        meaning="A trainer that is silent for this long is stalled, and killed.",
        parse=seconds(1, 86400),
    )
    spool_max_bytes: int = setting(
        "AGENT_SPOOL_MAX_BYTES",
        default="268435456",
        meaning="Size of unconfirmed reports on disk beyond which the agent takes no rank. "
        "Reports are never dropped.",
        parse=whole_number(4096, 2**40),
    )
    broker_url: str = broker_url_setting(
        "As on the server: URL of the Redis that carries commands and reports."
    )
    plaintext: Plaintext = plaintext_setting("As on the server; only `broker` applies.")
    data_dir: str | None = data_dir_setting(
        "As on the server: where trainers look for data sets first, and put downloads. Every agent "
        "has its own disk."
    )
    lease_s: float = lease_setting(
        "As on the server. A rank is killed when no heartbeat was confirmed for half of it."
    )
    log_level: str = log_level_setting()
    log_format: str = log_format_setting()

"""What an agent can be told, in its environment or its file: names, defaults and readers."""

from __future__ import annotations

import re
import shlex

from farm.core import plaintext
from farm.core.agents import check_agent_id
from farm.core.model_files import ANY, is_file_name
from farm.core.plaintext import parse_plaintext
from farm.core.settings import Setting, one_of, seconds, whole_number
from farm.core.spec import NETWORK_NAME
from farm.core.trainer_lines import TrainerLimits
from farm.errors import InvalidSpec
from worker_agent.trainer_environment import parse_names

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
    if not all(NETWORK_NAME.fullmatch(name) for name in networks):
        raise ValueError("names of letters, digits, '.', '_' and '-', each with an address")
    return networks


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
        name="AGENT_KEY",
        default=None,
        meaning="what its messages are signed with, from `farm agent add`; needed where the broker "
        "is not on loopback",
    ),
    Setting(
        name="AGENT_KEY_FILE",
        default=None,
        meaning="file that holds the key, instead of AGENT_KEY",
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
        name="AGENT_NETWORKS",
        default=None,
        meaning="networks that a job may name beside the usual one, each with this machine's "
        "address in it, such as ethernet=10.0.0.1,infiniband=10.1.0.1",
        parse=parse_networks,
    ),
    Setting(
        name="AGENT_PORT_RANGE",
        default="20000-20999",
        meaning="ports for trainers and probes, open between the agents",
        parse=parse_port_range,
    ),
    Setting(
        name="AGENT_CLOSES_PORTS",
        default="auto",
        meaning="let a rank's peers alone reach its ports, by nftables: auto, where this agent "
        "may; always, and do not start where it may not; never",
        parse=one_of("AUTO", "ALWAYS", "NEVER"),
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
        name="AGENT_CLOUD",
        default="auto",
        meaning="labels instance_type, region and zone by the cloud's metadata service, unless "
        "given: auto, where the firmware names a cloud; azure, aws or gcp; never",
        parse=one_of("AUTO", "AZURE", "AWS", "GCP", "NEVER"),
    ),
    Setting(
        name="AGENT_MODEL_DIR",
        default=None,
        meaning="folder of models that are Python files of this machine's operator, which nobody "
        "but root and the agent's user may write",
    ),
    Setting(
        name="AGENT_MODELS",
        default=None,
        meaning="which of them jobs may name, such as my_model.py,other.py; * for all of them",
        parse=parse_models,
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
        name="AGENT_TRAINER_USER",
        default=None,
        meaning="user of this machine that trainers run as, one for each agent; the agent's own "
        "unless given",
    ),
    Setting(
        name="AGENT_TRAINER_LIMITS",
        default="processes=8192,open_files=65536,file_mib=65536",
        meaning="the most that a trainer may use; memory_mib is the machine's memory unless given "
        "or beside a GPU",
        parse=parse_limits,
    ),
    Setting(
        name="AGENT_TRAINER_ENVIRONMENT",
        default=None,
        meaning="variables of this agent's environment that trainers get beside the usual ones, "
        "such as MY_LIBRARY_HOME,LICENSE_FILE",
        parse=parse_names,
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
        name=plaintext.NAME,
        default=None,
        meaning="as on the server; of an agent only its broker goes anywhere",
        parse=parse_plaintext,
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
    Setting(
        name="FARM_LOG_FORMAT",
        default="text",
        meaning="text, or json: an object a line, for programs that gather logs",
        parse=one_of("TEXT", "JSON"),
    ),
)

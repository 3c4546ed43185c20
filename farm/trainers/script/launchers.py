"""Environment variables in which a script's framework finds the other ranks.

They are the variables that the framework's own launcher sets: those of torchrun for PyTorch, which
Hugging Face, Lightning, Accelerate and DeepSpeed read as well, and TF_CONFIG for TensorFlow.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from farm.configuration.catalogue import GangShape, StrategyFacts, Traffic
from farm.configuration.scripts import LAUNCHERS
from farm.configuration.spec import TENSORFLOW_PACKAGES, WORKER
from farm.messages.trainer_lines import Assignment, GoLine

# As `_version_of`, for an interpreter that has nothing of ours.
_ASK_VERSION = """
import importlib.metadata, sys
for package in sys.argv[1:]:
    try:
        print(importlib.metadata.version(package))
        break
    except importlib.metadata.PackageNotFoundError:
        pass
"""
_VERSION_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptLauncher:
    """`packages`: of which the first that is installed tells the version of the framework."""

    facts: StrategyFacts
    packages: tuple[str, ...]
    own_environment: Callable[[Assignment, GoLine], dict[str, str]]

    def traffic(self, gang: GangShape, gradient_bytes: float) -> Traffic:
        """Return nothing as the least that is sent: how a script exchanges is its own affair."""
        del gang, gradient_bytes
        return Traffic(messages=0.0, bytes=0.0)

    def framework(self, python: str | None = None) -> str:
        """Return the framework and its version, without importing it.

        `python`: the interpreter in which it is looked for; None: this one.
        """
        version = (
            _version_of(self.packages) if python is None else _version_in(python, self.packages)
        )
        return self.facts.framework if version is None else f"{self.facts.framework} {version}"

    def environment(self, assignment: Assignment, go: GoLine) -> Mapping[str, str]:
        """Return the variables of the gang, for every framework and for this one."""
        addresses = go.cluster[WORKER]
        threads = str(len(assignment.cpus))
        return {
            "FARM_RANK": str(assignment.rank),
            "FARM_WORLD_SIZE": str(len(addresses)),
            "FARM_RANK_ADDRESSES": ",".join(addresses),
            "PYTHONUNBUFFERED": "1",  # so that who watches, or looks for a cause, misses nothing
            # Libraries would start a thread for each core of the machine, not of this rank.
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads),
            **self.own_environment(assignment, go),
        }


def _version_of(packages: Sequence[str]) -> str | None:
    """Return the version of the first of the packages that is installed."""
    for package in packages:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _version_in(python: str, packages: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(
            [python, "-c", _ASK_VERSION, *packages],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_VERSION_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _torch(assignment: Assignment, go: GoLine) -> dict[str, str]:
    host, _, port = go.cluster[WORKER][0].rpartition(":")
    rank, world_size = str(assignment.rank), str(len(go.cluster[WORKER]))
    each = assignment.job.ranks_per_agent
    node, node_count = str(assignment.rank // each), str(len(go.cluster[WORKER]) // each)
    return {
        "MASTER_ADDR": host.strip("[]"),
        "MASTER_PORT": port,
        "RANK": rank,
        "WORLD_SIZE": world_size,
        "LOCAL_RANK": str(assignment.local_rank),
        "LOCAL_WORLD_SIZE": str(each),
        "GROUP_RANK": node,
        "GROUP_WORLD_SIZE": node_count,
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world_size,
        "NODE_RANK": node,  # not torchrun's, but read by Lightning
        # Without the name of a run Lightning counts ranks by its devices and num_nodes, and
        # waits forever for those that nobody starts.
        "TORCHELASTIC_RUN_ID": "benchfarm",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        # Else gloo takes what the host's name stands for, which often is 127.0.1.1.
        "GLOO_SOCKET_IFNAME": assignment.interface,
        "NCCL_SOCKET_IFNAME": f"={assignment.interface}",  # not all that begin like it
    }


def _tensorflow(assignment: Assignment, go: GoLine) -> dict[str, str]:
    addresses = go.cluster[WORKER]
    if len(addresses) == 1:
        return {}
    task = {"type": WORKER, "index": assignment.rank}
    return {"TF_CONFIG": json.dumps({"cluster": {WORKER: list(addresses)}, "task": task})}


SCRIPT_LAUNCHERS = (
    ScriptLauncher(facts=LAUNCHERS["torch"], packages=("torch",), own_environment=_torch),
    ScriptLauncher(
        facts=LAUNCHERS["tensorflow"],
        packages=TENSORFLOW_PACKAGES,
        own_environment=_tensorflow,
    ),
    ScriptLauncher(facts=LAUNCHERS["none"], packages=(), own_environment=lambda _, __: {}),
)

"""Every kind of failure has its known places in the code, and a kind without one does not exist."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from farm.messages.trainer_lines import FailureKind

ROOT = Path(__file__).parents[3]

# Who says it: the trainer of itself, its agent of the trainer, or the server of the gang.
PRODUCERS = {
    FailureKind.OUT_OF_MEMORY: {
        "farm.trainers.failures",
        "worker_agent.rank.rank_end",
        "farm.importers.anwar2021",  # says it of the study's one cell without a time
    },
    FailureKind.NOT_A_NUMBER: {
        *("farm.trainers.loop.training", "farm.trainers.script.rank"),
    },
    FailureKind.DIVERGED: {"farm.trainers.loop.training"},
    FailureKind.TRAINER_RAISED: {
        *("farm.gang.rendezvous", "farm.gang.weights"),
        *(
            "farm.trainers.failures",
            "worker_agent.rank.rank_end",
            "farm.trainers.model_files.model_file",
        ),
        *("farm.trainers.torch.gang", "farm.trainers.rank", "worker_agent.rank.rank"),
        *("farm.trainers.torch.loader", "farm.trainers.tensorflow.loader"),
        *("farm.trainers.script.process", "farm.trainers.script.rank", "farm.gang.step_counts"),
    },
    FailureKind.TIME_LIMIT: {"worker_agent.rank.rank"},
    FailureKind.DATASET_MISSING: {"farm.trainers.failures"},
    FailureKind.MODEL_MISSING: {
        *("farm.trainers.model_files.model_file", "farm.trainers.script.rank"),
    },
    FailureKind.PEER_LOST: {
        "farm.trainers.failures",
        "farm.trainers.tensorflow.sessions.gang",
        "farm.trainers.tensorflow.gang",
        "farm.trainers.torch.gang",
        "worker_agent.rank.rank_end",
    },
    FailureKind.KILLED: {"worker_agent.rank.rank_end", "worker_agent.supervisor.supervisor"},
    FailureKind.STALLED: {"worker_agent.rank.rank", "farm.gang.rendezvous"},
    FailureKind.PORT_TAKEN: {"farm.trainers.failures", "farm.trainers.tensorflow.gang"},
    FailureKind.RENDEZVOUS: {
        "farm.trainers.processes.process",
        "worker_agent.rank.rank",
        "farm.gang.rendezvous",
    },
    FailureKind.AGENT_LOST: {
        "worker_agent.supervisor.supervisor",
        "farm.gang.rendezvous",
    },
    FailureKind.REFUSED: {
        *(
            "worker_agent.trainer_process.process",
            "worker_agent.rank.rank",
            "worker_agent.supervisor.supervisor",
        ),
        "farm.gang.rendezvous",
    },
    FailureKind.NETWORK: {"worker_agent.rank.rank", "farm.gang.rendezvous"},
    FailureKind.VERSIONS_DIFFER: {"farm.gang.rendezvous"},
    FailureKind.DISTURBED: {"farm.gang.rendezvous"},
    FailureKind.SENSELESS: {"farm.scheduler.advancing", "farm.store.reports.reports"},
}
# They only ask which kind it was.
READERS = {
    "farm.messages.trainer_lines",
    "farm.cli.operating.doctor_checks",
    "farm.store.health",
    "farm.store.queue.waiting",
    "farm.recommend.memory_limits",
    "web.api.metrics",
}


def produced(path: Path) -> Iterator[str]:
    """The kinds that a module names other than to compare with them."""
    source = path.read_text()
    if "FailureKind." not in source:
        return
    tree = ast.parse(source)
    compared = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for part in (node.left, *node.comparators)
    }
    for node in ast.walk(tree):
        is_kind = (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "FailureKind"
        )
        if is_kind and id(node) not in compared:
            assert isinstance(node, ast.Attribute)
            yield node.attr


def test_every_kind_of_failure_is_said_where_it_should_be_and_nowhere_else() -> None:
    found: dict[FailureKind, set[str]] = defaultdict(set)
    for package in ("farm", "worker_agent", "web"):
        for path in (ROOT / package).rglob("*.py"):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            if module not in READERS:
                for name in produced(path):
                    found[FailureKind[name]].add(module)
    assert found == PRODUCERS


def test_every_kind_of_failure_is_in_the_table() -> None:
    assert set(PRODUCERS) == set(FailureKind)

"""Every kind of failure has its known places in the code, and a kind without one does not exist."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from farm.core.trainer_lines import FailureKind

ROOT = Path(__file__).parents[2]

# Who says it: the trainer of itself, its agent of the trainer, or the server of the gang.
PRODUCERS = {
    FailureKind.OUT_OF_MEMORY: {
        "farm.trainers.failures",
        "worker_agent.verdict",
        "farm.importers.anwar2021",  # says it of the study's one cell without a time
    },
    FailureKind.NOT_A_NUMBER: {"farm.trainers.runner", "farm.trainers.loop"},
    FailureKind.DIVERGED: {"farm.trainers.runner"},
    FailureKind.TRAINER_RAISED: {
        *("farm.trainers.failures", "worker_agent.verdict", "farm.trainers.models.model_file"),
        *("farm.trainers.torch_gang", "farm.trainers.rank", "worker_agent.rank"),
    },
    FailureKind.TIME_LIMIT: {"worker_agent.rank"},
    FailureKind.DATASET_MISSING: {"farm.trainers.failures"},
    FailureKind.MODEL_MISSING: {"farm.trainers.models.model_file"},
    FailureKind.PEER_LOST: {
        "farm.trainers.failures",
        "farm.trainers.sessions.caller",
        "farm.trainers.sessions.runtime",
        "farm.trainers.sessions.serving",
        "farm.trainers.tensorflow_gang",
        "farm.trainers.torch_gang",
        "worker_agent.verdict",
    },
    FailureKind.KILLED: {"worker_agent.verdict", "worker_agent.supervisor"},
    FailureKind.STALLED: {"worker_agent.rank", "farm.core.rendezvous"},
    FailureKind.PORT_TAKEN: {"farm.trainers.failures", "farm.trainers.tensorflow_gang"},
    FailureKind.RENDEZVOUS: {"farm.trainers.process", "worker_agent.rank", "farm.core.rendezvous"},
    FailureKind.AGENT_LOST: {
        "worker_agent.former_life",
        "worker_agent.supervisor",
        "farm.core.rendezvous",
    },
    FailureKind.REFUSED: {
        *("worker_agent.process", "worker_agent.rank", "worker_agent.supervisor"),
        "farm.core.rendezvous",
    },
    FailureKind.NETWORK: {"worker_agent.rank", "farm.core.rendezvous"},
    FailureKind.VERSIONS_DIFFER: {"farm.core.rendezvous"},
    FailureKind.DISTURBED: {"farm.core.rendezvous"},
    FailureKind.SENSELESS: {"farm.scheduler.ends", "farm.store.barrier_reports"},
}
# They only ask which kind it was.
READERS = {
    "farm.core.trainer_lines",
    "farm.cli.examinations",
    "farm.store.health",
    "farm.store.waiting",
    "farm.recommend.answering.candidates",
    "farm.recommend.plans.grid",
    "web.farm.metrics",
}


def produced(path: Path) -> Iterator[str]:
    """The kinds that a module names other than to compare with them."""
    tree = ast.parse(path.read_text())
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

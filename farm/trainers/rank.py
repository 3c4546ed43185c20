"""One rank from its assignment to its result. Everything heavy is imported from here on."""

from __future__ import annotations

import json
import logging
import os
import time

from farm import registry
from farm.core.codec import from_json
from farm.core.trainer_lines import Assignment, GoLine, Ready
from farm.trainers.contracts import Seat
from farm.trainers.datasets.places import data_places
from farm.trainers.line import Line
from farm.trainers.loop import Training
from farm.trainers.process import Orders

logger = logging.getLogger(__name__)


def run_rank(assignment: Assignment, *, line: Line, orders: Orders) -> None:
    """Load, report ready, wait for go, train, report the result, and part from the peers.

    Raises:
        FarmError: a reason with a name. Whatever the framework raises passes through.
    """
    job = assignment.job
    model, dataset = registry.model(job.model), registry.dataset(job.dataset)
    strategy = registry.strategy(job.strategy)
    # First, since it needs no framework: an agent without the data says so within a second.
    data = dataset.load(data_places(assignment.data_dir, os.environ))
    begun_s = time.monotonic()
    framework = strategy.prepare(len(assignment.cpus))
    import_s = time.monotonic() - begun_s
    line.emit(Ready(import_s=import_s, framework=framework, dataset=data.source))

    go = from_json(GoLine, _json(orders.next_line(timeout_s=job.time_limit_s)))
    begun_s = time.monotonic()
    engine = strategy.build(
        Seat(
            job=job,
            rank=assignment.rank,
            role=assignment.role,
            go=go,
            model=model,
            dataset=dataset.facts,
            data=data,
            peer_timeout_s=assignment.peer_timeout_s,
        )
    )
    connect_s = time.monotonic() - begun_s
    training = Training(
        assignment,
        engine,
        line=line,
        examples_count=len(data.train.labels),
        connect_s=connect_s,
    )
    line.emit(training.run())
    engine.leave()


def _json(text: str) -> object:
    value: object = json.loads(text)
    return value

"""Rows as agents send them: running attempts in a store, and their samples as messages."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from farm.broker.sending import Sender
from farm.gang.lifecycle import AttemptState
from farm.messages.commands import Confirm
from farm.messages.envelope import seal
from farm.messages.reports import REPORT_NAMES, Sample, Samples
from farm.values.codec import to_json
from tests.factories import add_agent, add_attempt, add_job
from worker_agent.metrics.sampler import BATCH_TICKS
from worker_agent.spool.delivery import Delivery
from worker_agent.spool.spool import Spool


@dataclass(frozen=True, slots=True)
class AgentSeries:
    """An agent and the attempt whose only rank it runs."""

    agent_id: str
    token: int


@dataclass(frozen=True, slots=True)
class FilledBacklog:
    """What was published. `last_numbers`: spool generation to the number of its last report."""

    message_count: int
    last_numbers: dict[str, int]


def add_running_attempts(session: Session, *, agent_count: int) -> list[AgentSeries]:
    """Add agents, each at work on a job of its own."""
    series = []
    for number in range(agent_count):
        agent_id = add_agent(session, f"agent-{number}")
        token = add_attempt(session, add_job(session), [agent_id], state=AttemptState.RUNNING)
        series.append(AgentSeries(agent_id, token))
    return series


def publish_backlog(
    broker_url: str,
    series: Sequence[AgentSeries],
    *,
    spools: Path,
    tick_count: int,
    rng: random.Random,
) -> FilledBacklog:
    """Publish `tick_count` samples of each agent, in turns, as their deliveries would."""
    sender = Sender(broker_url)
    message_count = 0
    waiting = []
    for one in series:
        spool = Spool(spools / one.agent_id, max_bytes=2**40)
        fill(spool, one.token, tick_count=tick_count, rng=rng)
        waiting.append((spool, Delivery(spool, agent_id=one.agent_id)))
    last_numbers = {spool.generation: spool.last_number for spool, _ in waiting}
    while waiting:
        for entry in list(waiting):
            spool, delivery = entry
            batch = delivery.next_batch(now=0.0, server_is_silent=False)
            if batch is None:
                spool.close()
                waiting.remove(entry)
                continue
            sender.publish_reports(seal(batch))
            message_count += 1
            confirmed = Confirm(generation=spool.generation, number=batch.reports[-1].number)
            delivery.confirm(confirmed, now=0.0)
    sender.close()
    return FilledBacklog(message_count, last_numbers)


def fill(spool: Spool, token: int, *, tick_count: int, rng: random.Random) -> None:
    """Put samples into a spool as the agent's supervisor does."""
    for first in range(0, tick_count, BATCH_TICKS):
        ticks = range(first, min(first + BATCH_TICKS, tick_count))
        body = to_json(Samples(samples=tuple(make_sample(tick, rng) for tick in ticks)))
        spool.append(token, rank=0, kind=REPORT_NAMES[Samples], body=body)


def make_sample(tick: int, rng: random.Random) -> Sample:
    """Return a sample with every column that a machine without a GPU fills."""
    return Sample(
        tick=tick,
        machine_cpu_ratio=rng.random(),
        machine_steal_ratio=rng.random() / 100,
        cpu_ratio=rng.random(),
        memory_used_bytes=rng.randrange(2**34),
        resident_bytes=rng.randrange(2**32),
        net_rx_bytes_per_s=float(rng.randrange(10**9)),
        net_tx_bytes_per_s=float(rng.randrange(10**9)),
        disk_read_bytes_per_s=0.0,
        disk_write_bytes_per_s=float(rng.randrange(10**6)),
        disk_read_operations_per_s=0.0,
        disk_write_operations_per_s=float(rng.randrange(100)),
        swap_bytes_per_s=0.0,
        throttled_ratio=0.0,
    )

"""Measures the collector's processor time per message: stored alone, or with others.

While agents train, each sends a batch every 3 s, of three samples and three reports of step times,
and a heartbeat every 5 s. The same messages are stored and answered as the collector does it, on a
real PostgreSQL and through a real Redis: 50 of them in one transaction and with one exchange with
Redis, or, as the baseline, each by itself. Both take turns with a block of messages each. What is
counted is the processor time of this process, which does not change with what else the machine
does; Celery receiving the message is in neither, and together is paid once for all.
"""

from __future__ import annotations

import argparse
import datetime as dt
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.figures import BenchmarkFigure, run_benchmark, say
from benchmarks.pairs import alternating, paired_ratio
from benchmarks.server.ingest import postgres_database
from benchmarks.server.rows import AgentSeries, add_running_attempts, make_sample
from farm.broker.sending import Sender
from farm.collector.ingest import read_batch, read_beat, take_batches, take_beats
from farm.embedded.redis import start_redis
from farm.messages.agents import AgentState, BeatEcho, Heartbeat
from farm.messages.envelope import seal
from farm.messages.reports import REPORT_NAMES, Report, ReportBatch, ReportBody, Samples, StepTimes
from farm.messages.trainer_lines import StepKind
from farm.store.engine import make_engine, writing
from farm.store.schema import upgrade
from farm.values.codec import to_json
from tests.factories import agent_facts
from worker_agent.spool.delivery import GATHER_S

AGENT_COUNT = 50  # and as many messages together
PAIR_COUNT, QUICK_PAIR_COUNT = 12, 2
LIMIT_RATIO = 0.6
_LEASE = dt.timedelta(seconds=20)
_STEPS_A_SECOND = 10
_GATHERED_S = round(GATHER_S)

Take = Callable[[Sequence[object]], None]


def measure(given: argparse.Namespace) -> list[BenchmarkFigure]:
    """Measure reports and heartbeats, in pairs."""
    pair_count = QUICK_PAIR_COUNT if given.quick else PAIR_COUNT
    with (
        tempfile.TemporaryDirectory(prefix="farm-messages-") as folder,
        postgres_database() as url,
        start_redis(Path(folder) / "redis") as broker,
    ):
        engine = make_engine(url)
        upgrade(engine)
        with writing(engine) as session:
            series = add_running_attempts(session, agent_count=AGENT_COUNT)
        sender = Sender(broker.url)

        def reports(envelopes: Sequence[object]) -> None:
            batches = [read_batch(envelope) for envelope in envelopes]
            taken = take_batches(engine, batches, now=dt.datetime.now(dt.UTC))
            sender.send([(agent_id, confirm) for agent_id, confirm, _ in taken])

        def heartbeats(envelopes: Sequence[object]) -> None:
            now = dt.datetime.now(dt.UTC)
            beats = [read_beat(envelope) for envelope in envelopes]
            taken = take_beats(engine, beats, now=now, lease=_LEASE)
            sender.send([(agent_id, confirmed) for agent_id, confirmed, _ in taken])

        rng = random.Random(1)
        figures = []
        for name, take, make in (
            ("a batch of 3 s", reports, lambda n: [batch_of(s, n, rng) for s in series]),
            ("a heartbeat", heartbeats, lambda n: [beat_of(s, n) for s in series]),
        ):
            say(f"{name}: {pair_count} pairs of {AGENT_COUNT} messages")
            figures.append(_compared(name, take, make, pair_count=pair_count))
        sender.close()
        engine.dispose()
    return figures


def _compared(
    name: str, take: Take, make: Callable[[int], list[object]], *, pair_count: int
) -> BenchmarkFigure:
    together_s: list[float] = []
    alone_s: list[float] = []
    take(make(0))  # pays for connections and prepared statements
    for number, is_ours_first in enumerate(alternating(pair_count)):
        for is_ours in (is_ours_first, not is_ours_first):
            envelopes = make(1 + 2 * number + (is_ours is not is_ours_first))
            begun_s = time.process_time()
            for part in [envelopes] if is_ours else [[one] for one in envelopes]:
                take(part)
            times_s = together_s if is_ours else alone_s
            times_s.append((time.process_time() - begun_s) / len(envelopes))
    ratio = paired_ratio(together_s, alone_s)
    return BenchmarkFigure(
        name=f"CPU time of {name}",
        unit="s",
        ours=statistics.median(together_s),
        baseline=statistics.median(alone_s),
        against="each by itself",
        ratio=ratio.median,
        limit=f"ratio at most {LIMIT_RATIO:g}",
        reached=ratio.median <= LIMIT_RATIO,
        note=f"ratio {ratio.median:.3f}, 95 % interval {ratio.low:.3f} to {ratio.high:.3f}, "
        f"{ratio.pair_count} pairs",
    )


def batch_of(one: AgentSeries, number: int, rng: random.Random) -> object:
    """Return the batch `number` of an agent, from 0: as many seconds of samples and of steps."""
    first = _GATHERED_S * number
    bodies: list[ReportBody] = [
        Samples(samples=tuple(make_sample(first + i, rng) for i in range(_GATHERED_S))),
        *(_steps(first + i, rng) for i in range(_GATHERED_S)),
    ]
    reports = []
    for i, body in enumerate(bodies):
        fields = to_json(body)
        assert isinstance(fields, dict)
        kind = REPORT_NAMES[type(body)]
        at = 1 + len(bodies) * number + i
        reports.append(Report(number=at, token=one.token, rank=0, kind=kind, body=fields))
    batch = ReportBatch(agent_id=one.agent_id, generation="benchmark", reports=tuple(reports))
    return seal(batch)


def _steps(second: int, rng: random.Random) -> StepTimes:
    times_s = tuple(0.1 * rng.uniform(0.9, 1.1) for _ in range(_STEPS_A_SECOND))
    first = second * _STEPS_A_SECOND
    return StepTimes(kind=StepKind.TIMED, first_step=first, begun_s=float(second), times_s=times_s)


def beat_of(one: AgentSeries, number: int) -> object:
    """Return the sealed heartbeat number `number` of an agent that trains."""
    now_s = time.time()
    return seal(
        Heartbeat(
            agent_id=one.agent_id,
            boot_id=f"boot of {one.agent_id}",
            counter=number + 2,
            state=AgentState.BUSY,
            serving_token=one.token,
            highest_token=one.token,
            agent_time_s=now_s,
            echo=BeatEcho(server_time_s=now_s, elapsed_s=0.0),
            facts=agent_facts(),
        )
    )


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__, measure))

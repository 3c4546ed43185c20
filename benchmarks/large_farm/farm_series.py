"""Makes up samples and step times by SQL in PostgreSQL itself, and logs.

Ten million rows that came from here would take minutes on their way.
"""

from __future__ import annotations

import datetime as dt
import itertools
import struct
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from benchmarks.large_farm.farm_attempts import TrainedAttempt
from farm.gang.lifecycle import AttemptState
from farm.messages.reports import LogPart
from farm.store.engine import writing
from farm.store.maintenance.partitions import make_partitions
from farm.store.reports.logs import insert_log_parts

STEP_TIME_S = 0.25
_STEPS_A_CHUNK = 4  # trainers tell of their steps once a second
_RUNS_A_STATEMENT = 200
_LOG_PART_CHARACTERS, _LOG_PART_COUNT = 10_000, 70
# Values as a machine at work has them: a level for each rank, a slow wave, and noise.
_VALUES = {
    "machine_cpu_ratio": "0.7 + 0.2 * random()",
    "machine_steal_ratio": "0.001 * random()",
    "cpu_ratio": "0.6 + 0.1 * sin(tick / 300::float8) + 0.2 * random()",
    "memory_used_bytes": "4000000000 + 1000 * tick::bigint",
    "resident_bytes": "900000000 + 1000000 * rank + 100 * tick::bigint",
    "net_rx_bytes_per_s": "1e6 * (1 + 0.3 * sin(tick / 600::float8) + random())",
    "net_tx_bytes_per_s": "1e6 * (1 + 0.3 * cos(tick / 600::float8) + random())",
    "disk_read_bytes_per_s": "0",
    "disk_write_bytes_per_s": "1e4 * random()",
    "disk_read_operations_per_s": "0",
    "disk_write_operations_per_s": "3",
    "swap_bytes_per_s": "0",
    "throttled_ratio": "0",
}
_COLUMNS = ", ".join(("day", "attempt_id", "rank", "tick", *_VALUES))
_SAMPLES = f"""
    INSERT INTO samples ({_COLUMNS})
    SELECT run.day, run.token, rank, tick, {", ".join(_VALUES.values())}
    FROM unnest(
        CAST(:days AS date[]), CAST(:tokens AS bigint[]), CAST(:sizes AS int[]),
        CAST(:lengths AS int[])
    ) AS run (day, token, world_size, length)
    CROSS JOIN LATERAL generate_series(0, run.world_size - 1) AS rank
    CROSS JOIN LATERAL generate_series(0, run.length - 1) AS tick
"""
_CHUNKS = """
    INSERT INTO step_chunks
        (attempt_id, rank, first_step, kind, begun_s, step_count, median_s, p95_s, times)
    SELECT :token, rank, chunk * CAST(:steps AS int),
        CASE WHEN chunk < 2 THEN 'warmup' ELSE 'timed' END, chunk,
        CAST(:steps AS int), time.median_s, time.median_s * 1.05, time.packed
    FROM generate_series(0, CAST(:world_size AS int) - 1) AS rank
    CROSS JOIN generate_series(CAST(:first AS int), CAST(:last AS int)) AS chunk
    JOIN unnest(CAST(:medians AS float8[]), CAST(:packed AS bytea[]))
        WITH ORDINALITY AS time (median_s, packed, number)
        ON time.number = 1 + (chunk * 31 + rank) % CAST(:kinds AS int)
    ON CONFLICT DO NOTHING
"""
# What one second brings: a sample of every rank at work.
_TICK = f"""
    INSERT INTO samples ({_COLUMNS})
    SELECT day, attempt_id, rank, tick, {", ".join(_VALUES.values())}
    FROM (
        SELECT CAST(attempts.leased_at AT TIME ZONE 'UTC' AS date) AS day, ranks.attempt_id,
            ranks.rank,
            CAST(extract(epoch FROM :now - attempts.started_at) AS int) AS tick
        FROM attempts JOIN ranks ON ranks.attempt_id = attempts.id
        WHERE attempts.state = :running
    ) AS at_work
    ON CONFLICT DO NOTHING
"""


def add_series(
    engine: sa.Engine, runs: Sequence[TrainedAttempt], long_run: TrainedAttempt, *, today: dt.date
) -> None:
    """Write the samples of all runs and the step times of the long one; commits by itself."""
    every = [*runs, long_run]
    make_partitions(engine, today=today, others={run.leased_at.date() for run in every})
    middle = len(runs) // 2
    with ThreadPoolExecutor() as pool:
        parts = [
            pool.submit(_add_samples, engine, runs[:middle]),
            pool.submit(_add_samples, engine, runs[middle:]),
            pool.submit(_add_samples, engine, [long_run]),
            pool.submit(_add_steps, engine, long_run),
        ]
    for part in parts:
        part.result()


def add_tick(engine: sa.Engine, long_run: TrainedAttempt, *, second: int, now: dt.datetime) -> None:
    """Write what one second brings: samples of every rank at work, steps of the long run."""
    with writing(engine) as session:
        session.execute(sa.text(_TICK), {"now": now, "running": AttemptState.RUNNING.value})
        session.execute(sa.text(_CHUNKS), _chunks(long_run, second, second))


def _add_samples(engine: sa.Engine, runs: Sequence[TrainedAttempt]) -> None:
    for begin in range(0, len(runs), _RUNS_A_STATEMENT):
        part = runs[begin : begin + _RUNS_A_STATEMENT]
        with writing(engine) as session:
            session.execute(
                sa.text(_SAMPLES),
                {
                    "days": [run.leased_at.date() for run in part],
                    "tokens": [run.token for run in part],
                    "sizes": [run.world_size for run in part],
                    "lengths": [run.duration_s for run in part],
                },
            )


def _add_steps(engine: sa.Engine, run: TrainedAttempt) -> None:
    with writing(engine) as session:
        session.execute(sa.text(_CHUNKS), _chunks(run, 0, run.duration_s - 1))


def _chunks(run: TrainedAttempt, first: int, last: int) -> dict[str, Any]:
    """Return the parameters of the statement for the chunks of some seconds."""
    kinds = [_chunk(n) for n in range(97)]
    return {
        "token": run.token,
        "world_size": run.world_size,
        "first": first,
        "last": last,
        "steps": _STEPS_A_CHUNK,
        "kinds": len(kinds),
        "medians": [median_s for median_s, _ in kinds],
        "packed": [packed for _, packed in kinds],
    }


def _chunk(n: int) -> tuple[float, bytes]:
    """Return the median and the packed times of a chunk, of which one in 97 has a slow step."""
    slow_s = 0.3 if n == 0 else 0.0
    times_s = [STEP_TIME_S * (0.98 + 0.0004 * n) + slow_s * (i == 1) for i in range(_STEPS_A_CHUNK)]
    middle = sorted(times_s)[1:3]
    packed = zlib.compress(struct.pack(f"<{len(times_s)}d", *times_s))
    return sum(middle) / 2, packed


def write_logs(session: Session, run: TrainedAttempt) -> None:
    """Let the trainers of a run have written some ten thousand lines."""
    line = "epoch 17: loss 0.4711, accuracy 0.8472, 98 steps of 512 examples\n"
    text = line * (_LOG_PART_CHARACTERS // len(line))
    for rank, number in itertools.product(range(run.world_size), range(_LOG_PART_COUNT)):
        part = LogPart(first_character=number * len(text), text=text)
        insert_log_parts(session, token=run.token, rank=rank, parts=[part])

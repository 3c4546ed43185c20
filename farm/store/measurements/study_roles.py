"""What the processes of each role took of memory in a measured attempt: reads only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy.orm import Session

from farm.configuration.spec import ServerPlacement
from farm.measuring.measurement import OK, RankOutcome, window_samples
from farm.messages.reports import RankEnded, Sample
from farm.sampling.role_samples import resident_extra
from farm.statistics.means import mean
from farm.store.result_tables import MeasurementRow
from farm.store.series.role_series import SERVING, TRAINING
from farm.store.series.series import samples_by_rank
from farm.store.tables import Rank
from farm.values.codec import from_stored

_TRAINS, _SERVES = resident_extra(TRAINING), resident_extra(SERVING)


def memory_by_role(
    session: Session, row: MeasurementRow, ranks: Sequence[Rank]
) -> tuple[int | None, int | None]:
    """Return the memory in bytes of a process that trains, and of one that only serves.

    Of the timed seconds each process's largest; of those the largest that trains, as a measurement
    has it for whole ranks, and the mean over the servers. The second is None where nothing serves
    beside a rank that trains.
    """
    is_collocated = row.server_placement == ServerPlacement.COLLOCATED.value
    if row.status != OK or not row.server_count or not is_collocated or row.attempt_id is None:
        return row.resident_bytes, None
    samples = samples_by_rank(session, row.attempt_id, max_points=None)
    training: list[float] = []
    serving: list[float] = []
    for rank in ranks:
        timed = _timed(rank, samples.get(rank.rank, ()))
        # A rank without a server is one process, which is not told apart.
        training += _largest(s.extra.get(_TRAINS, s.resident_bytes) for s in timed)
        serving += _largest(s.extra.get(_SERVES) for s in timed)
    served = mean(serving)
    return (
        round(max(training)) if training else None,
        None if served is None else round(served),
    )


def _timed(rank: Rank, samples: Sequence[Sample]) -> Sequence[Sample]:
    ended = from_stored(RankEnded, rank.ended) if rank.ended else None
    if ended is None or ended.result is None:
        return samples
    return window_samples(
        RankOutcome(
            rank=rank.rank,
            result=ended.result,
            timed_begun_s=ended.timed_begun_s,
            samples=tuple(samples),
        )
    )


def _largest(values: Iterable[float | None]) -> list[float]:
    known = [value for value in values if value is not None]
    return [max(known)] if known else []

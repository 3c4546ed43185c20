"""Store and read the series of one rank."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from sqlalchemy.orm import Session

from farm.messages.reports import Sample, StepTimes
from farm.messages.trainer_lines import Epoch
from farm.store.series.samples import SampleSeries, insert_series
from farm.store.series.series import insert_chunks, insert_epochs, samples_by_rank


def insert_samples(
    session: Session, *, day: dt.date, token: int, rank: int, samples: Sequence[Sample]
) -> None:
    """Store samples of one rank; `day` is the UTC date at which the attempt was leased."""
    insert_series(session, [SampleSeries(day=day, token=token, rank=rank, samples=samples)])


def insert_steps(session: Session, *, token: int, rank: int, steps: StepTimes) -> None:
    """Store consecutive step times, compressed; a chunk without a step says nothing."""
    insert_chunks(session, [(token, rank, steps)])


def insert_epoch(session: Session, *, token: int, rank: int, epoch: Epoch) -> None:
    """Store one pass over the training set."""
    insert_epochs(session, [(token, rank, epoch)])


def samples_of(
    session: Session, token: int, *, rank: int, max_points: int | None = None
) -> list[Sample]:
    """Return one rank's samples by tick, thinned as in `samples_by_rank` if a limit is given."""
    return samples_by_rank(session, token, rank=rank, max_points=max_points).get(rank, [])

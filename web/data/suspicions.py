"""What is hard to believe of an origin's measurements, with the measurements. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from farm.recommend.cache.memory import Memory
from farm.recommend.doubts import doubts
from farm.store.measurements.measurements import measurements_of
from farm.store.result_tables import MeasurementRow

_MOST_SHOWN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A measurement that is hard to believe. It counts less, and stays."""

    row: MeasurementRow
    messages: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspects:
    """`is_preliminary`: models are being fitted, ask again. `lacking`: why some say nothing."""

    found: Sequence[Suspect]
    is_preliminary: bool
    lacking: Sequence[str]
    left_out_count: int


def suspects(session: Session, origin: str, memory: Memory) -> Suspects:
    """Return what the models of an origin doubt. Never waits for a fit.

    Raises:
        NotFound: there is no measurement of that origin.
    """
    found = doubts(session, origin=origin, memory=memory, may_wait=False)
    messages: dict[int, list[str]] = {}
    for doubt in found.doubts:
        messages.setdefault(doubt.measurement_id, []).append(doubt.message)
    rows = measurements_of(session, sorted(messages)[:_MOST_SHOWN])
    return Suspects(
        found=[Suspect(row=row, messages=tuple(messages[row.id])) for row in rows],
        is_preliminary=found.is_preliminary,
        lacking=found.lacking,
        left_out_count=max(0, len(messages) - _MOST_SHOWN),
    )

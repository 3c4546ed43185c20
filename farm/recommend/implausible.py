"""Lists an origin's implausible measurements, with reasons. Reads only."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from farm.recommend.cache.knowledge import RecommenderCache
from farm.recommend.service import Models, check_origin
from farm.store.measurements.known_axes import known_axes

MOST_WORKLOADS = 12  # each needs a fit of some seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A measurement and what speaks against it. Repetitions are judged each by itself."""

    measurement_id: int
    model: str | None
    dataset: str | None
    fingerprint: str | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubts:
    """`lacking`: workloads that cannot be judged, and why.

    `is_preliminary`: models are being fitted, so a later call returns more.
    """

    doubts: tuple[Doubt, ...]
    lacking: tuple[str, ...]
    is_preliminary: bool = False


def doubts(
    session: Session, *, origin: str, cache: RecommenderCache, may_wait: bool = True
) -> Doubts:
    """Return implausible measurements, by id. `may_wait`: see `Fits`.

    Raises:
        NotFound: there is no measurement of that origin.
    """
    workloads = known_axes(session, origin).workloads
    if not workloads:
        check_origin(session, origin)
    found: list[Doubt] = []
    lacking: list[str] = []
    is_preliminary = False
    for model, dataset in workloads[:MOST_WORKLOADS]:
        knowledge = cache.knowledge(session, origin=origin, model=model, dataset=dataset)
        models = Models(knowledge, cache, may_wait=may_wait)
        found += [
            Doubt(
                measurement_id=measurement_id,
                model=model,
                dataset=dataset,
                fingerprint=fingerprint,
                message=outlying.message,
            )
            for fingerprint, comparison in knowledge.comparisons.items()
            for outlying in comparison.outlying
            for measurement_id in outlying.set_aside_ids
        ]
        for fingerprint in knowledge.observed:
            fitted = models.of(fingerprint)
            found += [
                Doubt(
                    measurement_id=suspicion.measurement_id,
                    model=model,
                    dataset=dataset,
                    fingerprint=fingerprint,
                    message=suspicion.message,
                )
                for suspicion in (fitted.suspicions if fitted else ())
            ]
        is_preliminary |= any(one.is_awaited for one in models.used.values())
        workload = f"{model or 'no model'} on {dataset or 'no data set'}"
        lacking += [
            f"{workload}: {one.lacking_because}"
            for one in models.used.values()
            if one.lacking_because is not None
        ]
    left_out = len(workloads) - MOST_WORKLOADS
    if left_out > 0:
        lacking.append(f"{left_out} more: only {MOST_WORKLOADS} workloads are looked at")
    found.sort(key=lambda doubt: (doubt.measurement_id, doubt.message))
    return Doubts(
        doubts=tuple(found), lacking=tuple(dict.fromkeys(lacking)), is_preliminary=is_preliminary
    )

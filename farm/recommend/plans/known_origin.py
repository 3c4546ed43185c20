"""Reads the measurements and axes of an origin for a plan. Reads only."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from farm.errors import InvalidSpec, NotFound
from farm.recommend.observations import load
from farm.recommend.plans.planning import KnownMeasurements
from farm.recommend.service import FARM
from farm.text.display import short_fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOrigin:
    """`known`: of the first of the `fingerprints`. None among them: hardware that is not named."""

    known: KnownMeasurements
    fingerprints: tuple[str | None, ...]


def read_origin(
    session: Session,
    *,
    origin: str,
    model: str | None,
    dataset: str | None,
    fingerprint: str | None = None,
) -> KnownOrigin:
    """Read what is known of one kind of hardware: the one that was asked for, or measured most.

    `fingerprint`: the first characters are enough.

    Raises:
        NotFound: nothing of an imported origin is there.
        InvalidSpec: no kind of hardware begins with that fingerprint.
    """
    kinds = load(session, origin=origin, model=model, dataset=dataset)
    if not kinds and origin != FARM:
        raise NotFound(f"origin '{origin}': nothing of it is in this store; see `farm origins`")
    fitting = {
        key: kind for key, kind in kinds.items() if (key or "").startswith(fingerprint or "")
    }
    if not fitting:
        if fingerprint:
            shown = ", ".join(short_fingerprint(key or "none") for key in kinds) or "none"
            raise InvalidSpec("fingerprint", fingerprint, f"the beginning of one of {shown}")
        return KnownOrigin(known=KnownMeasurements(observations=()), fingerprints=())
    chosen = next(iter(fitting.values()))
    known = KnownMeasurements(
        observations=chosen.observations,
        failures=[(failure.configuration, failure.status) for failure in chosen.failures],
    )
    return KnownOrigin(known=known, fingerprints=tuple(fitting))

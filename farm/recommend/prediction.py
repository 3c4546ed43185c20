"""A predicted step time with its intervals, basis and evidence."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from farm.recommend.configuration import Configuration


class Basis(enum.Enum):
    """How a prediction relates to what was measured."""

    MEASURED = "measured"  # this very configuration was
    INTERPOLATED = "interpolated"  # it lies between measured ones on every axis
    EXTRAPOLATED = "extrapolated"  # it lies beyond them on one axis at least
    UNKNOWN = "unknown"  # nothing is said, and `unknown_because` says why


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The time of one synchronous step; all times are None where it is unknown.

    `low_s` to `high_s` is the 90 % prediction interval, `low80_s` to `high80_s` the 80 % one:
    where one more measurement of this configuration is expected to fall. `measurement_ids`: the
    repetitions of this configuration, or the nearest measurements that the value rests on.
    `speculative_because`: why the value is a guess, such as a world size far beyond those that were
    measured like this; None: measurements bear it out.
    """

    step_time_s: float | None
    low_s: float | None
    high_s: float | None
    low80_s: float | None
    high80_s: float | None
    basis: Basis
    measurement_ids: tuple[int, ...] = ()
    unknown_because: str | None = None
    speculative_because: str | None = None

    @classmethod
    def unknown(cls, because: str | None) -> Prediction:
        """Return the prediction that says nothing but why."""
        return cls(
            step_time_s=None,
            low_s=None,
            high_s=None,
            low80_s=None,
            high80_s=None,
            basis=Basis.UNKNOWN,
            unknown_because=because,
        )


class Suspicious(Protocol):
    """A measurement that is hard to believe, and why."""

    @property
    def measurement_id(self) -> int: ...

    @property
    def message(self) -> str: ...


class StepTimeModel(Protocol):
    """Fitted to all measurements of one origin and kind of hardware, and calibrated."""

    @property
    def suspicions(self) -> Sequence[Suspicious]: ...

    @property
    def predictor_name(self) -> str: ...

    def predict(self, configurations: Sequence[Configuration]) -> list[Prediction]:
        """Return a prediction for each, in order."""
        ...

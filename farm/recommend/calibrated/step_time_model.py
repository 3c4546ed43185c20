"""A calibrated predictor of step times that names the evidence of each prediction.

The width of an interval comes from errors that were held out in the same way as the question, see
`held_out` and `intervals`. All fits are made here once; answers are looked up.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.configuration.axes import AXES_BY_FIELD
from farm.recommend.calibrated.calibration import Calibration, calibrate
from farm.recommend.calibrated.held_out import refit_of
from farm.recommend.calibrated.intervals import MIN_REPETITIONS, Interval, distinct
from farm.recommend.calibrated.novelty import Beyond, Gap, GapAxis
from farm.recommend.calibrated.repetitions import (
    Repetitions,
    counted_once,
    weighted_median_s,
)
from farm.recommend.calibrated.suspicious import Suspicion, believed, find_suspicious
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.contracts import AIMS, Basis, Prediction
from farm.recommend.features import canonical
from farm.recommend.predictors import DEFAULT_PREDICTOR, PREDICTORS
from farm.recommend.predictors.contracts import FittedPredictor, PointEstimate, Predictor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NEAREST_COUNT = 5  # measurements that are named as what a prediction rests on
# Beyond its own curve, the time may do what nothing that was measured hints at: a link that fills
# up, a cache that is too small. Up to this far it has no room to.
_NEAR_DOUBLINGS = 0.25


def fit_step_time_model(
    observations: Sequence[Observation],
    *,
    predictor: Predictor | None = None,
    requested: Iterable[Configuration] | None = None,
) -> CalibratedModel:
    """Fit the predictor, or else the default one, and calibrate its intervals.

    `requested`: calibrate for questions like these alone, which is quicker; None: for all that the
    measurements have in them.
    """
    chosen = predictor or PREDICTORS[DEFAULT_PREDICTOR]
    once = counted_once(observations)
    fitted = chosen.fit(once)
    calibration = calibrate(once, chosen, fitted=fitted, requested=requested)
    suspicions = find_suspicious(once, calibration.held_out)
    model = CalibratedModel(
        predictor_name=chosen.name,
        fitted=refit_of(fitted, chosen)(believed(once, suspicions)) if suspicions else fitted,
        calibration=calibration,
        repetitions=Repetitions.of(observations),
        suspicions=tuple(suspicions),
    )
    # What a predictor computes for its first answers is then kept with the model.
    model.predict(list(calibration.cell_of))
    return model


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedModel:
    """A StepTimeModel; `farm.recommend.contracts` says what its answers mean."""

    predictor_name: str
    fitted: FittedPredictor
    calibration: Calibration
    repetitions: Repetitions
    suspicions: tuple[Suspicion, ...]

    def predict(
        self, configurations: Sequence[Configuration], *, is_constant: bool = False
    ) -> list[Prediction]:
        """Return a prediction for each, in order.

        `is_constant`: with intervals that are equally wide, in ln(time), for all questions that
        lack the same. That is what the others are compared with, and good for nothing else.
        """
        import numpy as np

        estimates = self.fitted.predict(configurations)
        answers: dict[int, Prediction] = {}
        groups: dict[frozenset[Gap], list[int]] = {}
        doubted_ids = {suspicion.measurement_id for suspicion in self.suspicions}
        for i, (configuration, estimate) in enumerate(zip(configurations, estimates, strict=True)):
            if canonical(configuration) in self.repetitions.observations:
                answers[i] = self._measured(configuration, estimate, doubted_ids)
            elif estimate.step_time_s is None:
                answers[i] = Prediction.unknown(estimate.unknown_because)
            else:
                groups.setdefault(self.calibration.space.gaps(configuration), []).append(i)
        for gaps, positions in groups.items():
            members = [configurations[i] for i in positions]
            places = self.calibration.neighbourhood.locate(members)
            log_scales = [estimates[i].log_scale for i in positions]
            widths = np.maximum(
                self.calibration.half_widths(
                    gaps, members, log_scales, places=places, is_constant=is_constant
                ),
                [self.repetitions.least_half_widths(c) for c in members],
            )
            unexampled = [gap for gap in gaps if self.calibration.conformal(gap) is None]
            is_together_exampled = len(gaps) < 2 or self.calibration.factors(gaps) is not None
            for i, width, ids in zip(positions, widths, self._nearest(places), strict=True):
                beyond = self.calibration.space.beyond(configurations[i])
                answers[i] = _between(
                    estimates[i],
                    gaps,
                    width,
                    ids,
                    speculative_because=why_speculative(
                        gaps, beyond, unexampled, is_together_exampled=is_together_exampled
                    ),
                )
        return [answers[i] for i in range(len(configurations))]

    def _nearest(self, places: NDArray[np.float64]) -> list[tuple[int, ...]]:
        """Return the ids of the measurements nearest to each place, counted in measured values."""
        import numpy as np

        known = self.calibration
        found = []
        for place in places:
            distances = np.sum((known.places - place) ** 2, axis=1)
            order = np.argsort(distances, kind="stable")[:_NEAREST_COUNT]
            found.append(tuple(sorted(known.observations[i].measurement_id for i in order)))
        return found

    def _measured(
        self, configuration: Configuration, estimate: PointEstimate, doubted_ids: Collection[int]
    ) -> Prediction:
        """Answer with the median of the repetitions.

        Where nothing says how much repetitions vary, the error of a prediction without them does,
        around their median and around what all measurements say. Where repetitions of other kinds
        alone say it, neither is believed to be the wider one.

        What is suspicious counts as all do: of two runs, nothing says for sure which one is wrong.
        """
        group = self.repetitions.observations[canonical(configuration)]
        value_s = weighted_median_s(group)
        times_s = distinct([o.step_time_s for o in group])
        reached_s = [value_s, *(times_s if len(times_s) < MIN_REPETITIONS else ())]
        doubted = sum(o.weight < 1 or o.measurement_id in doubted_ids for o in group)
        is_doubted = doubted >= len(group) / 2  # unless most are believed
        bounds: list[tuple[float, float]] = []
        half_widths = map(
            max,
            self.calibration.own_half_widths(configuration),
            self.repetitions.least_half_widths(configuration),
        )
        is_told = self.repetitions.tells(configuration)
        for aim_ratio, half_width in zip(AIMS, half_widths, strict=True):
            spread = self.repetitions.interval(configuration, aim_ratio=aim_ratio)
            intervals = [] if spread is None else [spread]
            if not is_told:
                intervals.append(Interval.around(value_s, half_width))
            if (not is_told or is_doubted) and estimate.step_time_s is not None:
                # The error of a prediction has the noise of one run. The next run differs from the
                # own one by that of both, but no further from what all together say of it, which
                # may be the truth as well.
                intervals.append(Interval.around(estimate.step_time_s, half_width))
            low_s = min(*reached_s, *(interval.low_s for interval in intervals))
            high_s = max(*reached_s, *(interval.high_s for interval in intervals))
            bounds.append((low_s, high_s))
        (low80_s, high80_s), (low_s, high_s) = bounds
        return Prediction(
            step_time_s=value_s,
            low_s=min(low_s, low80_s),
            high_s=max(high_s, high80_s),
            low80_s=low80_s,
            high80_s=high80_s,
            basis=Basis.MEASURED,
            measurement_ids=tuple(o.measurement_id for o in group),
        )


def _between(
    estimate: PointEstimate,
    gaps: Iterable[Gap],
    half_widths: NDArray[np.float64],
    measurement_ids: tuple[int, ...],
    *,
    speculative_because: str | None,
) -> Prediction:
    assert estimate.step_time_s is not None
    # The 90 % interval is never the narrower one, though both are estimated by themselves.
    half80, half90 = float(half_widths[0]), float(max(half_widths))
    is_inside = all(gap.is_between for gap in gaps)
    return Prediction(
        step_time_s=estimate.step_time_s,
        low_s=estimate.step_time_s * math.exp(-half90),
        high_s=estimate.step_time_s * math.exp(half90),
        low80_s=estimate.step_time_s * math.exp(-half80),
        high80_s=estimate.step_time_s * math.exp(half80),
        basis=Basis.INTERPOLATED if is_inside else Basis.EXTRAPOLATED,
        measurement_ids=measurement_ids,
        speculative_because=speculative_because,
    )


def why_speculative(
    gaps: Collection[Gap],
    beyond: Iterable[Beyond],
    unexampled: Collection[Gap],
    *,
    is_together_exampled: bool,
) -> str | None:
    """Say why a prediction with these gaps is speculative; None where it is not.

    It is where it lies further away than any measurement bears out.

    `unexampled`: the gaps of which no measurement could be held out as an example.
    `is_together_exampled`: whether one could be that had all the gaps at once.
    """
    if any(gap.axis == GapAxis.ALONE for gap in gaps):
        return "no single machine was measured"
    reasons = [
        why
        for one in sorted(beyond, key=lambda one: -one.doublings)
        if (why := _why_beyond(one)) is not None
    ]
    explained = {one.axis for one in beyond if _why_beyond(one) is not None}
    reasons += [
        f"no measurement could be held out to check {_checked(axis)}"
        for axis in dict.fromkeys(gap.axis for gap in sorted(unexampled, key=repr))
        if axis not in explained
    ]
    if not (reasons or is_together_exampled):
        several = " and ".join(_checked(gap.axis) for gap in sorted(gaps, key=repr))
        reasons.append(f"no measurement could be held out to check {several} at once")
    return "; ".join(reasons) or None


def _why_beyond(one: Beyond) -> str | None:
    name, value, edge = one.axis.name, _shown(one.axis, one.value), _shown(one.axis, one.edge)
    if one.own_count < 2:
        return f"{name} {value}: measured like this at {edge} only"
    if one.doublings <= _NEAR_DOUBLINGS:
        return None
    end = "largest" if one.value > one.edge else "smallest"
    return f"{name} {value}: beyond the {end} that was measured like this, {edge}"


def _checked(axis: GapAxis) -> str:
    return "a new combination of names" if axis == GapAxis.NAMES else f"a new {axis.name}"


def _shown(axis: GapAxis, value: float) -> str:
    if not axis.condition:
        return f"{value:.6g}"
    return AXES_BY_FIELD[axis.condition].text(None if math.isinf(value) else value)

"""Computes prediction intervals: from repetitions, or by split conformal prediction.

Split conformal prediction (Lei et al. 2018) of |ln(measured / predicted)|: of m errors held out in
the same way as the question, the half-width is the one of rank ceil((m + 1) aim). Before that, each
error is divided by the difficulty of its configuration, and the half-width is then multiplied by
the difficulty of the question. Otherwise intervals of easy configurations would be too wide. The
difficulty is:

    sqrt(s) x mean over the errors nearby of |error| / sqrt(s)

where s is the predictor's own uncertainty. Neither factor is trusted alone: there are few errors
nearby, and the predictor is too certain near the measurements that it was fitted to.

Errors that were held out together, such as those of one batch size, are correlated. An interval for
a new batch size therefore has its stated coverage on average over batch sizes, and may fail at one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.measuring.precision import LEAST_DEVIATION
from farm.recommend.contracts import AIMS
from farm.statistics import student_quantile

# With two, the spread itself is hardly known: the interval would be six times as wide as it.
MIN_REPETITIONS = 3
# Two runs of a training never agree like this: one value was copied, or rounded.
_EQUAL_RATIO = 1e-4
# A baseline may be printed twice, once as 0.2468 and once as 0.247. Of fewer digits than three it
# would prove nothing: 0.400 is a float without its zeros, and no copy of 0.401.
_LEAST_DIGITS, _MOST_DIGITS = 3, 12
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# How far an error tells of its surroundings, in steps from one measured value to the next.
_REACH = 0.6
# The errors of all together weigh as much as this many right at the place. Both were chosen on
# anwar2021 and graur2019, where half or twice as much makes the score of 80 % intervals at most 4 %
# worse.
_COMMON_COUNT = 0.7
# A place is held to be at most so much harder than all together: two estimates of doubt, both from
# few errors, can be multiplied to anything.
_MOST_HARDER = 3.0
# Errors below it are the rounding of what was printed; a place must not count as free of them.
_LEAST_ERROR = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    low_s: float
    high_s: float

    @classmethod
    def around(cls, time_s: float, half_width: float) -> Interval:
        """Return what lies that far, in ln(time), to each side."""
        return cls(low_s=time_s * math.exp(-half_width), high_s=time_s * math.exp(half_width))


def distinct(times_s: Sequence[float]) -> list[float]:
    """Return the distinct times, ascending.

    Benchmark tables print their baseline once for each network, perhaps with other digits, and
    times of few digits agree by rounding: no spread of 0 says how much a measurement varies.
    """
    found: list[float] = []
    for time_s in sorted(times_s):
        if not found or not _is_copy(found[-1], time_s):
            found.append(time_s)
    return found


def _is_copy(less: float, more: float) -> bool:
    """Whether two times are one value: equal, or one is the other with fewer digits."""
    if more <= less * (1 + _EQUAL_RATIO):
        return True
    digits = min(_digit_count(less), _digit_count(more))
    return digits >= _LEAST_DIGITS and f"{less:.{digits}g}" == f"{more:.{digits}g}"


def _digit_count(value: float) -> int:
    """Return how many significant digits tell the value."""
    mantissa = f"{value:.{_MOST_DIGITS - 1}e}".partition("e")[0]
    return max(1, len(mantissa.replace(".", "").rstrip("0")))


def prediction_interval(
    times_s: Sequence[float], *, coverage_ratio: float, least_deviation: float = LEAST_DEVIATION
) -> Interval | None:
    """Return the prediction interval of one more repetition; None with fewer than 3.

    Repetitions are the `distinct` times. `least_deviation`: of ln(time), if they differ by less.

    exp(m -+ t s sqrt(1 + 1/n)), with m and s the mean and standard deviation of ln(time) over n
    repetitions and t the quantile of Student's distribution with n - 1 degrees of freedom: exact
    if repetitions are independent and log-normal. The spread of the steps within a repetition is
    not used: it says nothing of how repetitions differ.
    """
    repetitions_s = distinct(times_s)
    n = len(repetitions_s)
    if n < MIN_REPETITIONS or repetitions_s[0] <= 0:
        return None
    logs = [math.log(time_s) for time_s in repetitions_s]
    mean, deviation = statistics.fmean(logs), max(statistics.stdev(logs), least_deviation)
    half = student_quantile((1 + coverage_ratio) / 2, n - 1) * deviation * math.sqrt(1 + 1 / n)
    return Interval.around(math.exp(mean), half)


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """What held-out errors of one kind there are: m of them.

    `places`: (m, dimensions). `cells`: (m,), equal where the configuration is. `sizes`: (m,), of
    ln(measured / predicted), without sign. `scales`: (m,), the predictor's own doubt. `weights`:
    (m,), how much each counts as an experiment, see `repetitions.experiment_weights`.
    """

    places: NDArray[np.float64]
    cells: NDArray[np.int64]
    sizes: NDArray[np.float64]
    scales: NDArray[np.float64]
    weights: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conformal:
    """The errors, and the factors and constant half-widths that reach each of `AIMS`."""

    errors: Errors
    factors: tuple[float, ...]
    constants: tuple[float, ...]

    @classmethod
    def of(cls, errors: Errors) -> Conformal:
        """Calibrate with at least one error."""
        import numpy as np

        sizes = np.maximum(errors.sizes, _LEAST_ERROR)
        apart = errors.cells[:, None] != errors.cells[None, :]
        hardness = _hardness(errors, errors.places, errors.scales, counted=apart)
        return cls(
            errors=errors,
            factors=tuple(quantile(sizes / hardness, errors.weights, aim) for aim in AIMS),
            constants=tuple(quantile(sizes, errors.weights, aim) for aim in AIMS),
        )

    def half_widths(
        self,
        places: NDArray[np.float64],
        scales: NDArray[np.float64],
        *,
        without_cell: int | None = None,
    ) -> NDArray[np.float64]:
        """Return them in ln(time) for k places and the doubt there: (k, len(AIMS)).

        `without_cell`: a configuration whose own errors do not say how hard the places are.
        """
        import numpy as np

        counted = None if without_cell is None else (self.errors.cells != without_cell)[None, :]
        hardness = _hardness(self.errors, places, scales, counted=counted)
        widths = hardness[:, None] * np.array(self.factors)
        most = _MOST_HARDER * np.array(self.constants)
        result: NDArray[np.float64] = np.minimum(widths, most)
        return result


def quantile(values: NDArray[np.float64], weights: NDArray[np.float64], aim: float) -> float:
    """Return the conformal quantile: the bound of one more value with the given probability.

    The smallest value that `aim` of the weight does not exceed, where the one more counts as
    infinite. `weights`: 1 for what nothing repeats, as for the one more. Where that would be the
    answer itself, since there are too few, the largest is stretched as Student's distribution with
    one degree of freedom per value would have it.
    """
    import numpy as np

    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) / (np.sum(weights) + 1)
    index = int(np.searchsorted(reached, aim - 1e-12))
    if index < len(values):
        return float(values[order[index]])
    degrees = max(1, round(float(np.sum(weights))))
    covered = float(reached[-1])
    stretch = student_quantile((1 + aim) / 2, degrees) / student_quantile(
        (1 + covered) / 2, degrees
    )
    return float(values[order[-1]]) * stretch


def _hardness(
    errors: Errors,
    places: NDArray[np.float64],
    scales: NDArray[np.float64],
    *,
    counted: NDArray[np.bool_] | None,
) -> NDArray[np.float64]:
    """Return how hard each of k places is: (k,). `counted`: (k, m), which errors may tell."""
    import numpy as np

    sizes = np.maximum(errors.sizes, _LEAST_ERROR) / np.sqrt(errors.scales)
    squares = np.sum((places[:, None, :] - errors.places[None, :, :]) ** 2, axis=2)
    near = errors.weights * np.exp(-squares / (2 * _REACH**2))
    if counted is not None:
        near = near * counted
    common = float(np.average(sizes, weights=errors.weights))
    mean = (near @ sizes + _COMMON_COUNT * common) / (np.sum(near, axis=1) + _COMMON_COUNT)
    hardness: NDArray[np.float64] = mean * np.sqrt(scales)
    return hardness

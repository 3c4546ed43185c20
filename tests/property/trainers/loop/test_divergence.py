"""What counts as a diverging training: never an ordinary one, always before it overflows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from farm.trainers.loop.training import (
    DIVERGENCE_FACTOR,
    DIVERGENCE_STEP_COUNT,
    SMALLEST_REFERENCE,
    DivergenceDetector,
)

FLOAT32_MAX = 3.4e38
FIRST = st.floats(min_value=0.0, max_value=20.0)  # ln(classes), and what weights happen to make


def step_of_alarm(losses: list[float]) -> int | None:
    watch = DivergenceDetector()
    return next((n for n, loss in enumerate(losses) if watch.diverges(loss)), None)


@given(
    first=FIRST, rest=st.lists(st.floats(min_value=0.0, max_value=DIVERGENCE_FACTOR), max_size=200)
)
def test_a_loss_below_a_thousand_times_an_untrained_one_is_never_an_alarm(
    first: float, rest: list[float]
) -> None:
    assert step_of_alarm([first, *rest]) is None


@given(
    first=FIRST,
    spike=st.lists(st.floats(min_value=1e5, max_value=1e30), max_size=DIVERGENCE_STEP_COUNT // 2),
    calm_count=st.integers(DIVERGENCE_STEP_COUNT, 60),
    spike_count=st.integers(1, 4),
)
def test_spikes_that_the_training_recovers_from_are_no_alarm(
    first: float, spike: list[float], calm_count: int, spike_count: int
) -> None:
    assert step_of_alarm([first, *([*spike, *[1.0] * calm_count] * spike_count)]) is None


@given(first=st.floats(min_value=0.1, max_value=20.0), growth=st.floats(1.05, 1000.0))
def test_a_loss_that_grows_without_end_is_an_alarm_while_it_is_still_finite(
    first: float, growth: float
) -> None:
    losses = [first]
    while losses[-1] * growth < FLOAT32_MAX:
        losses.append(losses[-1] * growth)
    step = step_of_alarm(losses)
    assert step is not None
    assert losses[step] > DIVERGENCE_FACTOR * max(first, SMALLEST_REFERENCE)


@given(
    first=FIRST,
    calm=st.lists(st.floats(min_value=0.0, max_value=100.0), max_size=100),
    level=st.floats(min_value=1e5, max_value=1e37),
)
def test_a_loss_that_stays_high_is_an_alarm_after_half_a_window(
    first: float, calm: list[float], level: float
) -> None:
    losses = [first, *calm, *[level] * DIVERGENCE_STEP_COUNT]
    assert step_of_alarm(losses) == 1 + len(calm) + DIVERGENCE_STEP_COUNT // 2


@given(losses=st.lists(st.floats(min_value=0.0, max_value=1e6), max_size=100))
def test_the_alarm_is_the_median_of_the_last_twenty(losses: list[float]) -> None:
    """Against the plain definition, with calm steps before the first."""
    limit = DIVERGENCE_FACTOR * max(losses[0] if losses else 0.0, SMALLEST_REFERENCE)
    padded = [0.0] * (DIVERGENCE_STEP_COUNT - 1) + losses
    expected = None
    for n in range(len(losses)):
        window = sorted(padded[n : n + DIVERGENCE_STEP_COUNT])
        if window[DIVERGENCE_STEP_COUNT // 2 - 1] > limit:  # the lower of the two in the middle
            expected = n
            break
    assert step_of_alarm(losses) == expected

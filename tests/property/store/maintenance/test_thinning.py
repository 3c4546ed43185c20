"""Thinned samples say the same as before, in fewer rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from farm.messages.reports import Sample
from farm.store.maintenance.prune import Stretch, thin

metrics = st.none() | st.floats(0, 1e9)
widths = st.integers(2, 60)


@st.composite
def series(draw: st.DrawFn) -> list[Stretch]:
    """Ticks with holes, as the agent reported them."""
    ticks = sorted(draw(st.sets(st.integers(0, 200), max_size=80)))
    return [
        Stretch(
            Sample(
                tick=tick,
                cpu_ratio=draw(metrics),
                resident_bytes=draw(st.none() | st.integers(0, 2**40)),
                extra=draw(st.dictionaries(st.sampled_from(["gpu0_ratio", "x"]), st.floats(0, 1))),
            )
        )
        for tick in ticks
    ]


@given(series(), widths)
def test_thinning_twice_changes_nothing_more(stretches: list[Stretch], width: int) -> None:
    once = thin(stretches, width=width)
    assert thin(once, width=width) == once
    assert len({s.sample.tick // width for s in once}) == len(once)


@given(series(), widths)
def test_every_tick_stays_covered_by_one_row_of_its_range(
    stretches: list[Stretch], width: int
) -> None:
    covered = [
        range(s.sample.tick - s.span_ticks + 1, s.sample.tick + 1)
        for s in thin(stretches, width=width)
    ]
    ticks = [tick for ticks in covered for tick in ticks]
    assert len(ticks) == len(set(ticks))
    assert {s.sample.tick for s in stretches} <= set(ticks)
    assert all(ticks.start // width == ticks[-1] // width for ticks in covered)


@given(series(), widths)
def test_a_joined_metric_is_the_mean_of_what_was_measured_and_memory_the_peak(
    stretches: list[Stretch], width: int
) -> None:
    for joined in thin(stretches, width=width):
        group = [
            s.sample for s in stretches if s.sample.tick // width == joined.sample.tick // width
        ]
        ratios = [s.cpu_ratio for s in group if s.cpu_ratio is not None]
        if ratios:
            assert joined.sample.cpu_ratio is not None
            mean = sum(ratios) / len(ratios)
            assert abs(joined.sample.cpu_ratio - mean) <= 1e-9 * max(1.0, mean)
        else:
            assert joined.sample.cpu_ratio is None
        peaks = [s.resident_bytes for s in group if s.resident_bytes is not None]
        assert joined.sample.resident_bytes == max(peaks, default=None)
        assert set(joined.sample.extra) == {name for s in group for name in s.extra}


@given(st.lists(st.floats(0, 1), min_size=60, max_size=60))
def test_thinning_in_two_goes_keeps_the_mean(ratios: list[float]) -> None:
    stretches = [Stretch(Sample(tick=t, cpu_ratio=ratio)) for t, ratio in enumerate(ratios)]
    [whole] = thin(thin(stretches, width=10), width=60)
    assert whole.span_ticks == 60
    assert whole.sample.cpu_ratio is not None
    assert abs(whole.sample.cpu_ratio - sum(ratios) / 60) < 1e-9

"""How the staleness of updates is shown."""

from __future__ import annotations

import pytest

from web.job.step_profile import staleness_bars


def test_shares_are_of_all_updates() -> None:
    bars = staleness_bars({"staleness_counts": [6, 0, 2]})
    assert [(bar.staleness, bar.update_count, bar.ratio) for bar in bars] == [
        (0, 6, 0.75),
        (1, 0, 0.0),
        (2, 2, 0.25),
    ]
    assert not any(bar.is_or_more for bar in bars)


def test_a_long_tail_is_one_bar() -> None:
    bars = staleness_bars({"staleness_counts": [1] * 100})
    assert len(bars) == 20
    assert (bars[-1].staleness, bars[-1].is_or_more, bars[-1].update_count) == (19, True, 81)
    assert sum(bar.ratio for bar in bars) == pytest.approx(1.0)


@pytest.mark.parametrize("details", [{}, {"staleness_counts": []}, {"staleness_counts": [0]}])
def test_without_updates_there_is_nothing_to_show(details: dict[str, object]) -> None:
    assert staleness_bars(details) == []

"""What machines cost that are rented by the hour."""

from __future__ import annotations

import pytest

from farm.measuring.machine_time import cost_usd, machine_count


@pytest.mark.parametrize(
    ("placement", "machines"), [("collocated", 3), ("apart", 5), (None, 5)], ids=str
)
def test_servers_beside_ranks_need_no_machine_of_their_own(
    placement: str | None, machines: int
) -> None:
    assert machine_count(3, 2, placement) == machines


def test_machines_are_paid_by_the_hour_and_nothing_is_known_without_a_price() -> None:
    assert cost_usd(3, 1800.0, 0.1) == pytest.approx(0.15)
    assert cost_usd(3, None, 0.1) is None
    assert cost_usd(3, 1800.0, None) is None

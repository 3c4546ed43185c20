from __future__ import annotations

import pytest

from farm.embedded.sites import share_cores
from farm.errors import InvalidSpec


def test_agents_get_disjoint_equal_cores_and_the_rest_stays_unused() -> None:
    assert share_cores([0, 1, 4, 5, 6], agents=2) == [(0, 1), (4, 5)]


@pytest.mark.parametrize("agents", [0, 3])
def test_more_agents_than_cores_are_refused_with_the_way_out(agents: int) -> None:
    with pytest.raises(InvalidSpec, match=r"--agents: expected 1 to 2, .* more machines"):
        share_cores([0, 1], agents=agents)

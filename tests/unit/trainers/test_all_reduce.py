from __future__ import annotations

import pytest

from farm.trainers.all_reduce import ring_all_reduce


@pytest.mark.parametrize(("world_size", "share"), [(1, 0.0), (2, 1.0), (4, 1.5)])
def test_the_rings_theory(world_size: int, share: float) -> None:
    assert ring_all_reduce(world_size, 400).bytes == 400 * share

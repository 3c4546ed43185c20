"""DiLoCo's outer step, without ranks."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
OuterOptimizer = pytest.importorskip("farm.trainers.torch.averaging").OuterOptimizer

MEANS = ([1.0, -2.0], [0.5, 0.25], [3.0, 0.0])


def test_with_a_rate_of_1_and_no_momentum_it_is_the_mean() -> None:
    weights = torch.tensor([0.5, 4.0], requires_grad=True)
    outer = OuterOptimizer([weights], learning_rate=1.0, momentum=0.0)
    for mean in MEANS:
        weights.detach().copy_(torch.tensor(mean))
        outer.step()
        assert weights.tolist() == pytest.approx(mean)


def test_a_part_of_the_way_leaves_the_rest() -> None:
    weights = torch.tensor([2.0])
    outer = OuterOptimizer([weights], learning_rate=0.5, momentum=0.0)
    weights.fill_(4.0)
    outer.step()
    assert weights.tolist() == [3.0]


def test_what_is_restored_goes_on_with_its_momentum() -> None:
    weights = torch.zeros(2)
    outer = OuterOptimizer([weights], learning_rate=0.7, momentum=0.9)
    initial = outer.save()
    found = []
    for state in (None, initial):
        if state is not None:
            outer.restore(state)
        for mean in MEANS:
            weights.copy_(torch.tensor(mean))
            outer.step()
        found.append(weights.tolist())
    assert found[0] == found[1]
    middle = outer.save()
    weights.fill_(1.0)
    outer.step()
    once = weights.tolist()
    outer.restore(middle)
    weights.fill_(1.0)
    outer.step()
    assert weights.tolist() == once

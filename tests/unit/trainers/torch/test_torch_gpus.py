"""Which GPUs the ranks of a gang of PyTorch may have."""

from __future__ import annotations

import pytest

gpu_problem = pytest.importorskip("farm.trainers.torch.gang").gpu_problem


@pytest.mark.parametrize("gpus", [("", ""), ("GPU-a", "GPU-b"), ("GPU-a",)])
def test_a_gpu_each_or_none_at_all_can_train_together(gpus: tuple[str, ...]) -> None:
    assert gpu_problem(gpus) is None


def test_two_ranks_on_one_gpu_are_named_with_it_and_what_to_do() -> None:
    problem = gpu_problem(("GPU-a", "GPU-b", "GPU-a"))
    assert problem is not None
    assert problem.startswith("ranks 0 and 2 share the GPU GPU-a: give each agent a GPU")
    assert 'placement = "hard"' in problem


def test_a_gang_half_on_gpus_is_refused() -> None:
    problem = gpu_problem(("", "GPU-a"))
    assert problem is not None
    assert problem.startswith("rank 1 has a GPU and rank 0 has none: ")

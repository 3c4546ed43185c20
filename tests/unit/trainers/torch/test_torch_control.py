"""The control run of a device, here of the processor."""

from __future__ import annotations

import pytest
import torch

from farm.trainers.torch.gpu_control_run import control_round_s, device_control_s
from tests.factories import job_spec

CPU = torch.device("cpu")


def round_s(*, side: int = 16, copy_bytes: int = 64) -> float:
    return control_round_s(CPU, side=side, copy_bytes=copy_bytes)


@pytest.mark.parametrize("larger", [{"side": 1024}, {"copy_bytes": 2**26}])
def test_a_round_takes_longer_with_a_larger_product_and_with_a_larger_copy(
    larger: dict[str, int],
) -> None:
    assert round_s(**larger) > 2 * round_s() > 0


def test_it_leaves_generators_of_random_numbers_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    control_round_s(CPU, dtype=torch.bfloat16, side=16, copy_bytes=64)
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_rank_on_processors_does_none() -> None:
    assert device_control_s(job_spec(strategy="torch_ddp")) is None

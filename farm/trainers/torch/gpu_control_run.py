"""Measures a GPU's speed by a fixed computation, to compare it with other GPUs.

Half of it is a matrix product and half a copy to the GPU and back. A rank runs it while it waits
for *go*. The agent's own control run does not measure GPUs.
"""

from __future__ import annotations

import statistics
import time

import torch

from farm.configuration.axes import spec_values
from farm.configuration.spec import ComputePrecision, JobSpec
from farm.trainers.torch.engine import choose_device

# Some milliseconds each on a GPU of 2020.
_SIDE = 4096
_COPY_BYTES = 64 * 2**20
_LENGTH_S = 0.25
# A median of five stands two rounds that were interrupted.
_LEAST_ROUNDS = 5
_MOST_S = 5.0


def device_control_s(job: JobSpec) -> float | None:
    """Return the time of a round on the GPU of this rank, in seconds; None where it has none."""
    device = choose_device()
    if device.type == "cpu":
        return None
    is_half = spec_values(job)["precision"] == ComputePrecision.BFLOAT16.value
    round_s = control_round_s(device, dtype=torch.bfloat16 if is_half else torch.float32)
    torch.cuda.empty_cache()
    return round_s


def control_round_s(
    device: torch.device,
    *,
    dtype: torch.dtype = torch.float32,
    side: int = _SIDE,
    copy_bytes: int = _COPY_BYTES,
) -> float:
    """Return the median time of a round, in seconds: a product of matrices (side, side), a copy.

    It takes a quarter of a second, or five rounds, and 5 s at the most. It leaves generators of
    random numbers alone.
    """
    matrix = torch.full((side, side), 0.5, dtype=dtype, device=device)
    product = torch.empty_like(matrix)
    source = torch.ones(copy_bytes, dtype=torch.uint8)

    def work() -> float:
        begun_s = time.perf_counter()
        torch.mm(matrix, matrix, out=product)
        source.to(device, copy=True).to("cpu", copy=True)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - begun_s

    work()  # which sets up what the first product alone needs
    begun_s = time.perf_counter()
    times_s = [work()]
    while (passed_s := time.perf_counter() - begun_s) < _MOST_S and (
        passed_s < _LENGTH_S or len(times_s) < _LEAST_ROUNDS
    ):
        times_s.append(work())
    return statistics.median(times_s)

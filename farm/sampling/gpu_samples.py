"""Names of the samples that are taken of each GPU."""

from __future__ import annotations

from collections.abc import Mapping

MOST_GPUS = 16  # of an agent that are sampled
# Why a GPU's clocks are lower than they could be: 1 at a second at which that is so, else 0.
POWER_CAPPED = "power_capped_ratio"
HEAT_SLOWDOWN = "heat_slowdown_ratio"
HARDWARE_SLOWDOWN = "hardware_slowdown_ratio"
# Processes that compute on it and are no trainer's.
FOREIGN_PROCESSES = "foreign_process_count"
ECC_CORRECTED = "ecc_corrected_errors_per_s"
ECC_UNCORRECTED = "ecc_uncorrected_errors_per_s"


def gpu_extra(place: int, name: str) -> str:
    """Name a value of the GPU at that place among the agent's, such as gpu0_ratio."""
    return f"gpu{place}_{name}"


def highest_of_gpus(extra: Mapping[str, float], *names: str) -> float | None:
    """Return the highest of these values of all GPUs in a sample; None: there is none."""
    keys = (gpu_extra(place, name) for place in range(MOST_GPUS) for name in names)
    return max((extra[key] for key in keys if key in extra), default=None)

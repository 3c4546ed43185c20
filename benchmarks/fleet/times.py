"""Quantiles, and the processor time that simulated agents themselves take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of them does not exceed; the nearest one above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def cores(lines: Sequence[dict[str, Any]]) -> float:
    """Return the processor seconds a second of all processes of a fleet, from what they told."""
    total = 0.0
    for number in {line["process"] for line in lines}:
        own = [line for line in lines if line["process"] == number]
        span_s = own[-1]["at_s"] - own[0]["at_s"]
        if span_s > 0:
            total += (own[-1]["cpu_s"] - own[0]["cpu_s"]) / span_s
    return total

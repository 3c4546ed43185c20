"""What is said of a cell that was measured in two sweeps."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from farm.cells.comparison import Verdict, compare_sweeps
from farm.measuring.noise import Disturbance, NoiseKind
from tests.stored.sweep_cells import cell, table

BASE = (0.100, 0.101, 0.099)


@pytest.mark.parametrize(
    ("times_s", "changes", "verdict"),
    [
        ((0.120, 0.121, 0.119), {}, Verdict.SLOWER),
        ((0.080, 0.081, 0.079), {}, Verdict.FASTER),
        ((0.101, 0.099, 0.102), {}, Verdict.WITHIN_NOISE),
        ((0.120, 0.121), {}, Verdict.FEW_REPETITIONS),
        ((), {}, Verdict.NOT_MEASURED),
        ((0.120, 0.121, 0.119), {"fingerprint": "another"}, Verdict.OTHER_HARDWARE),
    ],
)
def test_a_change_is_said_as_far_as_the_evidence_goes(
    times_s: tuple[float, ...], changes: dict[str, Any], verdict: Verdict
) -> None:
    [pair] = compare_sweeps(table(cell(*BASE)), table(cell(*times_s, **changes))).pairs
    assert pair.change() is verdict


def test_disturbed_repetitions_judge_nothing_unless_they_were_set_aside() -> None:
    disturbed = (Disturbance(kinds=(NoiseKind.STEAL,)),)
    slow = (0.120, 0.121, 0.119)
    [pair] = compare_sweeps(
        table(cell(*BASE)), table(dataclasses.replace(cell(*slow), disturbed=disturbed))
    ).pairs
    assert pair.change() is Verdict.DISTURBED
    aside = dataclasses.replace(cell(*slow), disturbed=disturbed, set_aside_count=1)
    [pair] = compare_sweeps(table(cell(*BASE)), table(aside)).pairs
    assert pair.change() is Verdict.SLOWER


@pytest.mark.parametrize(("tolerance", "verdict"), [(0.1, "slower"), (0.25, "within noise")])
def test_what_is_slower_by_less_than_the_tolerance_is_not_slower(
    tolerance: float, verdict: str
) -> None:
    [pair] = compare_sweeps(table(cell(*BASE)), table(cell(0.120, 0.121, 0.119))).pairs
    assert pair.change(tolerance_ratio=tolerance).value == verdict

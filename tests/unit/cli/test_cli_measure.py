"""What `farm measure` warns of."""

from __future__ import annotations

import pytest

from farm.cli.start.measure import warnings_of
from farm.store.result_tables import MeasurementRow


@pytest.mark.parametrize(
    ("world_size", "sent", "warns"),
    [(2, 0.0, True), (2, 70_000.0, False), (2, None, False), (1, 0.0, False)],
)
def test_ranks_that_sent_each_other_nothing_trained_alone(
    world_size: int, sent: float | None, warns: bool
) -> None:
    measured = MeasurementRow(
        model="script:fit.py",
        world_size=world_size,
        global_batch_size=64,
        sent_bytes_per_step=sent,
    )
    expected = "2 ranks sent each other nothing, so each trained alone: script:fit.py"
    assert warnings_of([measured]) == ([expected] if warns else [])


@pytest.mark.parametrize(("told", "warns"), [(32.0, True), (64.1, False), (None, False)])
def test_a_script_that_trained_on_other_examples_is_named(told: float | None, warns: bool) -> None:
    measured = MeasurementRow(
        model="script:fit.py",
        world_size=2,
        global_batch_size=64,
        details={"quantities": {"examples_per_step": told}},
    )
    expected = "a step had 32 examples, and not 64: script:fit.py"
    assert warnings_of([measured]) == ([expected] if warns else [])

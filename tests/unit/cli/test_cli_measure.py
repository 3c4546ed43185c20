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
        model="script:fit.py", world_size=world_size, sent_bytes_per_step=sent
    )
    expected = "2 ranks sent each other nothing, so each trained alone: script:fit.py"
    assert warnings_of([measured]) == ([expected] if warns else [])

"""What can be asked to be seen of a sweep."""

from __future__ import annotations

import pickle

import pytest

from farm.cells.choice import CELL_METRICS, CellMetric


@pytest.mark.parametrize("metric", CELL_METRICS, ids=lambda metric: metric.name)
def test_a_figure_of_any_metric_can_be_drawn_in_another_process(metric: CellMetric) -> None:
    """Its axis goes along with what writes the values, so that must have a name."""
    assert pickle.loads(pickle.dumps(metric.write)) is metric.write

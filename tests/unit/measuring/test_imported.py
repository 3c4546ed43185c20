"""Imported measurements against the declarations of what is measured."""

import pytest

from farm.configuration.axes import AXES
from farm.measuring.imported import ImportedMeasurement, misfits
from farm.measuring.quantities import ADVISED, QUANTITIES, Quantity


def test_a_source_that_says_nothing_means_training_without_servers_on_an_untouched_network() -> (
    None
):
    read = ImportedMeasurement(source_key="a key", row_number=2, values={})
    known = {axis.name: read[axis.stored] for axis in AXES}
    assert {name: value for name, value in known.items() if value is not None} == {
        "pass": "forward_backward",
        "server_count": 0,
        "one_way_delay_ms": 0.0,
        "jitter_ms": 0.0,
        "packet_loss_percent": 0.0,
    }
    assert {read[quantity.name] for quantity in QUANTITIES} == {None}


@pytest.mark.parametrize(
    "quantity", [one for one in ADVISED if not one.is_whole], ids=lambda one: one.name
)
def test_a_value_beyond_the_range_of_its_quantity_is_impossible(quantity: Quantity) -> None:
    assert quantity.most is not None
    assert not misfits({quantity.name: quantity.least})
    assert not misfits({quantity.name: quantity.most})
    for value in (quantity.least - 1, quantity.most * 1.01):
        assert [misfit.column for misfit in misfits({quantity.name: value})] == [quantity.name]

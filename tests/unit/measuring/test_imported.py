"""Imported measurements against the declarations of what is measured."""

import dataclasses

import pytest

from farm.measuring.imported import ImportedMeasurement, misfits
from farm.measuring.quantities import ADVISED, BY_NAME, Quantity


def test_advised_quantities_are_the_fields_of_imported_measurements() -> None:
    fields = [field.name for field in dataclasses.fields(ImportedMeasurement)]
    assert [name for name in fields if name in BY_NAME] == [one.name for one in ADVISED]


@pytest.mark.parametrize(
    "quantity", [one for one in ADVISED if not one.is_whole], ids=lambda one: one.name
)
def test_a_value_beyond_the_range_of_its_quantity_is_impossible(quantity: Quantity) -> None:
    assert quantity.most is not None
    assert not misfits({quantity.name: quantity.least})
    assert not misfits({quantity.name: quantity.most})
    for value in (quantity.least - 1, quantity.most * 1.01):
        assert [misfit.column for misfit in misfits({quantity.name: value})] == [quantity.name]

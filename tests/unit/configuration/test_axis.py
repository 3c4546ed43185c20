"""Tests of what a declaration of an axis gives, and which declarations are refused."""

from __future__ import annotations

from typing import Any

import pytest

from farm.configuration.axis import Axis, AxisKind
from farm.configuration.spec import Device
from farm.errors import InvalidSpec
from farm.values.fields import Amount, Boolean, Name, OneOf, WholeNumber, Word

MS = Amount(unit="ms", noun="number of milliseconds", per_base=1000, low=0, high=1000)


def declared(**changes: Any) -> Axis:
    values: dict[str, Any] = {
        "name": "pause",
        "kind": AxisKind.SETUP,
        "title": "Pause",
        "meaning": "a test",
    }
    return Axis(**(values | changes))


@pytest.mark.parametrize(
    ("kind", "value", "address", "text"),
    [
        (WholeNumber(0, 999), 100, "100", "100"),
        (MS, 0.0025, "2.5", "2.5 ms"),
        (Name(), "some", "some", "some"),
        (Word(("a", "b")), "b", "b", "b"),
        (OneOf(Device), "gpu", "gpu", "gpu"),
        (Boolean(), False, "false", "no"),
        (MS, None, "any", "any"),
        (Amount(unit="V", noun="voltage", low=-9, high=9), -1.5, "-1.5", "-1.5 V"),
    ],
)
def test_an_address_says_a_value_in_the_unit_of_the_name(
    kind: Any, value: Any, address: str, text: str
) -> None:
    axis = declared(type=kind)
    assert axis.address(value) == address
    assert axis.text(value) == text
    if value is not None:
        assert axis.read(axis.value_at(address), "pause") == value


def test_what_a_set_up_has_unless_it_is_said_is_usual() -> None:
    assert declared(type=Boolean(), default=True).is_usual(True)
    assert declared(type=WholeNumber(1, 9), default=4, unused=1).is_usual(1)
    assert declared(type=WholeNumber(1, 9)).is_usual(None)
    assert declared(type=OneOf(Device), default=Device.CPU).is_usual("cpu")
    assert declared(type=OneOf(Device), default="cpu", usual=Device.CPU).is_usual("cpu")
    assert declared(type=OneOf(Device), default="cpu").default is Device.CPU


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"type": WholeNumber(1, 9), "is_required": True}, "a field of that name in JobSpec"),
        ({"type": WholeNumber(1, 9), "kind": AxisKind.WORKLOAD}, "a field of that name in JobSpec"),
        ({"type": WholeNumber(1, 9), "default": 4, "usual": 2}, "usual: expected 4"),
        ({"type": MS, "kind": AxisKind.PROFILE}, "NetworkConditions has no field pause"),
        (
            {"type": Boolean(), "kind": AxisKind.PROFILE, "field": "jitter_s"},
            "a condition of a network is a number",
        ),
    ],
)
def test_an_axis_that_nothing_could_store_or_predict_is_refused(
    changes: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ValueError, match=f"axis pause: .*{expected}"):
        declared(**changes)


def test_a_default_that_cannot_be_chosen_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="axis pause, default"):
        declared(type=Word(("a", "b")), default="c")

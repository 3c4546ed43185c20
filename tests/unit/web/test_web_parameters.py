"""Every parameter is read as it is described: what its schema takes is taken, and nothing else."""

from __future__ import annotations

import enum
import math
from typing import Any

import pytest
from flask import Flask
from jsonschema import Draft202012Validator

from farm.errors import InvalidSpec
from web import parameters
from web.parameters import CURSOR, LIMIT, Parameter


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


ID = parameters.row_id("id", "Of a row.")
NAME = parameters.text("name", "Of a thing.")
NAMES = parameters.texts("names", "Of things.")
RANK = parameters.whole("rank", "Of a gang.", low=0, high=7)
SIZE = parameters.required_whole("size", "Of a batch.", high=100)
SIZES = parameters.wholes("sizes", "Of worlds.", high=100)
RATIO = parameters.number("ratio", "Of a whole.", low=0.0, high=1.0)
DELAYS = parameters.numbers("delays", "Of networks.", low=0.0, high=10.0)
WEIGHT = parameters.amount("weight", "Of time.", high=10.0, default=1.0)
COLOUR = parameters.one_of("colour", "Of a thing.", Colour)

TAKEN: list[tuple[Parameter[Any], str, object]] = [
    (ID, "1", 1),
    (ID, str(2**63 - 1), 2**63 - 1),
    (NAME, "a b", "a b"),
    (NAME, "x" * 200, "x" * 200),
    (NAME, "größer als 日本", "größer als 日本"),
    (NAMES, "a,b", ("a", "b")),
    (NAMES, "a b, c", ("a b", "c")),
    (RANK, "0", 0),
    (RANK, "7", 7),
    (SIZE, "100", 100),
    (SIZES, "1,2,100", (1, 2, 100)),
    (SIZES, "1, 20", (1, 20)),
    (RATIO, "0", 0.0),
    (RATIO, "1.0", 1.0),
    (RATIO, "1e-3", 0.001),
    (DELAYS, "0,2.5", (0.0, 2.5)),
    (WEIGHT, "10", 10.0),
    (COLOUR, "red", Colour.RED),
    (LIMIT, "1000", 1000),
    (CURSOR, "17", 17),
]
REFUSED: list[tuple[Parameter[Any], str]] = [
    *[(ID, text) for text in ("0", "-1", "x", "", str(2**63), "1.5", "٣")],
    *[(SIZES, text) for text in ("01", "1,02")],
    *[(CURSOR, text) for text in ("01", "+1")],
    *[(NAME, text) for text in ("", "x" * 201, "a\nb", "\x00", "\u2028", "\x7f")],
    *[(NAMES, text) for text in ("", ",", "a,,b", "a, ", " ")],
    *[(RANK, text) for text in ("-1", "8", "1.5", "one")],
    *[(SIZE, text) for text in ("0", "101")],
    *[(SIZES, text) for text in ("0", "1,,2", "1,x", "")],
    *[(RATIO, text) for text in ("-0.1", "1.1", "nan", "inf", "half", "")],
    *[(DELAYS, text) for text in ("-1", "1,,2", "nan", "x")],
    *[(WEIGHT, text) for text in ("-1", "11", "nan")],
    *[(COLOUR, text) for text in ("green", "RED", "")],
    *[(LIMIT, text) for text in ("0", "1001", "all")],
    *[(CURSOR, text) for text in ("0", "x", "-1", "")],
]


def _read(parameter: Parameter[Any], **query: str) -> object:
    with Flask("test").test_request_context(query_string=query):
        return parameters.read([parameter])[parameter]


def _fits(parameter: Parameter[Any], text: str) -> bool:
    """Whether the schema takes the value that the text of a query stands for."""
    schema = parameter.described()["schema"]
    assert isinstance(schema, dict)
    value: object = text
    try:
        if schema["type"] == "integer":
            value = int(text) if text.isascii() else text
        elif schema["type"] == "number":
            number = float(text)
            value = number if math.isfinite(number) else text
    except ValueError:
        return False
    return bool(Draft202012Validator(schema).is_valid(value))


@pytest.mark.parametrize(("parameter", "text", "value"), TAKEN)
def test_what_the_schema_takes_is_read(parameter: Parameter[Any], text: str, value: object) -> None:
    assert _read(parameter, **{parameter.name: text}) == value
    assert _fits(parameter, text)


@pytest.mark.parametrize("text", ["64", "64.0", "6.4e1", "640e-1"])
def test_a_whole_number_may_have_a_point_and_a_power_of_ten(text: str) -> None:
    assert _read(SIZE, size=text) == 64
    assert _read(SIZES, sizes=f"1,{text}") == (1, 64)


@pytest.mark.parametrize("text", ["6.45e1", "1e9999", "1e-9999", "064.0", "-64", "6.4e", "0.0"])
def test_no_other_number_is_a_whole_one(text: str) -> None:
    with pytest.raises(InvalidSpec, match="a whole number from 1 to 100"):
        _read(SIZE, size=text)


@pytest.mark.parametrize(("parameter", "text"), REFUSED)
def test_what_is_refused_does_not_fit_the_schema(parameter: Parameter[Any], text: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        _read(parameter, **{parameter.name: text})
    assert caught.value.field == parameter.name
    assert not _fits(parameter, text)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        (ID, None),
        (NAME, None),
        (NAMES, ()),
        (SIZES, ()),
        (DELAYS, ()),
        (RATIO, None),
        (WEIGHT, 1.0),
        (COLOUR, None),
        (LIMIT, 100),
        (CURSOR, None),
    ],
)
def test_what_is_absent_has_its_default(parameter: Parameter[Any], value: object) -> None:
    assert _read(parameter) == value
    assert parameter.described()["required"] is False


def test_what_is_required_must_be_there() -> None:
    assert SIZE.described()["required"] is True
    with pytest.raises(InvalidSpec, match="size: expected a value"):
        _read(SIZE)


def test_a_parameter_that_is_not_declared_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="colour: expected no parameter but id"):
        _read(ID, colour="red")

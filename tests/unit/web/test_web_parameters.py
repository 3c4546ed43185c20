"""Every parameter is read as it is described: what its schema takes is taken, and nothing else."""

from __future__ import annotations

import enum
import math
from typing import Annotated, Any

import pytest
from flask import Flask
from jsonschema import Draft202012Validator
from pydantic import Field

from farm.errors import InvalidSpec
from web import parameters
from web.parameters import (
    NUMBER,
    WHOLE,
    Listed,
    PageParameters,
    Parameters,
    QueryText,
    QueryTexts,
    RowId,
    parameter_objects,
)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


SMALL = Field(ge=1, le=100)


class Thing(Parameters):
    id: RowId | None = Field(None, description="Of a row.")
    name: QueryText | None = Field(None, description="Of a thing.")
    names: QueryTexts = Field((), description="Of things.")
    rank: Annotated[int, Field(ge=0, le=7), WHOLE] | None = Field(None, description="Of a gang.")
    sizes: Listed[Annotated[int, SMALL, WHOLE]] = Field((), description="Of worlds.")
    ratio: Annotated[float, Field(ge=0, le=1), NUMBER] | None = Field(None, description="A part.")
    delays: Listed[Annotated[float, Field(ge=0, le=10), NUMBER]] = Field((), description="Of nets.")
    weight: Annotated[float, Field(ge=0, le=10), NUMBER] = Field(1.0, description="Of time.")
    colour: Colour | None = Field(None, description="Of a thing.")


class Things(Thing, PageParameters):
    pass


class Batch(Parameters):
    size: Annotated[int, SMALL, WHOLE] = Field(description="Of a batch.")
    sizes: Listed[Annotated[int, SMALL, WHOLE]] = Field((), description="Of worlds.")


SCHEMAS = {one["name"]: one for kind in (Things, Batch) for one in parameter_objects(kind)}

TAKEN: list[tuple[str, str, object]] = [
    ("id", "1", 1),
    ("id", str(2**63 - 1), 2**63 - 1),
    ("name", "a b", "a b"),
    ("name", "x" * 200, "x" * 200),
    ("name", "größer als 日本", "größer als 日本"),
    ("names", "a,b", ("a", "b")),
    ("names", "a b, c", ("a b", "c")),
    ("rank", "0", 0),
    ("rank", "7", 7),
    ("size", "100", 100),
    ("sizes", "1,2,100", (1, 2, 100)),
    ("sizes", "1, 20", (1, 20)),
    ("ratio", "0", 0.0),
    ("ratio", "1.0", 1.0),
    ("ratio", "1e-3", 0.001),
    ("delays", "0,2.5", (0.0, 2.5)),
    ("weight", "10", 10.0),
    ("colour", "red", Colour.RED),
    ("limit", "1000", 1000),
    ("cursor", "17", 17),
]
REFUSED: list[tuple[str, str]] = [
    *[("id", text) for text in ("0", "-1", "x", "", str(2**63), "1.5", "٣")],
    *[("sizes", text) for text in ("01", "1,02")],
    *[("cursor", text) for text in ("01", "+1")],
    *[("name", text) for text in ("", "x" * 201, "a\nb", "\x00", "\u2028", "\x7f")],
    *[("names", text) for text in ("", ",", "a,,b", "a, ", " ")],
    *[("rank", text) for text in ("-1", "8", "1.5", "one")],
    *[("size", text) for text in ("0", "101")],
    *[("sizes", text) for text in ("0", "1,,2", "1,x", "")],
    *[("ratio", text) for text in ("-0.1", "1.1", "nan", "inf", "half", "")],
    *[("delays", text) for text in ("-1", "1,,2", "nan", "x")],
    *[("weight", text) for text in ("-1", "11", "nan")],
    *[("colour", text) for text in ("green", "RED", "")],
    *[("limit", text) for text in ("0", "1001", "all")],
    *[("cursor", text) for text in ("0", "x", "-1", "")],
]


def _read(**query: str) -> Any:
    kind = Batch if "size" in query else Things
    with Flask("test").test_request_context(query_string=query):
        return parameters.read(kind)


def _fits(name: str, text: str) -> bool:
    """Whether the schema takes the value that the text of a query stands for."""
    schema = SCHEMAS[name]["schema"]
    assert isinstance(schema, dict)
    try:
        if schema["type"] == "array":
            assert SCHEMAS[name]["explode"] is False
            items = [item.strip(" ") for item in text.split(",")]
            value: object = [_value(schema["items"], item) for item in items]
        else:
            value = _value(schema, text)
    except ValueError:
        return False
    return bool(Draft202012Validator(schema).is_valid(value))


def _value(schema: dict[str, Any], text: str) -> object:
    if schema["type"] == "integer":
        if text[:1] == "0" != text:
            raise ValueError(text)
        return int(text) if text.isascii() else text
    if schema["type"] == "number":
        number = float(text)
        return number if math.isfinite(number) else text
    return text


@pytest.mark.parametrize(("name", "text", "value"), TAKEN)
def test_what_the_schema_takes_is_read(name: str, text: str, value: object) -> None:
    assert getattr(_read(**{name: text}), name) == value
    assert _fits(name, text)


@pytest.mark.parametrize("text", ["64", "64.0", "6.4e1", "640e-1"])
def test_a_whole_number_may_have_a_point_and_a_power_of_ten(text: str) -> None:
    assert _read(size=text).size == 64
    assert _read(sizes=f"1,{text}").sizes == (1, 64)


@pytest.mark.parametrize("text", ["6.45e1", "1e9999", "1e-9999", "064.0", "-64", "6.4e", "0.0"])
def test_no_other_number_is_a_whole_one(text: str) -> None:
    with pytest.raises(InvalidSpec, match="a whole number from 1 to 100") as caught:
        _read(size=text)
    assert caught.value.value == text


@pytest.mark.parametrize("text", ["64.0", "6.4e1", "064", "+64", " 64", "6_4", "٣"])
@pytest.mark.parametrize("name", ["id", "limit", "cursor"])
def test_ids_and_pages_of_a_list_are_plain_digits(name: str, text: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        _read(**{name: text})
    assert (caught.value.field, caught.value.value) == (name, text)


@pytest.mark.parametrize(("name", "text"), REFUSED)
def test_what_is_refused_does_not_fit_the_schema(name: str, text: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        _read(**{name: text})
    assert caught.value.field == name
    assert not _fits(name, text)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"id": "x"}, "id: expected an id, a whole number from 1, got 'x'"),
        ({"name": "\x7f"}, "name: expected a text of 1 to 200 printable characters, got '\\x7f'"),
        ({"names": "a,,b"}, "names: expected names with commas between them, got 'a,,b'"),
        ({"rank": "8"}, "rank: expected a whole number from 0 to 7, got '8'"),
        (
            {"sizes": "1,0"},
            "sizes: expected whole numbers from 1 to 100 with commas between, got '0'",
        ),
        ({"delays": "1,11"}, "delays: expected a number from 0 to 10, got '11'"),
        ({"colour": "red "}, "colour: expected one of red, blue, got 'red '"),
        ({"limit": "64.0"}, "limit: expected a whole number from 1 to 1000, got '64.0'"),
        ({"cursor": "x"}, "cursor: expected a cursor as `next` gave it, got 'x'"),
    ],
)
def test_a_refusal_names_the_parameter_the_value_and_what_was_expected(
    query: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidSpec) as caught:
        _read(**query)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("id", None),
        ("name", None),
        ("names", ()),
        ("sizes", ()),
        ("delays", ()),
        ("ratio", None),
        ("weight", 1.0),
        ("colour", None),
        ("limit", 100),
        ("cursor", None),
    ],
)
def test_what_is_absent_has_its_default(name: str, value: object) -> None:
    assert getattr(_read(), name) == value
    assert SCHEMAS[name]["required"] is False


def test_what_is_required_must_be_there() -> None:
    assert SCHEMAS["size"]["required"] is True
    with (
        Flask("test").test_request_context(),
        pytest.raises(InvalidSpec, match="size: expected a value"),
    ):
        parameters.read(Batch)


def test_a_parameter_that_is_not_declared_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="colours: expected no parameter but limit, cursor, id"):
        _read(id="1", colours="red")


def test_a_parameter_that_is_given_twice_is_refused() -> None:
    with (
        Flask("test").test_request_context(query_string="id=1&id=2"),
        pytest.raises(InvalidSpec, match="id: expected a parameter given once"),
    ):
        parameters.read(Things)

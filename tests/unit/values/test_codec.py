import enum
import json
import pickle
from dataclasses import dataclass, field
from typing import Annotated

import pytest

from farm.errors import InvalidSpec
from farm.values.codec import (
    MAX_DEPTH,
    UNDECODED,
    canonical_json,
    content_hash,
    from_json,
    from_text,
    to_json,
)
from farm.values.ranges import Length


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    number: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    count: int
    is_on: bool = False
    colour: Colour = Colour.RED
    inner: Inner | None = None
    inners: tuple[Inner, ...] = ()
    table: dict[str, tuple[int, ...]] = field(default_factory=dict)
    free: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    table: dict[str, object] = field(metadata=UNDECODED)
    name: str = "n"


FULL = Outer(
    count=3,
    is_on=True,
    colour=Colour.BLUE,
    inner=Inner(number=0.5, names=("a", "b")),
    inners=(Inner(number=1.0),),
    table={"x": (1, 2)},
    free={"any": [None, True, 1, 0.5, "text"]},
)


def test_what_is_written_is_read_back_equal() -> None:
    assert from_json(Outer, json.loads(canonical_json(FULL))) == FULL


def test_a_table_that_is_not_looked_into_is_neither_read_nor_copied() -> None:
    table: dict[str, object] = {"x": {"deep": [1]}}
    written = to_json(Unread(table=table))
    assert written == {"table": table, "name": "n"}
    assert isinstance(written, dict)
    assert written["table"] is table
    assert from_json(Unread, written).table is table


def test_defaults_fill_in_for_fields_left_out() -> None:
    assert from_json(Outer, {"count": 1}) == Outer(count=1)


def test_a_whole_number_is_read_as_a_number_but_not_the_other_way_round() -> None:
    read = from_json(Inner, {"number": 2})
    assert (read.number, type(read.number)) == (2.0, float)
    with pytest.raises(InvalidSpec, match=r"^count: expected a whole number, got 2.0$"):
        from_json(Outer, {"count": 2.0})


REFUSED: dict[str, tuple[object, str]] = {
    "no table": ([1], "Outer: expected a table, got [1]"),
    "missing": ({}, "count: expected a value: this field is required, got None"),
    "unknown": (
        {"count": 1, "cuont": 2},
        "cuont: expected one of the fields count, is_on, colour, inner, inners, table, free, got 2",
    ),
    "a flag for a count": ({"count": True}, "count: expected a whole number, got True"),
    "a count for a flag": ({"count": 1, "is_on": 1}, "is_on: expected true or false, got 1"),
    "a flag for a number": (
        {"count": 1, "inner": {"number": False}},
        "inner.number: expected a number, got False",
    ),
    "null": ({"count": None}, "count: expected a whole number, got None"),
    "another word": (
        {"count": 1, "colour": "green"},
        "colour: expected one of 'red', 'blue', got 'green'",
    ),
    "a list for a word": (
        {"count": 1, "colour": []},
        "colour: expected one of 'red', 'blue', got []",
    ),
    "an item deep inside": (
        {"count": 1, "inners": [{"number": 1}, {"number": 1, "names": ["a", 2]}]},
        "inners[1].names[1]: expected a text, got 2",
    ),
    "no list": ({"count": 1, "inners": {}}, "inners: expected a list, got {}"),
    "a value in a table": (
        {"count": 1, "table": {"x": [1, "2"]}},
        "table.x[1]: expected a whole number, got '2'",
    ),
    "a key that is no text": ({"count": 1, "table": {1: []}}, "table: expected a text as key"),
    "not a number": (
        {"count": 1, "inner": {"number": float("nan")}},
        "inner.number: expected a finite number, got nan",
    ),
    "an integer that no float holds": (
        {"count": 1, "inner": {"number": 10**400}},
        "inner.number: expected a finite number",
    ),
    "an integer that no database holds": (
        {"count": 2**63},
        "count: expected a whole number of at most 64 bits, got 9223372036854775808",
    ),
    "infinity in free JSON": (
        {"count": 1, "free": {"a": [float("inf")]}},
        "free.a[0]: expected a finite number, got inf",
    ),
    "a long integer in free JSON": (
        {"count": 1, "free": [-(2**63) - 1]},
        "free[0]: expected a whole number of at most 64 bits",
    ),
    "a value in free JSON that JSON has not": (
        {"count": 1, "free": {"a": b"bytes"}},
        "free.a: expected a text, got b'bytes'",
    ),
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=list(REFUSED))
def test_what_does_not_fit_is_refused_by_its_path(data: object, message: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        from_json(Outer, data)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("text", ["", "{", '{"count": 1} 2', "[" * 100_000, b"\xff{}"])
def test_a_text_that_is_no_json_is_refused_in_one_line(text: str | bytes) -> None:
    with pytest.raises(InvalidSpec, match=r"^Outer: expected JSON, got "):
        from_text(Outer, text)


def test_a_text_is_read_as_its_values_are() -> None:
    assert from_text(Outer, canonical_json(FULL)) == FULL
    assert from_text(Outer, canonical_json(FULL).encode()) == FULL
    with pytest.raises(InvalidSpec, match=r"^line\.count: expected a whole number, got '1'$"):
        from_text(Outer, '{"count": "1"}', where="line")


def test_only_a_text_for_the_store_loses_what_no_database_takes() -> None:
    @dataclass(frozen=True)
    class Texts:
        stored: Annotated[str, Length(9)]
        path: str  # Python writes a file name that is not UTF-8 in halves of surrogate pairs

    assert from_json(Texts, {"stored": "a\0\udce9", "path": "\udce9"}) == Texts(
        "a\ufffd?", "\udce9"
    )


def test_the_callers_prefix_comes_first_in_the_path() -> None:
    with pytest.raises(InvalidSpec, match=r"^started\.inner\.number: "):
        from_json(Outer, {"count": 1, "inner": {"number": "x"}}, where="started")


def test_free_json_may_not_nest_without_end() -> None:
    free: object = 1
    for _ in range(MAX_DEPTH):
        free = [free]
    assert from_json(Outer, {"count": 1, "free": free}).free == free
    with pytest.raises(InvalidSpec, match=f"at most {MAX_DEPTH} levels"):
        from_json(Outer, {"count": 1, "free": [free]})
    for _ in range(100_000):
        free = [free]
    with pytest.raises(InvalidSpec, match="got an unprintable list"):
        from_json(Outer, {"count": free})


def test_a_union_of_two_types_is_a_mistake_of_the_program_not_of_the_input() -> None:
    @dataclass
    class Either:
        value: int | str

    with pytest.raises(TypeError, match="only unions with None"):
        from_json(Either, {"value": 1})


def test_equal_values_have_equal_text_whatever_the_order_of_their_keys() -> None:
    one = Outer(count=1, table={"a": (1,), "b": (2,)})
    other = Outer(count=1, table={"b": (2,), "a": (1,)})
    assert canonical_json(one) == canonical_json(other)
    assert content_hash(one) == content_hash(other)


def test_different_values_have_different_hashes() -> None:
    assert content_hash(Outer(count=1)) != content_hash(Outer(count=2))


def test_sets_are_written_in_order() -> None:
    assert to_json(frozenset({"b", "a"})) == ["a", "b"]


def test_what_is_not_finite_is_never_written() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json(Inner(number=float("nan")))


def test_an_invalid_spec_survives_being_sent_to_another_process() -> None:
    sent = InvalidSpec("world_size", 4, "1 for strategy 'single'")
    received = pickle.loads(pickle.dumps(sent))
    assert str(received) == "world_size: expected 1 for strategy 'single', got 4"
    assert (received.field, received.value) == ("world_size", 4)


def test_a_long_value_is_cut_in_the_message() -> None:
    message = str(InvalidSpec("name", "x" * 1000, "a name"))
    assert len(message) < 120
    assert message.endswith("...")


def test_a_long_key_is_not_copied_with_every_item_below_it() -> None:
    key = "K" * 100_000
    with pytest.raises(InvalidSpec) as caught:
        from_json(dict[str, object], {key: [0, float("nan")]})
    assert len(caught.value.field) < 300


def test_an_error_names_a_field_of_any_length_in_one_short_line() -> None:
    assert len(str(InvalidSpec("f" * 100_000, 1, "less"))) < 400

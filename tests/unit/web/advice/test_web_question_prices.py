"""Prices that come with a question: in its address, and in the fields of its form."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import pytest
from jsonschema import Draft202012Validator
from werkzeug.datastructures import MultiDict

from farm.errors import InvalidSpec
from farm.recommend.prices import Price, Prices
from farm.store.measurements.known_axes import KnownAxes
from web.advice.questions import AdviceParameters, by_type, folded, price_fields
from web.parameters import parameter_objects, read_from

AXES = KnownAxes(
    workloads=(),
    strategies=(),
    instance_types=("c5", "m5.large", "with=sign"),
    has_unnamed_type=True,
    world_sizes=(),
    global_batch_sizes=(),
    one_way_delays_s=(),
)
TODAY = dt.date(2026, 1, 1)
LISTED = Price(instance_type="m5.large", region="a", usd_per_hour=0.1, date=TODAY, source="a list")
TABLE = Prices(by_type={"m5.large": LISTED})


def _read(text: str) -> Mapping[str, float]:
    return read_from(AdviceParameters, MultiDict({"prices": text})).prices


def _fits(text: str) -> bool:
    [schema] = [
        one["schema"] for one in parameter_objects(AdviceParameters) if one["name"] == "prices"
    ]
    return bool(Draft202012Validator(schema).is_valid(text))


@pytest.mark.parametrize(
    ("text", "prices"),
    [
        ("m5.large=0.1", {"m5.large": 0.1}),
        ("a=1,b = .5 ,c=0", {"a": 1.0, "b": 0.5, "c": 0.0}),
        ("a b=1e-3", {"a b": 0.001}),
        ("unnamed=2.", {"unnamed": 2.0}),
    ],
)
def test_pairs_are_read_as_they_are_described(text: str, prices: dict[str, float]) -> None:
    assert _read(text) == prices
    assert _fits(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "m5.large", "=1", "a=", "a=x", "a=-1", "a=nan", "a=inf", "a=1=2", "a=1,", "a=1;b=2"),
        *("a=\n1", "a=1_0", "a=0x1", "a=٣", "a=1e999", "a" * 2000 + "=1"),
    ],
)
def test_what_is_no_pair_is_refused_and_not_described(text: str) -> None:
    with pytest.raises(InvalidSpec, match="prices: expected"):
        _read(text)
    assert not _fits(text)


@pytest.mark.parametrize("text", ["a=1,a=2", "a=1e7"])
def test_a_type_has_one_price_and_no_fantastic_one(text: str) -> None:
    with pytest.raises(InvalidSpec, match="each type once"):
        _read(text)


def test_without_any_the_table_holds() -> None:
    assert read_from(AdviceParameters, MultiDict()).prices == {}
    assert TABLE.with_given({}, on=TODAY) == TABLE


def test_a_given_price_counts_instead_of_the_listed_one() -> None:
    given = by_type(_read("m5.large=0.2,unnamed=0.3"))
    prices = TABLE.with_given(given, on=TODAY)
    assert prices.usd_per_hour == {"m5.large": 0.2, "": 0.3}
    assert prices.by_type["m5.large"].source == "given with the question"
    assert TABLE.usd_per_hour == {"m5.large": 0.1}


def test_the_fields_of_a_form_are_the_one_parameter() -> None:
    sent = MultiDict([("prices", "a=1"), ("price:b", " 2 "), ("price:c", ""), ("beta", "1")])
    assert folded(sent) == "a=1,b=2"
    assert folded(MultiDict({"prices": " ", "price:c": ""})) == ""


def test_a_form_has_a_field_for_every_type_it_can_name_and_those_given() -> None:
    fields = price_fields("m5.large=0.2,other=7", AXES, TABLE)
    assert [(f.name, f.typed, f.listed_usd_per_hour) for f in fields] == [
        ("price:c5", "", None),
        ("price:m5.large", "0.2", 0.1),
        ("price:unnamed", "", None),
        ("price:other", "7", None),
    ]

"""Parses prices given in a query beside the server's table: `m5.large=0.1,t2=0.05`.

A form has a field for each instance type instead, named by it: `price:m5.large`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from werkzeug.datastructures import MultiDict

from farm.errors import InvalidSpec
from farm.recommend.prices import Prices
from farm.store.measurements.known_axes import KnownAxes
from web.parameters import Args, Parameter

MOST_CHARACTERS = 2000
FIELD = "price:"  # begins the names of a form's fields
UNNAMED = "unnamed"  # in a query, the type of machines whose type is not known
_NAME = "prices"
_MOST_USD_PER_HOUR = 1e6
_PRICE = r" *([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})? *"
_PAIR = f"[^,=]+={_PRICE}"
_EXPECTED = (
    f"pairs of an instance type and USD an hour from 0 to {_MOST_USD_PER_HOUR:g}, "
    "such as m5.large=0.1,c5.large=0.08, each type once"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceField:
    """One instance type's field: what was typed, and what the server's table says of it."""

    instance_type: str
    typed: str
    listed_usd_per_hour: float | None

    @property
    def name(self) -> str:
        """The name of the field."""
        return f"{FIELD}{self.instance_type}"


def _read(args: Args) -> Mapping[str, float]:
    text = args.get(_NAME)
    own: dict[str, float] = {}
    if text is None:
        return own
    if len(text) > MOST_CHARACTERS or not text.isprintable():
        raise InvalidSpec(_NAME, text[:80], f"at most {MOST_CHARACTERS} printable characters")
    for pair in text.split(","):
        name, _, price = pair.partition("=")
        name = name.strip()
        usd_per_hour = float(price) if re.fullmatch(_PRICE, price) else -1.0
        if not name or name in own or not 0 <= usd_per_hour <= _MOST_USD_PER_HOUR:
            raise InvalidSpec(_NAME, pair, _EXPECTED)
        own[name] = usd_per_hour
    return own


PRICES = Parameter(
    _NAME,
    "Of one VM in USD an hour, by instance type, such as m5.large=0.1,c5.large=0.08; "
    f"`{UNNAMED}` is of machines whose type is not known. Others as in the server's table.",
    {
        "type": "string",
        "minLength": 3,
        "maxLength": MOST_CHARACTERS,
        "pattern": f"^{_PAIR}(,{_PAIR})*$",
    },
    _read,
)


def by_type(given: Mapping[str, float]) -> dict[str, float]:
    """Return prices as the recommender looks them up, where a type that is not known is ''."""
    return {"" if name == UNNAMED else name: price for name, price in given.items()}


def folded(values: MultiDict[str, str]) -> str:
    """Return what a form's fields and the parameter say as the one parameter; '' for nothing."""
    pairs = [value.strip() for value in values.getlist(_NAME) if value.strip()]
    for name, value in values.items(multi=True):
        if name.startswith(FIELD) and value.strip():
            pairs.append(f"{name.removeprefix(FIELD)}={value.strip()}")
    return ",".join(pairs)


def price_fields(text: str, axes: KnownAxes, table: Prices) -> Sequence[PriceField]:
    """Return the fields of a form: for the origin's types, and what `text` has beside them."""
    pairs = (pair.partition("=") for pair in text.split(","))
    typed = {name.strip(): price.strip() for name, _, price in pairs if name.strip()}
    # Others cannot stand in the parameter.
    names = [name for name in axes.instance_types if not set(name) & set(",=")]
    if axes.has_unnamed_type:
        names.append(UNNAMED)
    listed = table.usd_per_hour
    return [
        PriceField(
            instance_type=name,
            typed=typed.get(name, ""),
            listed_usd_per_hour=listed.get(name),
        )
        for name in dict.fromkeys([*names, *typed])
    ]

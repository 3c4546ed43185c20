"""Parses a question to the recommender from a query, for the API and the page.

Its prices, such as `m5.large=0.1,t2=0.05`, stand beside those of the server's table. A form has a
field for each instance type instead, named by it: `price:m5.large`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flask import request
from werkzeug.datastructures import MultiDict

from farm.configuration.axes import PROFILE_AXES, profile_fields
from farm.configuration.spec import (
    LARGEST,
    MAX_GLOBAL_BATCH_SIZE,
    MAX_STEPS,
    MAX_WORLD_SIZE,
    TrainingPass,
)
from farm.errors import InvalidSpec
from farm.recommend.contracts import Objective, Question
from farm.recommend.prices import Prices
from farm.store.measurements.known_axes import KnownAxes
from web import parameters
from web.backend import now
from web.parameters import Args, Given, Parameter

_MOST_PRICES_CHARACTERS = 2000
_FIELD = "price:"  # begins the names of a form's fields
_UNNAMED = "unnamed"  # in a query, the type of machines whose type is not known
_PRICES = "prices"
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
        return f"{_FIELD}{self.instance_type}"


def _read_prices(args: Args) -> Mapping[str, float]:
    text = args.get(_PRICES)
    own: dict[str, float] = {}
    if text is None:
        return own
    if len(text) > _MOST_PRICES_CHARACTERS or not text.isprintable():
        raise InvalidSpec(
            _PRICES, text[:80], f"at most {_MOST_PRICES_CHARACTERS} printable characters"
        )
    for pair in text.split(","):
        name, _, price = pair.partition("=")
        name = name.strip()
        usd_per_hour = float(price) if re.fullmatch(_PRICE, price) else -1.0
        if not name or name in own or not 0 <= usd_per_hour <= _MOST_USD_PER_HOUR:
            raise InvalidSpec(_PRICES, pair, _EXPECTED)
        own[name] = usd_per_hour
    return own


PRICES = Parameter(
    _PRICES,
    "Of one VM in USD an hour, by instance type, such as m5.large=0.1,c5.large=0.08; "
    f"`{_UNNAMED}` is of machines whose type is not known. Others as in the server's table.",
    {
        "type": "string",
        "minLength": 3,
        "maxLength": _MOST_PRICES_CHARACTERS,
        "pattern": f"^{_PAIR}(,{_PAIR})*$",
    },
    _read_prices,
)


def by_type(given: Mapping[str, float]) -> dict[str, float]:
    """Return prices as the recommender looks them up, where a type that is not known is ''."""
    return {"" if name == _UNNAMED else name: price for name, price in given.items()}


def folded(values: MultiDict[str, str]) -> str:
    """Return what a form's fields and the parameter say as the one parameter; '' for nothing."""
    pairs = [value.strip() for value in values.getlist(_PRICES) if value.strip()]
    for name, value in values.items(multi=True):
        if name.startswith(_FIELD) and value.strip():
            pairs.append(f"{name.removeprefix(_FIELD)}={value.strip()}")
    return ",".join(pairs)


def price_fields(text: str, axes: KnownAxes, table: Prices) -> Sequence[PriceField]:
    """Return the fields of a form: for the origin's types, and what `text` has beside them."""
    pairs = (pair.partition("=") for pair in text.split(","))
    typed = {name.strip(): price.strip() for name, _, price in pairs if name.strip()}
    # Others cannot stand in the parameter.
    names = [name for name in axes.instance_types if not set(name) & set(",=")]
    if axes.has_unnamed_type:
        names.append(_UNNAMED)
    listed = table.usd_per_hour
    return [
        PriceField(
            instance_type=name,
            typed=typed.get(name, ""),
            listed_usd_per_hour=listed.get(name),
        )
        for name in dict.fromkeys([*names, *typed])
    ]


_MOST_CHARACTERS = 200
_TICKED = frozenset({"strategy", "instance_types", "network"})  # of which a form may tick several

ORIGIN = parameters.text("origin", "Whose measurements; `farm` by default.")
_MODEL = parameters.text("model", "Needed where the origin has several.")
_DATASET = parameters.text("dataset", "Needed where the origin has several.")
_SCRIPT = parameters.text("script", "Of your own, instead of `model`: its newest version.")
_SCRIPT_SHA256 = parameters.text("script_sha256", "Another version of `script`.")
_PARAMETER = parameters.texts("parameter", "Of `script`, such as `hidden=256,lr=1e-3`.")
_PASS = parameters.one_of("pass", "`forward_backward` by default.", TrainingPass)
_BATCH_SIZE = parameters.required_whole(
    "global_batch_size", "Examples in one step of the whole gang.", high=MAX_GLOBAL_BATCH_SIZE
)
_NETWORK_AXES = tuple(parameters.of_axis(axis) for axis in PROFILE_AXES)
_EPOCHS = parameters.whole("epochs", "How long the training is; 1 by default.", high=MAX_STEPS)
_TARGET = parameters.number(
    "target_accuracy",
    "A ratio: the training ends where it is reached. Instead of `epochs`.",
    low=0.0,
    high=1.0,
    is_above_low=True,
)
STRATEGY = parameters.texts("strategy", "Only these, with commas between them.")
_WORLD_SIZES = parameters.wholes(
    "world_sizes", "Only these beside one machine, such as 2,3,4.", high=MAX_WORLD_SIZE
)
INSTANCE_TYPES = parameters.texts("instance_types", "Only these, with commas between them.")
_NETWORK = parameters.texts("network", "Only what made the delay so, with commas between them.")
ALPHA = parameters.amount("alpha", "Weight of time, in 1/s.", high=LARGEST, default=1.0)
BETA = parameters.amount("beta", "Weight of cost, in 1/USD.", high=LARGEST)
_BUDGET = parameters.number("budget_usd", "The most it may cost.", low=0.0, high=LARGEST)
_DEADLINE = parameters.number("deadline_s", "The longest it may take.", low=0.0, high=LARGEST)
_ACCURACY = parameters.number("min_accuracy", "A ratio it must reach.", low=0.0, high=1.0)
_MACHINES = parameters.whole("machines", "How many are at hand.", high=MAX_WORLD_SIZE)
QUESTION: tuple[Parameter[Any], ...] = (
    *(ORIGIN, _MODEL, _DATASET, _SCRIPT, _SCRIPT_SHA256, _PARAMETER, _PASS, _BATCH_SIZE),
    *_NETWORK_AXES,
    *(_EPOCHS, _TARGET, STRATEGY, _WORLD_SIZES, INSTANCE_TYPES, _NETWORK),
)
OBJECTIVE: tuple[Parameter[Any], ...] = (
    ALPHA,
    BETA,
    _BUDGET,
    _DEADLINE,
    _ACCURACY,
    _MACHINES,
    PRICES,
)
QUERY = (*QUESTION, *OBJECTIVE)


def read_question(given: Given) -> Question:
    """Return what is trained where, and what is considered.

    Raises:
        InvalidSpec: names the parameter that does not fit beside another.
    """
    epochs = given[_EPOCHS]
    if epochs is not None and given[_TARGET] is not None:
        raise InvalidSpec("epochs", epochs, "nothing beside target_accuracy")
    return Question(
        origin=given[ORIGIN] or "farm",
        model=given[_MODEL],
        dataset=given[_DATASET],
        script=given[_SCRIPT],
        script_sha256=given[_SCRIPT_SHA256],
        script_parameters=given[_PARAMETER],
        training_pass=given[_PASS] or TrainingPass.FORWARD_BACKWARD,
        global_batch_size=given[_BATCH_SIZE],
        **profile_fields({parameter.name: given[parameter] for parameter in _NETWORK_AXES}),
        epochs=epochs or 1,
        target_accuracy_ratio=given[_TARGET],
        strategies=given[STRATEGY],
        world_sizes=given[_WORLD_SIZES],
        instance_types=given[INSTANCE_TYPES],
        networks=given[_NETWORK],
    )


def read_objective(given: Given) -> Objective:
    """Return the weights of time and cost, and the limits.

    Raises:
        InvalidSpec: the weights weigh nothing.
    """
    return Objective(
        alpha=given[ALPHA],
        beta=given[BETA],
        budget_usd=given[_BUDGET],
        deadline_s=given[_DEADLINE],
        min_accuracy_ratio=given[_ACCURACY],
        max_machine_count=given[_MACHINES],
    )


def read_prices(given: Given, table: Prices) -> Prices:
    """Return the prices that the answer rests on: those of the question, else the table's."""
    return table.with_given(by_type(given[PRICES]), on=now().date())


def given_question() -> MultiDict[str, str]:
    """Return the query of a page: what forms send empty is absent, ticked names are one list.

    Raises:
        InvalidSpec: a parameter is unknown, or there twice and no list.
    """
    allowed = [parameter.name for parameter in QUERY]
    given: MultiDict[str, str] = MultiDict()
    for name, values in request.args.lists():
        if name == PRICES.name or name.startswith(_FIELD):
            continue
        if name not in allowed:
            raise InvalidSpec(name, values[0], f"no parameter but {', '.join(allowed)}")
        kept = [value.strip() for value in values if value.strip()]
        for value in kept:
            if len(value) > _MOST_CHARACTERS or not value.isprintable():
                expected = f"at most {_MOST_CHARACTERS} printable characters"
                raise InvalidSpec(name, value, expected)
        if len(kept) > 1 and name not in _TICKED:
            raise InvalidSpec(name, kept, "a parameter given once")
        if kept:
            given[name] = ",".join(kept)
    prices = folded(request.args)
    if prices:
        given[PRICES.name] = prices
    return given


def is_as_given(given: MultiDict[str, str]) -> bool:
    """Tell whether the address is the shortest that asks so, which is the one to be kept."""
    return request.args.to_dict(flat=False) == {name: [value] for name, value in given.items()}

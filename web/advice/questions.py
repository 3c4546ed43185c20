"""Parses a question to the recommender from a query, for the API and the page.

Prices such as `m5.large=0.1,t2=0.05` are added to the server's price table. A form instead has one
field for each instance type, such as `price:m5.large`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from flask import request
from pydantic import Field, PlainValidator, WithJsonSchema, create_model
from werkzeug.datastructures import MultiDict

from farm.configuration.axes import AXES_BY_NAME, PROFILE_AXES, profile_fields
from farm.configuration.spec import LARGEST, TrainingPass
from farm.errors import InvalidSpec
from farm.measuring.measurement import OWN_ORIGIN
from farm.recommend.contracts import Objective, Question
from farm.recommend.prices import Prices
from farm.store.measurements.known_axes import KnownAxes
from web import parameters
from web.backend import now
from web.parameters import NUMBER, WHOLE, Listed, Parameters, QueryText, QueryTexts, bounds_of

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
    """The price field of one instance type: the typed text, and the price in the server's table."""

    instance_type: str
    typed: str
    listed_usd_per_hour: float | None

    @property
    def name(self) -> str:
        """The name of the field."""
        return f"{_FIELD}{self.instance_type}"


def _read_prices(text: str) -> Mapping[str, float]:
    if len(text) > _MOST_PRICES_CHARACTERS or not text.isprintable():
        raise ValueError(f"at most {_MOST_PRICES_CHARACTERS} printable characters")
    own: dict[str, float] = {}
    for pair in text.split(","):
        name, _, price = pair.partition("=")
        name = name.strip()
        usd_per_hour = float(price) if re.fullmatch(_PRICE, price) else -1.0
        if not name or name in own or not 0 <= usd_per_hour <= _MOST_USD_PER_HOUR:
            # With the pair alone as its value.
            raise InvalidSpec(_PRICES, pair, _EXPECTED)
        own[name] = usd_per_hour
    return own


_PricesGiven = Annotated[
    Mapping[str, float],
    PlainValidator(_read_prices),
    WithJsonSchema(
        {
            "type": "string",
            "minLength": 3,
            "maxLength": _MOST_PRICES_CHARACTERS,
            "pattern": f"^{_PAIR}(,{_PAIR})*$",
        }
    ),
]


def by_type(given: Mapping[str, float]) -> dict[str, float]:
    """Return prices as the recommender looks them up; an unknown type is ''."""
    return {"" if name == _UNNAMED else name: price for name, price in given.items()}


def folded(values: MultiDict[str, str]) -> str:
    """Return the prices of the form and of the query as one query value; '' for none."""
    pairs = [value.strip() for value in values.getlist(_PRICES) if value.strip()]
    for name, value in values.items(multi=True):
        if name.startswith(_FIELD) and value.strip():
            pairs.append(f"{name.removeprefix(_FIELD)}={value.strip()}")
    return ",".join(pairs)


def price_fields(text: str, axes: KnownAxes, table: Prices) -> Sequence[PriceField]:
    """Return the fields of a form: the origin's types, and further ones of `text`."""
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

WorldSize = Annotated[int, bounds_of("world_size"), WHOLE]
NotNegative = Annotated[float, Field(ge=0.0, le=LARGEST), NUMBER]
_Ratio = Annotated[float, Field(ge=0.0, le=1.0), NUMBER]


class AdviceParameters(Parameters):
    """The origin, the options to consider, and the weights of time and cost."""

    origin: QueryText = Field(
        OWN_ORIGIN, description=f"Whose measurements; `{OWN_ORIGIN}` by default."
    )
    strategy: QueryTexts = Field((), description="Only these, with commas between them.")
    instance_types: QueryTexts = Field((), description="Only these, with commas between them.")
    prices: _PricesGiven = Field(
        {},
        description=(
            "Of one VM in USD an hour, by instance type, such as m5.large=0.1,c5.large=0.08; "
            f"`{_UNNAMED}` is of machines whose type is not known. Others as in the server's table."
        ),
    )
    alpha: NotNegative = Field(1.0, description="Weight of time, in 1/s.")
    beta: NotNegative = Field(0.0, description="Weight of cost, in 1/USD.")


_PASS = AXES_BY_NAME["pass"]


class _Question(AdviceParameters):
    model: QueryText | None = Field(None, description="Needed where the origin has several.")
    dataset: QueryText | None = Field(None, description="Needed where the origin has several.")
    script: QueryText | None = Field(
        None, description="Of your own, instead of `model`: its newest version."
    )
    script_sha256: QueryText | None = Field(None, description="Another version of `script`.")
    parameter: QueryTexts = Field((), description="Of `script`, such as `hidden=256,lr=1e-3`.")
    training_pass: TrainingPass = Field(
        _PASS.default, alias="pass", description=f"`{_PASS.default_value}` by default."
    )
    epochs: Annotated[int, bounds_of("epochs"), WHOLE] | None = Field(
        None, description="How long the training is; 1 by default."
    )
    target_accuracy: Annotated[float, Field(gt=0.0, le=1.0), NUMBER] | None = Field(
        None,
        description="A ratio: the training ends where it is reached. Instead of `epochs`.",
    )
    world_sizes: Listed[WorldSize] = Field(
        (), description="Only these and one machine, such as 2,3,4."
    )
    network: QueryTexts = Field(
        (), description="Only what made the delay so, with commas between them."
    )
    budget_usd: NotNegative | None = Field(None, description="The most it may cost.")
    deadline_s: NotNegative | None = Field(None, description="The longest it may take.")
    min_accuracy: _Ratio | None = Field(None, description="A ratio it must reach.")
    machines: WorldSize | None = Field(None, description="How many are at hand.")


_BATCH_SIZE = AXES_BY_NAME["global_batch_size"]
_OF_AXES: dict[str, Any] = {
    _BATCH_SIZE.name: (
        parameters.of_axis(_BATCH_SIZE),
        Field(description="Examples in one step of the whole gang."),
    ),
    **{
        axis.name: (
            parameters.of_axis(axis) | None,
            Field(
                None if axis.absent is None else axis.value_at(axis.address(axis.absent)),
                description=axis.sentence,
            ),
        )
        for axis in PROFILE_AXES
    },
}
RecommendationParameters = create_model("RecommendationParameters", __base__=_Question, **_OF_AXES)


def read_question(query: _Question) -> Question:
    """Return the question: the workload, its conditions, and the options to consider.

    Raises:
        InvalidSpec: names the parameter that does not fit beside another.
    """
    if query.epochs is not None and query.target_accuracy is not None:
        raise InvalidSpec("epochs", query.epochs, "nothing beside target_accuracy")
    values = {name: getattr(query, name) for name in _OF_AXES}
    return Question(
        origin=query.origin,
        model=query.model,
        dataset=query.dataset,
        script=query.script,
        script_sha256=query.script_sha256,
        script_parameters=query.parameter,
        training_pass=query.training_pass,
        global_batch_size=values[_BATCH_SIZE.name],
        **profile_fields(values),
        epochs=query.epochs or 1,
        target_accuracy_ratio=query.target_accuracy,
        strategies=query.strategy,
        world_sizes=query.world_sizes,
        instance_types=query.instance_types,
        networks=query.network,
    )


def read_objective(query: _Question) -> Objective:
    """Return the weights of time and cost, and the limits.

    Raises:
        InvalidSpec: the weights weigh nothing.
    """
    return Objective(
        alpha=query.alpha,
        beta=query.beta,
        budget_usd=query.budget_usd,
        deadline_s=query.deadline_s,
        min_accuracy_ratio=query.min_accuracy,
        max_machine_count=query.machines,
    )


def read_prices(query: AdviceParameters, table: Prices) -> Prices:
    """Return the prices for the answer: those of the question, else those of the table."""
    return table.with_given(by_type(query.prices), on=now().date())


def given_question() -> MultiDict[str, str]:
    """Return the query of a page without empty fields of forms, and with ticked names as one list.

    Raises:
        InvalidSpec: a parameter is unknown, or there twice and no list.
    """
    allowed = parameters.names(RecommendationParameters)
    given: MultiDict[str, str] = MultiDict()
    for name, values in request.args.lists():
        if name == _PRICES or name.startswith(_FIELD):
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
        given[_PRICES] = prices
    return given


def is_as_given(given: MultiDict[str, str]) -> bool:
    """Whether this URL is the shortest form of its question."""
    return request.args.to_dict(flat=False) == {name: [value] for name, value in given.items()}

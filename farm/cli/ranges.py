"""Range checks for numbers on a command line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

from farm.configuration.spec import LARGEST
from farm.errors import InvalidSpec
from farm.values.fields import parse_whole_number

_F = TypeVar("_F", bound=Callable[..., Any])


class Real(click.FloatRange):
    """A range that refuses NaN, which click accepts."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class CountRange(click.IntRange):
    """A range of whole numbers; 64.0 and 6.4e1 are 64, as in the API."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = parse_whole_number(str(value).strip())
        low = 0 if self.min is None else int(self.min)
        if number is None or number < low or (self.max is not None and number > self.max):
            expected = f"at least {low}" if self.max is None else f"from {low} to {self.max}"
            self.fail(f"expected a whole number {expected}, got {value!r}", param, ctx)
        return number


def whole_numbers(option: str, text: str, *, most: int, example: str) -> tuple[int, ...]:
    """Read whole numbers from 1 to `most`, with commas between them. Raises InvalidSpec."""
    numbers = []
    for part in text.split(","):
        number = parse_whole_number(part.strip())
        if number is None or not 1 <= number <= most:
            raise InvalidSpec(option, text, f"whole numbers from 1 to {most}, such as {example}")
        numbers.append(number)
    return tuple(numbers)


def _weight(ctx: click.Context, param: click.Parameter, value: float) -> float:
    del ctx
    if not 0 <= value <= LARGEST:
        raise InvalidSpec(f"--{param.name}", value, f"a number from 0 to {LARGEST:g}")
    return value


def weight_options(command: _F) -> _F:
    """Add the weights of an objective, within the bounds of the API."""
    for name, default, help_text in (
        ("--beta", 0.0, "Weight of cost, in 1/USD."),
        ("--alpha", 1.0, "Weight of time, in 1/s."),
    ):
        command = click.option(
            name, default=default, show_default=True, callback=_weight, help=help_text
        )(command)
    return command

"""Numbers on a command line."""

from __future__ import annotations

import math
from typing import Any

import click


class Real(click.FloatRange):
    """A range without NaN, which click would take, as it is neither below nor above anything."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number

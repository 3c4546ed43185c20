"""Bounds of numbers, texts and lists, which message fields declare in their types.

A field is declared as `train_s: Duration`. The codec reads the bounds from the annotation and
refuses values beyond them wherever a message enters. So every bound is declared once, with the
field. The bounds are far beyond anything that a machine can measure: a refused value is a fault or
a lie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the greatest number that is taken, both included; `or_zero`: and 0."""

    low: float
    high: float
    unit: str = ""
    or_zero: bool = False

    def takes(self, number: float) -> bool:
        return self.low <= number <= self.high or (self.or_zero and number == 0)

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        zero = "0, or " if self.or_zero else ""
        return f"{zero}a number from {self.low:g} to {self.high:g}{unit}"


@dataclass(frozen=True, slots=True)
class Length:
    """The most characters of a text, or the most items of a list or a table.

    A text with a length is stored or shown: characters that no database takes are replaced in it.
    """

    most: int


@dataclass(frozen=True, slots=True)
class RangesByName:
    """Ranges of numbers in a table that agents name: by the name's ending, or `other`.

    `most`: as many items; `most_characters`: of a name.
    """

    by_ending: tuple[tuple[str, Range], ...]
    other: Range
    most: int
    most_characters: int

    def of(self, name: str) -> Range:
        fitting = (bound for ending, bound in self.by_ending if name.endswith(ending))
        return next(fitting, self.other)


LEAST_TIME_S, MOST_TIME_S = 1e-9, 1e9  # what no clock resolves, and 32 years
MOST_BYTES = 2**60
MOST_COUNT = 2**31 - 1  # what the store's columns hold
_MOST_POWER_W = 1e6  # of one machine
_MOST_UNIX_S = 1e11  # a clock may be wrong, by 3,000 years
_MOST_FIGURE = 1e100  # the sum and the square of such numbers are finite
# Counters of used CPU time are read up to a quarter of a second late, and count whole clock ticks.
MOST_COUNTED_SHARE = 1.3

Duration = Annotated[float, Range(LEAST_TIME_S, MOST_TIME_S, "s")]
# A time that may be nothing: since a beginning, or spent on what was not there to do.
Span = Annotated[float, Range(LEAST_TIME_S, MOST_TIME_S, "s", or_zero=True)]
# What is left between two times, which rounding alone may make.
Difference = Annotated[float, Range(0.0, MOST_TIME_S, "s")]
UnixTime = Annotated[float, Range(0.0, _MOST_UNIX_S, "s")]
Share = Annotated[float, Range(0.0, 1.0)]
CountedShare = Annotated[float, Range(0.0, MOST_COUNTED_SHARE)]
Rate = Annotated[float, Range(0.0, float(MOST_BYTES), "per second")]
# Of what goes on while there is time: never none.
Throughput = Annotated[float, Range(1e-9, float(MOST_BYTES), "per second")]
ByteSize = Annotated[int, Range(0, MOST_BYTES, "bytes")]
Count = Annotated[int, Range(0, MOST_COUNT)]
Port = Annotated[int, Range(0, 65535)]
Identifier = Annotated[int, Range(0, 2**63 - 1)]  # of the store's rows, and what counts messages
# A number of which only its user knows what it means, such as a loss, or in free JSON.
FINITE_FLOAT = Range(-_MOST_FIGURE, _MOST_FIGURE)
FiniteFloat = Annotated[float, FINITE_FLOAT]
# Metrics beside those that have a field of their own, such as gpu0_ratio.
EXTRAS = RangesByName(
    (
        ("_ratio", Range(0.0, MOST_COUNTED_SHARE)),
        ("_bytes", Range(0.0, float(MOST_BYTES), "bytes")),
        ("_per_s", Range(0.0, float(MOST_BYTES), "per second")),
        ("_w", Range(0.0, _MOST_POWER_W, "W")),
        ("_hz", Range(0.0, float(MOST_BYTES), "Hz")),
        ("_s", Range(LEAST_TIME_S, MOST_TIME_S, "s", or_zero=True)),
    ),
    other=Range(-float(MOST_BYTES), float(MOST_BYTES)),
    most=400,  # 17 of each of 16 GPUs, and the machine's
    most_characters=64,
)

ShortText = Annotated[str, Length(300)]  # of a thing: a machine, a file, a version
LongText = Annotated[str, Length(8000)]  # a sentence or two for people

"""What is written for people keeps the order of the values, and can be written of every value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farm.text.display import (
    MISSING,
    between,
    bit_rate,
    byte_count,
    byte_rate,
    count,
    decimal,
    dollars,
    duration,
    kilobytes,
    megabytes,
    milliseconds,
    percent,
    plain,
    plus_minus,
    roughly,
)

UNITS = {
    **{"": 1.0, "%": 0.01, "USD": 1.0, "Mbit/s": 125e3},
    **{"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "days": 86400.0},
    **{"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12},
    **{"B/s": 1.0, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12},
}
WRITTEN = re.compile(r"([0-9.]+(?:e-[0-9]+)?) ?([A-Za-zµ%/]*)")
NO_VALUES = [None, math.nan, math.inf, -math.inf]
times_s = st.floats(0, 1e12) | st.floats(1e-9, 1e-2) | st.floats(1, 1e5)
numbers = st.floats(-1e18, 1e18) | st.floats(-1e-3, 1e-3) | st.integers(-(10**18), 10**18)
writers = pytest.mark.parametrize(
    "write", [duration, byte_count, byte_rate, bit_rate, percent, count, decimal, dollars]
)


def read(text: str) -> float:
    """Return the value that a text stands for."""
    text = text.replace("\u202f", "")
    sign = -1 if text.startswith("-") else 1
    return sign * sum(float(n) * UNITS[unit] for n, unit in WRITTEN.findall(text))


@writers
@given(one=numbers, other=numbers)
def test_the_larger_of_two_values_is_never_written_as_the_smaller(
    write: Callable[[float], str], one: float, other: float
) -> None:
    low, high = sorted((one, other))
    assert read(write(low)) <= read(write(high))


@given(one=times_s, other=times_s)
def test_the_longer_of_two_times_is_never_written_as_the_shorter(one: float, other: float) -> None:
    low_s, high_s = sorted((one, other))
    assert read(duration(low_s)) <= read(duration(high_s))
    assert read(roughly(low_s)) <= read(roughly(high_s))


@given(st.floats(1e-6, 1.7e5))
def test_what_is_written_is_the_value_to_three_digits(value: float) -> None:
    assert read(duration(value)) == pytest.approx(value, rel=0.0051 if value < 60 else 0.01)
    assert read(byte_rate(max(1.0, value))) == pytest.approx(max(1.0, value), rel=0.0051)


@given(
    st.floats(-1e300, 1e300) | st.integers(-(10**300), 10**300) | st.sampled_from(NO_VALUES),
    st.floats(0, 1e300),
)
def test_every_value_has_a_text_and_one_that_is_no_number_is_missing(
    value: float | None, around_s: float
) -> None:
    for write in (duration, roughly, byte_count, byte_rate, bit_rate, percent, count, decimal):
        text = write(value)
        assert "inf" not in text
        assert len(text) < 40
        assert (text == MISSING) == (value in NO_VALUES)
    for text in (dollars(value), milliseconds(value), kilobytes(value), megabytes(value)):
        assert (text == MISSING) == (value in NO_VALUES)
    for text in (plus_minus(value), between(value, value, around_s)):
        assert (text == "") == (value in NO_VALUES)


@given(numbers)
def test_a_value_in_plain_characters_is_the_same_value_in_ascii(value: float) -> None:
    for write in (duration, byte_count, byte_rate, bit_rate, percent, count, decimal, dollars):
        text = plain(write(value))
        assert text.isascii()
        assert plain(text) == text
        assert read(text.replace(" us", " µs").replace(" ", "")) == read(
            write(value).replace(" ", "")
        )

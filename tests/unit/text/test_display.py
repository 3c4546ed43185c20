"""How pages and commands write values."""

from __future__ import annotations

import ast
import datetime as dt
import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from farm.gang.lifecycle import JobState
from farm.text.display import (
    MISSING,
    ago,
    between,
    bit_rate,
    byte_count,
    byte_rate,
    clock,
    count,
    decimal,
    deviation,
    dollars,
    duration,
    flop_rate,
    joules,
    machine_hours,
    percent,
    percent_in_digits,
    plus_minus,
    points,
    roughly,
)
from web.app import state_shares

ROOT = Path(__file__).parents[3]
NOW = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, MISSING),
        (0.0, "0 s"),
        (9.88e-324, "9.88e-318 µs"),
        (0.000_000_003, "0.003 µs"),
        (0.0000021, "2.10 µs"),
        (0.00099949, "999 µs"),
        (0.0009996, "1.00 ms"),
        (0.0123, "12.3 ms"),
        (0.99949, "999 ms"),
        (0.9996, "1.00 s"),
        (4.56, "4.56 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (200.0, "3 min 20 s"),
        (3599.6, "1 h"),
        (7500.0, "2 h 5 min"),
        (200_000.0, "2 days"),
        (1e9, "11\u202f574 days"),
        (1e300, "1.16e+295 days"),
        (-0.0123, "-12.3 ms"),
        (math.nan, MISSING),
        (math.inf, MISSING),
    ],
)
def test_durations_have_three_digits_and_the_unit_that_fits(
    seconds: float | None, text: str
) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, MISSING), (0.2, "1 s"), (32.4, "32 s"), (100.0, "2 min")]
)
def test_estimates_claim_no_more_than_they_know(seconds: float | None, text: str) -> None:
    assert roughly(seconds) == text


@pytest.mark.parametrize(
    ("low_s", "high_s", "around_s", "text"),
    [
        (0.0117, 0.0131, 0.0124, "11.7 to 13.1"),
        (0.198, 0.202, 0.2, "198 to 202"),
        (4.5, 4.6, 4.56, "4.50 to 4.60"),
        (190.0, 210.0, 200.0, "3 min 10 s to 3 min 30 s"),
        (0.0, 0.004, 0.0, "0 s to 4.00 ms"),
        (None, 1.0, 1.0, ""),
        (1.0, 1.0, None, ""),
    ],
)
def test_a_range_has_the_unit_and_the_digits_of_its_median(
    low_s: float | None, high_s: float | None, around_s: float | None, text: str
) -> None:
    assert between(low_s, high_s, around_s) == text


def test_half_of_an_interval_is_in_percent() -> None:
    assert (plus_minus(0.0123), plus_minus(None)) == ("± 1.2 %", "")


def test_what_was_not_measured_is_a_dash_and_zero_is_zero() -> None:
    for write in (byte_count, byte_rate, bit_rate, flop_rate, joules, percent, count, decimal):
        assert write(None) == MISSING
    assert (byte_count(0), byte_rate(0), percent(0), count(0)) == ("0 B", "0 B/s", "0 %", "0")
    assert (flop_rate(0), flop_rate(1.5e12)) == ("0 FLOP/s", "1.50 TFLOP/s")
    assert (joules(0), joules(12_345.6)) == ("0 J", "12.3 kJ")


def test_bytes_are_counted_in_powers_of_a_thousand() -> None:
    written = [byte_count(n) for n in (999, 1000, 999_499, 999_500, 421e6, 8.34e9, 5e15)]
    assert written == [
        "999 B",
        "1.00 kB",
        "999 kB",
        "1.00 MB",
        "421 MB",
        "8.34 GB",
        "5\u202f000 TB",
    ]
    assert [byte_count(n) for n in (0.25, 12.5, -2e3)] == ["0.25 B", "12.5 B", "-2.00 kB"]


def test_a_small_number_is_not_written_as_nothing() -> None:
    assert [decimal(n) for n in (0, 0.0003, 0.0099, 0.012, -0.0003)] == [
        *("0", "0.0003", "0.0099", "0.01", "-0.0003"),
    ]
    assert [text for text in map(count, (-0.4, 1234)) if text] == ["0", "1\u202f234"]


def test_an_instant_is_written_in_utc() -> None:
    east = dt.timezone(dt.timedelta(hours=2))
    assert clock(dt.datetime(2026, 3, 1, 14, 0, 5, tzinfo=east)) == "2026-03-01 12:00:05 UTC"
    assert clock(None) == MISSING


def test_a_bandwidth_is_in_megabits_as_it_is_asked_for() -> None:
    assert [bit_rate(n) for n in (1500, 1.25e6, 12.4e6)] == [
        "0.01 Mbit/s",
        "10.0 Mbit/s",
        "99.2 Mbit/s",
    ]


def test_an_age_is_never_negative() -> None:
    ages = [ago(NOW - dt.timedelta(seconds=s), NOW) for s in (-5, 3, 90, 7200, 200_000)]
    assert ages == ["0 s ago", "3 s ago", "1 min ago", "2 h ago", "2 days ago"]
    assert ago(None, NOW) == "never"


def test_the_shares_of_a_progress_bar_leave_room_for_what_waits() -> None:
    counts = dict.fromkeys(JobState, 0) | {
        JobState.SUCCEEDED: 2,
        JobState.RUNNING: 1,
        JobState.LEASED: 1,
        JobState.WAITING: 4,
    }
    assert state_shares(counts) == [("succeeded", 25.0), ("active", 25.0)]
    assert state_shares(dict.fromkeys(JobState, 0)) == []


@pytest.mark.parametrize(
    ("usd", "written"),
    [(0.0, "0 USD"), (5e-5, "0.00005 USD"), (0.01234, "0.0123 USD"), (20.0, "20 USD")],
)
def test_money_is_written_without_powers_of_ten(usd: float, written: str) -> None:
    assert dollars(usd) == written


# Modules that may convert or name a unit themselves, and what for.
EXCEPTIONS = {
    "farm/text/display.py": "it is the one that writes values",
    "farm/lab/hosts.py": "an argument of tc",
    "farm/store/engine.py": "a setting of PostgreSQL",
    "farm/store/maintenance/partitions.py": "a setting of PostgreSQL",
    "web/errors.py": "the limit of a body, which is a whole number of MiB",
    "web/app.py": "the header Server-Timing",
    "benchmarks/web/recommend.py": "a parameter of an address",
}
# Of farm.text.display and farm.studies.text: a value whose unit stands beside it.
WITHOUT_UNIT = {
    *("exact_milliseconds", "milliseconds", "microseconds", "kilobytes", "megabytes"),
    *("delay_ms", "ms", "us", "kb", "mb", "significant", "span"),
}
UNIT = r" ?(?:µs|us|ms|[kMGT]i?B|[kM]bit)\b"
PATTERN = re.compile(r"\{[^{}]*\}" + UNIT + r"|%\.?\d*[dfg]" + UNIT)
SCALES = {
    *("1000", "1000.0", "1000000", "1000000.0", "1000000000", "1000000000.0", "8e-06"),
    *("1024", "2 ** 10", "2 ** 20", "2 ** 30"),
}


def conversions(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of a module that write a time or bytes in a unit of their own choice."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            for value, behind in itertools.pairwise([*node.values, ast.Constant("")]):
                if not isinstance(value, ast.FormattedValue):
                    continue
                called = value.value.func if isinstance(value.value, ast.Call) else None
                named = getattr(called, "attr", getattr(called, "id", ""))
                text = behind.value if isinstance(behind, ast.Constant) else ""
                if _is_scaled(value.value) or (
                    named not in WITHOUT_UNIT and re.match(UNIT, str(text))
                ):
                    yield node.lineno
        elif isinstance(node, ast.Constant) and PATTERN.search(str(node.value)):
            yield node.lineno


def _is_scaled(value: ast.expr) -> bool:
    return any(
        isinstance(part, ast.BinOp)
        and isinstance(part.op, ast.Mult | ast.Div)
        and any(ast.unparse(side) in SCALES for side in (part.left, part.right))
        for part in ast.walk(value)
    )


def test_no_other_module_writes_milliseconds_or_kilobytes() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for package in ("farm", "web", "worker_agent", "benchfarm", "benchmarks")
        for path in sorted((ROOT / package).rglob("*.py"))
        if str(path.relative_to(ROOT)) not in EXCEPTIONS
        for line in conversions(ast.parse(path.read_text()))
    }
    assert found == set(), "farm.text.display writes values"
    scripts = "".join(path.read_text() for path in (ROOT / "web" / "static").glob("*.js"))
    assert re.search(rf"[\"'`}}]{UNIT}|toFixed|toPrecision", scripts) is None
    templates = "".join(path.read_text() for path in (ROOT / "web" / "templates").glob("*.html"))
    assert re.search(r"\}\}" + UNIT, templates) is None
    assert set(re.findall(r"\* ?(?:1000|1e3)\)?\|?\w*", templates)) <= {"* 1000)|round"}


@pytest.mark.parametrize(
    "line",
    [
        'f"{time_s * 1e3:.1f} ms"',
        'f"{time_ms:.1f} ms"',
        'f"{size / 2**20:.0f} MiB"',
        'f"{size / 1000:.1f}"',
        '"{:g} ms of delay"',
        '"%.1f kB" % size',
    ],
)
def test_another_module_that_writes_units_would_be_found(line: str) -> None:
    assert list(conversions(ast.parse(line)))


def test_every_exception_is_one() -> None:
    for name in EXCEPTIONS:
        assert list(conversions(ast.parse((ROOT / name).read_text()))), name


@pytest.mark.parametrize(
    ("value", "text"), [(8.12e-4, "0.000812"), (0.0099, "0.0099"), (3e-9, "0.000000003")]
)
def test_small_numbers_have_three_digits_too(value: float, text: str) -> None:
    assert decimal(value) == text


def test_no_deviation_has_no_minus() -> None:
    assert deviation(-1e-6) == "+0.0 %"


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(0.02, "2 %"), (0.0123456, "1.2 %"), (0.00024, "0.024 %"), (0.5, "50 %"), (None, MISSING)],
)
def test_significant_digits_of_a_ratio_end_without_zeros(
    ratio: float | None, expected: str
) -> None:
    assert percent_in_digits(ratio, 2) == expected


def test_a_difference_of_ratios_is_in_points() -> None:
    assert points(0.0123) == "1.2 points"
    assert points(-1e-6) == "0.0 points"


@pytest.mark.parametrize(
    ("machine_s", "text"),
    [
        (None, MISSING),
        (0.0, "0 machine hours"),
        (1.8, "0.0005 machine hours"),
        (3600.0, "1 machine hour"),
        (9000.0, "2.5 machine hours"),
        (3.6e9, "1 000 000 machine hours"),
    ],
)
def test_machine_time_is_written_in_hours(machine_s: float | None, text: str) -> None:
    assert machine_hours(machine_s).replace("\u202f", " ") == text

from __future__ import annotations

import datetime as dt

import click
import pytest

from farm.cli.operating.db import Age


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("12h", 43_200), ("30d", 2_592_000), ("1w", 604_800)],
)
def test_an_age_is_a_number_with_its_unit(text: str, seconds: int) -> None:
    assert Age("1s", "60d").convert(text, None, None) == dt.timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["30", "d", "1.5d", "-1d", "1y", "59s", "61d", "999999999w"])
def test_what_is_no_age_within_bounds_is_refused_with_both(text: str) -> None:
    with pytest.raises(click.BadParameter, match="from 1m to 60d, got"):
        Age("1m", "60d").convert(text, None, None)

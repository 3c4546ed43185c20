"""Prices of VMs: a dated table that users can replace by their own."""

from __future__ import annotations

import csv
import datetime as dt
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from farm.errors import InvalidSpec

PRICE_COLUMNS = ("instance_type", "region", "usd_per_hour", "date", "source")
_MAX_FILE_BYTES = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Of one VM for an hour. `date`: on which it was valid."""

    instance_type: str
    region: str
    usd_per_hour: float
    date: dt.date
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """One price for each instance type."""

    by_type: Mapping[str, Price] = field(default_factory=dict)

    @property
    def usd_per_hour(self) -> Mapping[str, float]:
        """The prices alone, by instance type."""
        return {name: price.usd_per_hour for name, price in self.by_type.items()}

    def with_given(self, usd_per_hour: Mapping[str, float], *, on: dt.date) -> Prices:
        """Return these, with what somebody says on that day some types cost."""
        given = {
            name: Price(
                instance_type=name,
                region="",
                usd_per_hour=price,
                date=on,
                source="given with the question",
            )
            for name, price in usd_per_hour.items()
        }
        return Prices(by_type={**self.by_type, **given})


def load_prices(path: Path | None = None, *, region: str | None = None) -> Prices:
    """Read a price table, the shipped one unless a file is named.

    An instance type with several prices has that of `region`; without one, that of its first row.

    Raises:
        InvalidSpec: the file cannot be read, or a value does not fit: names row and column. Or
            the region is not in the table.
    """
    if path is None:
        text = files("farm.recommend").joinpath("prices.csv").read_text(encoding="utf-8")
    else:
        text = _read(path)
    rows = parse_prices(text)
    known = sorted({price.region for price in rows})
    if region is not None and region not in known:
        raise InvalidSpec("region", region, f"one of {', '.join(known) or 'none: no prices'}")
    by_type: dict[str, Price] = {}
    for price in rows:
        if region is None or price.region == region:
            by_type.setdefault(price.instance_type, price)
    return Prices(by_type=by_type)


def parse_prices(text: str) -> Sequence[Price]:
    """Read the rows of a price table; the header is row 1.

    Raises:
        InvalidSpec: a column is missing or unknown, or a value does not fit.
    """
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        given = list(reader.fieldnames or ())
        if sorted(given) != sorted(PRICE_COLUMNS):
            raise InvalidSpec("columns of the price table", given, f"{', '.join(PRICE_COLUMNS)}")
        return [_price(row, reader.line_num) for row in reader]
    except csv.Error as error:
        raise InvalidSpec(f"prices row {reader.line_num}", str(error), "a CSV table") from None


def _price(row: Mapping[str | None, str | None], number: int) -> Price:
    where = f"prices row {number}"
    if None in row or None in row.values():
        raise InvalidSpec(where, list(row.values()), f"{len(PRICE_COLUMNS)} values")
    cells = {str(name): (value or "").strip() for name, value in row.items()}
    if not cells["instance_type"]:
        raise InvalidSpec(f"{where}, instance_type", cells["instance_type"], "a name")
    try:
        usd_per_hour = float(cells["usd_per_hour"])
    except ValueError:
        usd_per_hour = math.nan
    if not 0 <= usd_per_hour < math.inf:
        raise InvalidSpec(f"{where}, usd_per_hour", cells["usd_per_hour"], "a number of at least 0")
    try:
        date = dt.date.fromisoformat(cells["date"])
    except ValueError:
        raise InvalidSpec(f"{where}, date", cells["date"], "a date such as 2026-01-31") from None
    return Price(
        instance_type=cells["instance_type"],
        region=cells["region"],
        usd_per_hour=usd_per_hour,
        date=date,
        source=cells["source"],
    )


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidSpec(
            "price table", str(path), f"a readable file ({error.strerror or error})"
        ) from None
    if len(content) > _MAX_FILE_BYTES:
        raise InvalidSpec(f"price table {path}", "more", f"at most {_MAX_FILE_BYTES} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidSpec("price table", str(path), "UTF-8 text") from None

import datetime as dt
from pathlib import Path

import pytest

from farm.errors import InvalidSpec
from farm.recommend.prices import PRICE_COLUMNS, load_prices, parse_prices

HEADER = ",".join(PRICE_COLUMNS)


def table(*rows: str) -> str:
    return "\n".join([HEADER, *rows])


def test_the_shipped_table_has_dates_regions_and_sources() -> None:
    price = load_prices().by_type["t2.large"]
    assert (price.usd_per_hour, price.region) == (0.0928, "us-east-1")
    assert all(p.date >= dt.date(2026, 1, 1) and p.source for p in load_prices().by_type.values())


def test_a_file_replaces_the_whole_table(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("\ufeff" + table("mine,attic,0.01,2026-03-01,the bill"))
    assert load_prices(file).usd_per_hour == {"mine": 0.01}


def test_of_several_regions_the_named_one_counts_or_else_the_first(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text(table("a,north,1,2026-03-01,x", "a,south,2,2026-03-01,x"))
    assert load_prices(file).usd_per_hour == {"a": 1.0}
    assert load_prices(file, region="south").usd_per_hour == {"a": 2.0}
    with pytest.raises(InvalidSpec, match=r"^region: expected one of north, south, got 'west'"):
        load_prices(file, region="west")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,north,many,2026-03-01,x", "prices row 2, usd_per_hour: expected a number of at least"),
        ("a,north,-1,2026-03-01,x", "prices row 2, usd_per_hour: expected a number of at least"),
        ("a,north,nan,2026-03-01,x", "prices row 2, usd_per_hour: expected a number of at least"),
        ("a,north,1,yesterday,x", "prices row 2, date: expected a date such as"),
        (",north,1,2026-03-01,x", "prices row 2, instance_type: expected a name"),
        ("a,north,1,2026-03-01", "prices row 2: expected 5 values"),
        ("a,north,1,2026-03-01,x,y", "prices row 2: expected 5 values"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_row_and_column(row: str, message: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_prices(table(row))
    assert str(refused.value).startswith(message)


def test_another_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="columns of the price table"):
        parse_prices("type,price\na,1\n")
    with pytest.raises(InvalidSpec, match="price table: expected a readable file"):
        load_prices(tmp_path / "nowhere.csv")

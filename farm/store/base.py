"""Base of all tables: their schema, and the types of their columns.

They work on SQLite and PostgreSQL.
"""

from __future__ import annotations

import datetime as dt
import enum
from typing import Any, ClassVar, TypeVar, get_args

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.types import TypeDecorator

from farm.configuration.axis import Axis
from farm.values.fields import Amount, Boolean, WholeNumber
from farm.values.ranges import (
    ByteSize,
    Count,
    CountedShare,
    Difference,
    Duration,
    FiniteFloat,
    Range,
    Rate,
    Share,
    Throughput,
)

_E = TypeVar("_E", bound=enum.Enum)

# SQLite numbers rows only for INTEGER keys; PostgreSQL gets 64 bits.
BigId = sa.BigInteger().with_variant(sa.Integer, "sqlite")


class Utc(TypeDecorator[dt.datetime]):
    """An aware instant in UTC. SQLite forgets time zones, so they are put back on reading."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: dt.datetime | None, dialect: sa.Dialect) -> Any:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a naive instant, {value}, has no place in the store")
        return value.astimezone(dt.UTC)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> dt.datetime | None:
        if value is None:
            return None
        stored: dt.datetime = value
        return stored.replace(tzinfo=dt.UTC) if stored.tzinfo is None else stored.astimezone(dt.UTC)


def state_column(kind: type[_E], name: str) -> sa.Enum:
    """Return the type of a state: its text, which the database checks against the enumeration."""
    return sa.Enum(
        kind,
        name=name,
        native_enum=False,
        create_constraint=True,
        length=16,
        values_callable=lambda states: [s.value for s in states],
    )


def axis_type(axis: Axis) -> sa.types.TypeEngine[Any]:
    """Return the type of an axis' column."""
    match axis.type:
        case WholeNumber():
            return sa.Integer()
        case Amount():
            return sa.Double()
        case Boolean():
            return sa.Boolean()
    return sa.Text()


class Plausible(TypeDecorator[float]):
    """A number that is read as None if it is beyond its range.

    Earlier versions stored any reported number, and no page or answer may fail because of it.
    """

    impl = sa.Double
    cache_ok = True

    def __init__(self, bound: Range) -> None:
        super().__init__()
        self.bound = bound

    @property
    def python_type(self) -> type[float]:
        return float

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> float | None:
        return value if value is not None and self.bound.takes(value) else None


def is_known(column: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Whether a `Plausible` column holds a number within its range."""
    assert isinstance(column.type, Plausible)
    return column.between(column.type.bound.low, column.type.bound.high)


class Table(DeclarativeBase):
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        Count: sa.Integer(),
        ByteSize: sa.BigInteger(),
        **{
            kind: Plausible(get_args(kind)[1])
            for kind in (CountedShare, Difference, Duration, FiniteFloat, Rate, Share, Throughput)
        },
    }
    metadata = sa.MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )

"""What all tables share: the schema they belong to, and the types of their columns.

Written for SQLite and PostgreSQL alike.
"""

from __future__ import annotations

import datetime as dt
import enum
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.types import TypeDecorator

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
    """Return the type of a state: its text, held to the enumeration by the database."""
    return sa.Enum(
        kind,
        name=name,
        native_enum=False,
        create_constraint=True,
        length=16,
        values_callable=lambda states: [s.value for s in states],
    )


class Table(DeclarativeBase):
    metadata = sa.MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )

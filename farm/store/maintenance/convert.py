"""Convert a store from before the first release, in place and in one transaction.

Such a store was made by migrations that no longer exist. Missing tables and columns of today's
first migration are added, and rows that today's program would read differently are changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam, func, select, update

from farm.configuration.axes import AXES_BY_FIELD
from farm.configuration.axis import AxisKind
from farm.configuration.spec import TENSORFLOW, JobSpec
from farm.errors import FarmError, Unreachable
from farm.store.engine import redacted
from farm.store.schema import (
    CONVERTIBLE_REVISIONS,
    FORMER_REVISIONS,
    alembic_config,
    differences_from,
    migrating,
    refusal_of,
    refuse_newer,
    revision_of,
    revisions,
    stamp,
)
from farm.values.codec import from_stored

_FIRST_REVISION = "initial"
# The tables that were added with a former revision. What others changed: `_change_columns`.
_ADDED_TABLES = {
    "script_bundles": ("script_bundles", "script_bundle_pieces"),
    "baselines": ("baselines",),
    "notifications": ("notification_targets", "notification_events", "notification_deliveries"),
    "tracker_cursors": ("tracker_cursors",),
    "imported_samples": ("imported_samples",),
}
_IN_PARTS = {"yield_per": 1000}
# The first programs wrote a flag's value into its message only, such as "agent a1, rank 0: 81 % of
# its cores was used by other programs (limit 30 %)".
_VALUE = re.compile(r"(\d[\d.]*(?:e[+-]?\d+)?) (%|MB/s|times)")
_UNITS = {"%": 0.01, "MB/s": 1e6, "times": 1.0}
_NOT_PERMITTED = "42501"  # PostgreSQL's insufficient_privilege
# SQLite's errors of tables and columns; PostgreSQL's are not operational errors.
_OF_SQLITE_TABLES = re.compile(r"no such|duplicate column")


def convert(engine: sa.Engine, *, shown: str | None = None) -> bool:
    """Convert the store; return False if it already has a revision of today's history.

    Nothing may write to it meanwhile. `shown`: what refusals call it, its URL by default.

    Raises:
        FarmError: its revision is older than those that can be converted, its tables are not
            those of its revision, or they contain a value that no such program has written.
        Unreachable: the database does not answer, is empty, or is of a newer version.
    """
    from alembic import command

    shown = shown or f"database {redacted(engine.url)}"
    with migrating(engine) as connection:
        found = revision_of(connection)
        if found is None:
            raise Unreachable(f"{shown} has no schema to convert: run `farm db upgrade`")
        if found in revisions():
            return False
        refuse_newer(found, shown)
        _refuse_too_old(found, shown)
        tables = _first_tables()
        lacking = CONVERTIBLE_REVISIONS[CONVERTIBLE_REVISIONS.index(found) + 1 :]
        if differences := _bring_up_to_date(connection, tables, lacking):
            raise FarmError(f"{refusal_of(differences, found, shown)}, then convert it")
        if "first_release" in lacking:
            _hash_cells(connection, tables.tables["jobs"])
            _rewrite(connection, tables.tables["sweeps"].c.skipped, _with_axes)
            _rewrite(connection, tables.tables["measurements"].c.flags, _with_values)
            _rewrite(connection, tables.tables["agents"].c.facts, _with_tensorflow)
        stamp(connection, _FIRST_REVISION)
        command.upgrade(alembic_config(connection), "head")
    return True


def _refuse_too_old(found: str, shown: str) -> None:
    """Raise FarmError if a store has a former revision that cannot be converted."""
    if found in FORMER_REVISIONS and found not in CONVERTIBLE_REVISIONS:
        first = CONVERTIBLE_REVISIONS[0]
        raise FarmError(
            f"{shown} has schema {found}, expected {first}: run `farm db upgrade` of the last "
            f"version with schema {first} on it, then convert it "
            "(docs/operations.md, Stores from before the first release)"
        )


def _first_tables() -> sa.MetaData:
    from alembic.script import ScriptDirectory

    script = ScriptDirectory.from_config(alembic_config()).get_revision(_FIRST_REVISION)
    tables: sa.MetaData = script.module.TABLES
    return tables


def _bring_up_to_date(
    connection: sa.Connection, tables: sa.MetaData, lacking: Sequence[str]
) -> list[str]:
    """Add the missing tables and columns; return the remaining differences."""
    try:
        for revision in (*lacking, _FIRST_REVISION):
            added = _ADDED_TABLES.get(revision, ())
            tables.create_all(connection, [tables.tables[name] for name in added])
            _change_columns(connection, revision)
        return differences_from(connection, tables)
    except sa.exc.SQLAlchemyError as error:  # as where a table that is to be changed is missing
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        if isinstance(error, sa.exc.OperationalError) and not _OF_SQLITE_TABLES.search(str(cause)):
            raise  # the database is full, busy or gone
        if getattr(cause, "sqlstate", None) == _NOT_PERMITTED:
            raise
        return [" ".join(str(cause).split())]


def _change_columns(connection: sa.Connection, revision: str) -> None:
    """Change the columns that a revision changed, if there are any."""
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    op = Operations(MigrationContext.configure(connection))
    if revision == "agent_count":
        op.alter_column("jobs", "rank_count", new_column_name="agent_count")
    elif revision == "budgets":
        op.add_column("sweeps", sa.Column("budget_machine_s", sa.Double()))
        op.add_column("sweeps", sa.Column("budget_used_up_at", sa.DateTime(timezone=True)))
    elif revision == "step_processes":
        name = "pk_step_chunks"
        with op.batch_alter_table("step_chunks") as batch:
            batch.add_column(sa.Column("process", sa.Integer(), nullable=False, server_default="0"))
            batch.drop_constraint(name, type_="primary")
            batch.create_primary_key(name, ["attempt_id", "rank", "process", "first_step"])
    elif revision == _FIRST_REVISION:
        with op.batch_alter_table("measurements") as batch:
            for name in ("training_pass", "server_placement", "batch_split"):
                batch.alter_column(name, type_=sa.Text())


def _hash_cells(connection: sa.Connection, jobs: sa.Table) -> None:
    """Hash configurations again: an earlier version left out new fields that had their default.

    A job whose specification cannot be read any more keeps its hash.
    """
    firsts = select(func.min(jobs.c.id)).group_by(jobs.c.cell_hash)
    query = select(jobs.c.cell_hash, jobs.c.spec).where(jobs.c.id.in_(firsts))
    with _naming(jobs.c.spec), connection.execute(query, execution_options=_IN_PARTS) as rows:
        changes = [
            {"former": former, "new": spec.cell_hash}
            for former, stored in rows
            if (spec := from_stored(JobSpec, stored)) is not None
        ]
    change = update(jobs).where(jobs.c.cell_hash == bindparam("former"))
    _write(connection, change.values(cell_hash=bindparam("new")), changes)


def _rewrite(
    connection: sa.Connection, column: sa.Column[Any], change: Callable[[Any], Any]
) -> None:
    """Replace each value of a column that `change` returns otherwise."""
    key = column.table.c.id
    query = select(key, column)
    with _naming(column), connection.execute(query, execution_options=_IN_PARTS) as rows:
        changes = [
            {"row": row_id, "new": new}
            for row_id, former in rows
            if (new := change(former)) != former
        ]
    statement = update(column.table).where(key == bindparam("row"))
    _write(connection, statement.values({column: bindparam("new", type_=column.type)}), changes)


@contextmanager
def _naming(column: sa.Column[Any]) -> Iterator[None]:
    """Name the column of a value that no former program has written."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise FarmError(
            f"column {column.name} of table {column.table.name} has a value that cannot be "
            f"converted ({error!r}): change it by hand or restore a backup, then convert again"
        ) from error


def _with_axes(skipped: Sequence[str]) -> list[str]:
    """Write the network of cells that were left out as sweep files do; it was in base units."""
    return [_with_names(line) for line in skipped]


def _with_names(line: str) -> str:
    """Return a line such as "case[0]: one_way_delay_s=0.02 world_size=2: reason" as it is now."""
    case, _, rest = line.partition(": ")
    values, colon, reason = rest.partition(": ")
    named = " ".join(_with_name(value) for value in values.split(" "))
    return f"{case}: {named}{colon}{reason}" if case.startswith("case[") else line


def _with_name(value: str) -> str:
    name, _, amount = value.partition("=")
    axis = AXES_BY_FIELD.get(name)
    if axis is None or axis.name == name or axis.kind is not AxisKind.PROFILE:
        return value
    return f"{axis.name}={axis.address(float(amount))}"


def _with_values(flags: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Write the value of each flag that has it in its message alone."""
    return [_with_value(flag) for flag in flags]


def _with_value(flag: Mapping[str, Any]) -> Mapping[str, Any]:
    _, _, phrase = str(flag.get("message", "")).partition(": ")
    found = _VALUE.search(phrase)
    if flag.get("value") is not None or found is None:
        return flag
    return {**flag, "value": float(found[1]) * _UNITS[found[2]]}


def _with_tensorflow(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add TensorFlow to what an agent can do, where only its version among the facts says so."""
    capabilities = facts["capabilities"]
    if facts["hardware"]["tensorflow_version"] is None or TENSORFLOW in capabilities:
        return facts
    return {**facts, "capabilities": [*capabilities, TENSORFLOW]}


def _write(connection: sa.Connection, change: sa.Update, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(change, rows)

"""Stores from before the first release, with rows, as those programs' migrations made them.

`former_stores/sqlite.sql` is what Python's `iterdump` wrote of one with schema 0014;
`postgresql.sql` is what `pg_dump --inserts --no-owner` did, without its comments and settings. The
schema `first_schema` has the same tables, and `script_bundles` the two of `_BUNDLES` besides.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa

FORMER_REVISION = "0014"
_DUMPS = Path(__file__).parent / "former_stores"
_BUNDLES = """
CREATE TABLE script_bundles (
    sha256 VARCHAR(64) NOT NULL,
    byte_count INTEGER NOT NULL,
    piece_count INTEGER NOT NULL,
    added_at {instant} NOT NULL,
    CONSTRAINT pk_script_bundles PRIMARY KEY (sha256)
);
CREATE TABLE script_bundle_pieces (
    sha256 VARCHAR(64) NOT NULL,
    number INTEGER NOT NULL,
    content {binary} NOT NULL,
    CONSTRAINT pk_script_bundle_pieces PRIMARY KEY (sha256, number),
    CONSTRAINT fk_script_bundle_pieces_sha256 FOREIGN KEY(sha256)
        REFERENCES script_bundles (sha256) ON DELETE CASCADE
);
INSERT INTO script_bundles VALUES ('ab', 3, 1, '2026-03-01 12:00:00.000000');
INSERT INTO script_bundle_pieces VALUES ('ab', 0, {content});
"""
_TYPES = {
    "sqlite": {"instant": "DATETIME", "binary": "BLOB", "content": "X'010203'"},
    "postgresql": {
        "instant": "TIMESTAMP WITH TIME ZONE",
        "binary": "BYTEA",
        "content": r"'\x010203'",
    },
}


def make_former_store(engine: sa.Engine, *, revision: str = FORMER_REVISION) -> None:
    """Fill an empty database; `revision` is one of those that can be converted."""
    dialect = engine.dialect.name
    script = (_DUMPS / f"{dialect}.sql").read_text()
    if revision == "script_bundles":
        script += _BUNDLES.format(**_TYPES[dialect])
    script += f"\nUPDATE alembic_version SET version_num = '{revision}';"
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        if dialect == "sqlite":
            # The dump has its tables in the order of their names.
            driver.executescript(f"PRAGMA foreign_keys = OFF;\n{script}\nPRAGMA foreign_keys = ON;")
        else:
            driver.execute(script)
            driver.commit()


def contents(engine: sa.Engine) -> dict[str, list[dict[str, Any]]]:
    """Read every row of every table but Alembic's, by the names of columns, in a fixed order."""
    found = {}
    with engine.connect() as connection:
        names = sa.inspect(connection).get_table_names()
        # Samples are read through the table of all partitions.
        for name in {name for name in names if not name.startswith(("alembic", "samples_"))}:
            table = sa.Table(name, sa.MetaData(), autoload_with=connection)
            rows = connection.execute(sa.select(table).order_by(*table.primary_key)).mappings()
            found[name] = [dict(row) for row in rows]
    return found

"""Backs up the whole store into one SQLite file, and restores it.

A backup is a copy (farm.store.maintenance.copy), so a backup of either database can be restored
into either, and every table's checksum was compared when it was written. Unlike a moved store, a
restored one must expect that agents have since seen attempts that it does not know.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import update
from sqlalchemy.orm import Session

from farm.errors import FarmError, Unreachable
from farm.store.engine import make_engine, reading
from farm.store.gangs.leases import latest_token, raise_latest_token
from farm.store.identity import take_over
from farm.store.maintenance.convert import convert
from farm.store.maintenance.copy import CopiedTable, ProgressCallback, copy_store
from farm.store.schema import FORMER_REVISIONS, refuse_newer, revision_of, upgrade
from farm.store.tables import AgentRow

# More attempts than a farm makes in the life of a backup: a thousand agents with a job a minute
# make 1.4 million a day, but heartbeats tell a store of tokens beyond this, too.
_TOKENS_SINCE = 2**20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def back_up(
    source: sa.Engine, file: Path, *, now: dt.datetime, progress: ProgressCallback
) -> list[CopiedTable]:
    """Write a snapshot of the store into a new file that nobody else may read.

    The file is written atomically. The farm may be running.

    Raises:
        FarmError: there is such a file already, or it cannot be written.
        Unreachable: the store does not answer, or has another schema.
    """
    if file.exists():
        raise _taken(file)
    try:
        # Beside the target, so that the last step is a rename.
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.") as folder:
            partial = Path(folder) / "store.db"
            tables = _copy_into(partial, source, now=now, progress=progress)
            _take_in_log(partial)
            partial.chmod(0o600)
            _sync(partial)
            _name(partial, file)
        _sync(file.parent)
    except OSError as error:
        raise FarmError(f"{file} cannot be written: {error.strerror or error}") from error
    except sqlite3.Error as error:
        raise FarmError(f"{file} cannot be written: {error}") from error
    return tables


def restore(
    file: Path, target: sa.Engine, *, now: dt.datetime, progress: ProgressCallback
) -> list[CopiedTable]:
    """Fill an empty store from a backup, of this schema or an older one; the file is only read.

    Attempts get tokens beyond those that the lost store may have drawn since the backup, and no
    agent counts as alive before its first heartbeat. Otherwise an attempt could get a token that
    its agents know from another attempt, and late reports of that would count for it.

    Raises:
        FarmError: the file cannot be read or is too old, or the target holds rows.
        Unreachable: the file is no store, or of a newer benchfarm; or the target does not answer.
    """
    with tempfile.TemporaryDirectory(prefix="benchfarm-restore.") as folder:
        own = Path(folder) / file.name
        _copy(file, own)
        _refuse_damaged(own, shown=file)
        source = make_engine(f"sqlite:///{own}")
        try:
            _bring_up_to_date(source, shown=file)
            return copy_store(
                source, target, now=now, is_forced=True, progress=progress, finish=_settle
            )
        finally:
            source.dispose()


def _name(partial: Path, file: Path) -> None:
    """Give the complete file its name, unless that is taken meanwhile.

    Raises:
        FarmError: it has been, as by a second backup at the same time.
        OSError: it cannot be written.
    """
    try:
        os.link(partial, file)
    except FileExistsError:
        raise _taken(file) from None
    except OSError:  # as of a file system without hard links, each of which says it in its own way
        partial.rename(file)


def _taken(file: Path) -> FarmError:
    return FarmError(f"{file} is there already: expected a name for a new file")


def _copy(file: Path, own: Path) -> None:
    """Raises FarmError: it cannot be read, or its copy does not fit."""
    try:
        shutil.copyfile(file, own)
        for log in ("-wal", "-journal"):  # left by a crash; a file of `farm db backup` has neither
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(f"{file}{log}", f"{own}{log}")
    except OSError as error:
        if error.errno not in _FULL:
            raise FarmError(f"{file} cannot be read: {error.strerror or error}") from error
        raise FarmError(
            f"{own.parent.parent}: expected room for a copy of {file}, {file.stat().st_size} "
            f"bytes, got: {error.strerror}: name a folder with more of it in TMPDIR"
        ) from error


def _refuse_damaged(own: Path, *, shown: Path) -> None:
    """Raises FarmError: the file is no database, or a part of it is missing or wrong."""
    try:
        with closing(sqlite3.connect(own)) as connection:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        reason = " ".join(found.split())
        raise FarmError(f"{shown} is damaged, or no backup ({reason}): restore another one")


def _bring_up_to_date(source: sa.Engine, *, shown: Path) -> None:
    """Give a backup's copy this program's schema.

    Raises:
        FarmError: the backup cannot be converted.
        Unreachable: it is no store, or of a newer benchfarm.
    """
    with reading(source) as session:
        found = revision_of(session.connection())
    if found is None:
        raise Unreachable(f"{shown} holds no store: expected a file of `farm db backup`")
    refuse_newer(found, str(shown))
    if found in FORMER_REVISIONS:
        convert(source, shown=str(shown))
    upgrade(source)


def _settle(session: Session) -> None:
    raise_latest_token(session, latest_token(session) + _TOKENS_SINCE)
    session.execute(update(AgentRow).values(heartbeat_at=None))
    take_over(session)


def _copy_into(
    file: Path, source: sa.Engine, *, now: dt.datetime, progress: ProgressCallback
) -> list[CopiedTable]:
    target = make_engine(f"sqlite:///{file}")
    try:
        return copy_store(source, target, now=now, is_forced=True, progress=progress)
    finally:
        target.dispose()


def _take_in_log(file: Path) -> None:
    """Move the content of a store's write-ahead log into its one file.

    The last connection that is closed does that as well, and says nothing if the disk is full.

    Raises:
        sqlite3.Error: it does not fit.
    """
    with closing(sqlite3.connect(file)) as connection:
        (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
    if mode != "delete":
        raise sqlite3.OperationalError(f"its journal mode stays {mode}")


def _sync(path: Path) -> None:
    """Make it survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

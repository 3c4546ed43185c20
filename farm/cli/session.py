"""What every command needs: the settings, the store and the scheduler's wake-up signal."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from farm.broker.url import require_redis
from farm.broker.wake_up import WakeReason, WakeUp
from farm.embedded.home import is_held, read_endpoints
from farm.errors import Unreachable
from farm.settings.declaration import read_file
from farm.settings.server import Settings, load_settings

if TYPE_CHECKING:
    import sqlalchemy as sa

# Of a job; more than 64 bits fit into no database.
JOB_ID = click.IntRange(1, 2**63 - 1)


def settings() -> Settings:
    """Read the settings; without a broker of its own, a command takes the embedded farm's.

    Raises:
        InvalidSpec: a setting does not fit.
    """
    file = _settings_file()
    loaded = load_settings(os.environ, file=file)
    if not _is_broker_named(file):
        endpoints = read_endpoints(loaded.home)
        if endpoints is not None and is_held(loaded.home):
            return dataclasses.replace(loaded, broker_url=endpoints.broker_url)
    # Before anything is written, since the scheduler is called only afterwards.
    require_redis(loaded.broker_url)
    return loaded


def stopped_farm(loaded: Settings) -> Path | None:
    """Return the folder of this machine's own farm, if the settings mean it and it does not run.

    What its store says of its agents is then what they said last.
    """
    is_meant = not _is_broker_named(_settings_file()) and str(loaded.home) in loaded.database_url
    if is_meant and read_endpoints(loaded.home) is not None and not is_held(loaded.home):
        return loaded.home
    return None


def _settings_file() -> Path | None:
    file: Path | None = click.get_current_context().find_root().params["config"]
    return file


def _is_broker_named(file: Path | None) -> bool:
    name = "FARM_BROKER_URL"
    return bool(os.environ.get(name) or (file and read_file(file).get(name)))


@contextmanager
def store(loaded: Settings) -> Iterator[sa.Engine]:
    """Open the store with the schema that this program expects.

    Raises:
        FarmError: it cannot be reached, or needs `farm db upgrade`.
    """
    from farm.store.engine import make_engine
    from farm.store.schema import check_schema

    require_file(loaded.database_url)
    engine = make_engine(loaded.database_url)
    try:
        check_schema(engine)
        yield engine
    finally:
        engine.dispose()


def require_file(database_url: str, *, origin: str = "FARM_HOME or FARM_DATABASE_URL") -> None:
    """Raise Unreachable where SQLite would create a file that `farm db upgrade` never saw."""
    scheme, slashes, rest = database_url.partition(":///")
    file = Path(rest.partition("?")[0])
    if not (slashes and scheme.startswith("sqlite") and rest):
        return
    try:
        is_there = file.exists()
    except OSError as error:
        raise Unreachable(
            f"store {file} cannot be read ({error.strerror}): run as the farm's user"
        ) from error
    if not is_there:
        raise Unreachable(
            f"there is no store in {file}: start a farm with `farm up`, run `farm db upgrade`, or "
            f"correct {origin}"
        )


def wake_scheduler(loaded: Settings) -> None:
    """Wake the scheduler. Without a broker it finds the work by itself."""
    WakeUp(loaded.broker_url).send(WakeReason.REQUESTED)

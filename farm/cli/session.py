"""What every command starts from: the settings, the store and the scheduler's bell."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from farm.config import Settings, load_settings, read_file
from farm.embedded.home import is_held, read_endpoints

if TYPE_CHECKING:
    import sqlalchemy as sa


def settings() -> Settings:
    """Read the settings; without a broker of its own, a command takes the embedded farm's.

    Raises:
        InvalidSpec: a setting does not fit.
    """
    file: Path | None = click.get_current_context().find_root().params["config"]
    loaded = load_settings(os.environ, file=file)
    name = "FARM_BROKER_URL"
    if not os.environ.get(name) and not (file and read_file(file).get(name)):
        endpoints = read_endpoints(loaded.home)
        if endpoints is not None and is_held(loaded.home):
            return dataclasses.replace(loaded, broker_url=endpoints.broker_url)
    return loaded


@contextmanager
def store(loaded: Settings) -> Iterator[sa.Engine]:
    """Open the store with the schema that this program expects.

    Raises:
        FarmError: it cannot be reached, or needs `farm db upgrade`.
    """
    from farm.store.engine import make_engine
    from farm.store.schema import check_schema

    engine = make_engine(loaded.database_url)
    try:
        check_schema(engine)
        yield engine
    finally:
        engine.dispose()


def ring(loaded: Settings) -> None:
    """Tell the scheduler that there is work. Without a broker it finds out by itself."""
    from farm.wire import Wake

    Wake(loaded.broker_url).ring()

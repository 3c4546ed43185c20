"""Common code of commands that run a sweep on a farm of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from farm.cli.session import wake_scheduler
from farm.cli.sweeps.watch import SweepWatch, follow, make_display
from farm.embedded.farm import EmbeddedFarm
from farm.embedded.signals import StopSignals
from farm.errors import FarmError
from farm.store.engine import make_engine
from farm.store.sweeps.sweeps import SweepSummary

if TYPE_CHECKING:
    import sqlalchemy as sa

# Far longer than any job here takes; then something is wrong that the logs may tell.
_STALLED_AFTER_S = 180.0


def finish(
    farm: EmbeddedFarm, signals: StopSignals, *, engine: sa.Engine, sweep_id: int
) -> SweepSummary:
    """Show a sweep's progress until it is over.

    Raises:
        FarmError: nothing happens any more, or a process ends again and again; with the logs.
        Stopped: the user has asked for the end.
    """
    wake_scheduler(farm.settings)
    try:
        with make_display() as display:
            return follow(
                SweepWatch(engine, sweep_id, settings=farm.settings),
                display,
                pause=signals.pause,
                tend=farm.tend,
                stalled_after_s=_STALLED_AFTER_S,
            )
    except FarmError as error:
        raise FarmError(f"{error}\n{farm.log_tails()}") from error


@contextmanager
def engine_of(farm: EmbeddedFarm) -> Iterator[sa.Engine]:
    """Open the store of a running farm."""
    engine = make_engine(farm.settings.database_url)
    try:
        yield engine
    finally:
        engine.dispose()

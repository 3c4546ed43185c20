"""Stores baselines: names of sweeps that later sweeps are compared with."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from farm.errors import NotFound
from farm.store.tables import BaselineRow


def set_baseline(session: Session, name: str, sweep_id: int, *, now: dt.datetime) -> None:
    """Set the sweep of a baseline, replacing an earlier one."""
    session.merge(BaselineRow(name=name, sweep_id=sweep_id, set_at=now))


def list_baselines(session: Session) -> Sequence[BaselineRow]:
    """Return all, by name."""
    return session.scalars(select(BaselineRow).order_by(BaselineRow.name)).all()


def find_baseline(session: Session, name: str) -> BaselineRow:
    """Return the baseline of a name.

    Raises:
        NotFound: nothing.
    """
    found = session.get(BaselineRow, name)
    if found is None:
        raise NotFound(
            f"baseline {name!r} does not exist; `farm baseline set SWEEP --name {name}` makes one"
        )
    return found


def remove_baseline(session: Session, name: str) -> None:
    """Remove a baseline; its sweep is kept. Raises NotFound: there is none."""
    session.delete(find_baseline(session, name))

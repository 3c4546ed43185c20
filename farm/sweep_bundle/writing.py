"""Writes the tables of a sweep bundle: everything but its figures and its report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from sqlalchemy.orm import Session

from farm import __version__
from farm.exporting import Form, write_export, write_rows, write_samples
from farm.measuring.measurement_table import CellKind
from farm.store.identity import stored_identity
from farm.store.sweeps.sweep_records import (
    AGENTS,
    ATTEMPTS,
    EPOCHS,
    JOBS,
    LOGS,
    STEPS,
    attempt_parts,
    epoch_parts,
    hardware_of,
    job_parts,
    log_parts,
    step_parts,
)
from farm.store.sweeps.sweeps import sweep_of_id
from farm.store.tables import SweepRow
from farm.sweep_bundle.manifest import (
    FORMAT,
    MEASUREMENTS,
    SAMPLE_FILE,
    VERSION,
    Manifest,
)
from farm.text.toml_text import document_text

_WHOLE = frozenset(
    {
        *("job_id", "attempt_id", "repetition", "number", "rank"),
        *("epoch", "step_count", "step", "first_character"),
    }
)
_TEXTS = frozenset({"kind", "text", AGENTS, *JOBS, *ATTEMPTS}) - _WHOLE
_Parts = Callable[[Session, int], Iterator[list[dict[str, object]]]]
# Beside measurements and samples: name, form, columns and rows.
_TABLES: Sequence[tuple[str, Form, Iterable[str], _Parts]] = (
    ("jobs.csv", Form.CSV, JOBS, job_parts),
    ("attempts.csv", Form.CSV, [*ATTEMPTS, AGENTS], attempt_parts),
    ("epochs.csv", Form.CSV, EPOCHS, epoch_parts),
    ("steps.parquet", Form.PARQUET, STEPS, step_parts),
    ("logs.parquet", Form.PARQUET, LOGS, log_parts),
)


def write_tables(session: Session, sweep_id: int, folder: Path) -> None:
    """Write a sweep's measurements, samples, jobs, attempts, steps, logs, and what it ran on.

    `sweep.toml` is what was submitted, with its defaults as they are stored.

    Raises:
        NotFound: there is no such sweep.
        FarmError: Parquet needs a library that is not installed.
    """
    sweep = sweep_of_id(session, sweep_id)
    (folder / "sweep.toml").write_text(document_text(sweep.spec), encoding="utf-8")
    for name, form, write in (
        (MEASUREMENTS, Form.CSV, write_export),
        ("measurements.parquet", Form.PARQUET, write_export),
        (SAMPLE_FILE, Form.PARQUET, write_samples),
    ):
        with (folder / name).open("wb") as file:
            write(session, sweep_id, form, file)
    for name, form, columns, parts in _TABLES:
        kinds = {column: _kind(column) for column in columns}
        with (folder / name).open("wb") as file:
            write_rows(kinds, parts(session, sweep_id), form, file)
    environment = {"farm": __version__, "agents": hardware_of(session, sweep_id)}
    text = json.dumps(environment, indent=2, sort_keys=True, allow_nan=False)
    (folder / "environment.json").write_text(f"{text}\n", encoding="utf-8")


def manifest_of(session: Session, sweep: SweepRow) -> Manifest:
    """Return the manifest of a bundle that has no files yet."""
    identity = stored_identity(session)
    return Manifest(
        format=FORMAT,
        version=VERSION,
        benchfarm_version=__version__,
        farm_id=None if identity is None else identity.farm_id,
        sweep_id=sweep.id,
        sweep_name=sweep.name,
        created_at=sweep.created_at.isoformat(),
        files={},
    )


def _kind(column: str) -> CellKind:
    if column in _WHOLE:
        return CellKind.WHOLE
    return CellKind.TEXT if column in _TEXTS else CellKind.NUMBER

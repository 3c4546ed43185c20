"""Reads a sweep bundle for import, and refuses it as a whole if any part is invalid.

Samples are read in parts, and each value is checked as an agent's report is.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from farm.errors import FarmError, InvalidSpec
from farm.exporting import SAMPLES, parquet_schema
from farm.importers.contracts import Reading
from farm.importers.sheet import MAX_SHEET_BYTES
from farm.importers.table import read_table
from farm.importing import ImportSource, import_reading, import_samples
from farm.messages.reports import Sample
from farm.store.engine import make_engine, writing
from farm.store.measurements.imports import Imported, check_origin
from farm.sweep_bundle.archive import bundle_folder
from farm.sweep_bundle.manifest import (
    MEASUREMENTS,
    SAMPLE_FILE,
    Manifest,
    content_of,
    opened,
    read_manifest,
)
from farm.values.codec import from_json, parsed, to_json
from farm.values.ranges import Range

MOST_SAMPLES = 50_000_000
_PART_ROWS = 5000
# A part is read from a group of rows as a whole, and a few bytes may unpack to very many.
_GROUP_BYTES = 256 << 20
_Id = Annotated[int, Range(1, 2**63 - 1)]
_OF_SAMPLE = tuple(name for name in SAMPLES if name in Sample.__dataclass_fields__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBundle:
    """`samples` reads them anew, a part at a time; there are `sample_count` of them."""

    source: ImportSource
    reading: Reading
    sample_count: int
    samples: Callable[[], Iterator[list[dict[str, Any]]]]


def read_bundle(
    folder: Path, *, origin: str | None = None, most_samples: int = MOST_SAMPLES
) -> ReadBundle:
    """Read the measurements and samples of a bundle, and where they come from.

    `origin`: what to import them as; None: the farm and the sweep that measured them.

    Raises:
        InvalidSpec: it is no bundle, of a newer format, cut short, or a file was changed; a
            measurement cannot be used; or the origin is no name.
    """
    manifest = read_manifest(folder)
    content = content_of(folder, manifest, MEASUREMENTS, most=MAX_SHEET_BYTES)
    source = ImportSource(
        origin=check_origin(manifest.origin if origin is None else origin),
        name=f"sweep {manifest.sweep_id}, {manifest.sweep_name!r}, of farm {manifest.farm}",
    )
    samples = partial(sample_parts, folder, manifest, most=most_samples)
    return ReadBundle(
        source=source,
        reading=read_table(content),
        sample_count=sum(map(len, samples())),
        samples=samples,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveImport:
    """A bundle in a ZIP file, to be imported as `read_bundle` says."""

    database_url: str
    file: Path
    origin: str | None
    is_replacing: bool
    most_bytes: int
    most_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedBundle:
    source: ImportSource
    done: Imported
    sample_count: int


def import_archive(request: ArchiveImport) -> ImportedBundle:
    """Import a bundle: its measurements as a whole, and then its samples in parts.

    Servers do it in a process: whatever the file makes the Parquet library do, they go on. It is
    unpacked beside the file, so that who removes that folder removes what a crash has left.

    Raises:
        InvalidSpec: see `read_bundle` and `import_reading`.
    """
    engine = make_engine(request.database_url)
    try:
        beside = request.file.parent
        with bundle_folder(request.file, most_bytes=request.most_bytes, within=beside) as folder:
            read = read_bundle(folder, origin=request.origin, most_samples=request.most_samples)
            with writing(engine) as session:
                now, is_replacing = dt.datetime.now(dt.UTC), request.is_replacing
                done = import_reading(
                    session, read.reading, read.source, now=now, is_replacing=is_replacing
                )
            import_samples(engine, read.source.origin, read.samples(), is_replacing=is_replacing)
    finally:
        engine.dispose()
    return ImportedBundle(source=read.source, done=done, sample_count=read.sample_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SamplePlace:
    job_id: _Id
    attempt_id: _Id
    rank: Annotated[int, Range(0, 2**31 - 1)]
    span_ticks: Annotated[int, Range(1, 2**31 - 1)]


def sample_parts(
    folder: Path, manifest: Manifest, *, most: int = MOST_SAMPLES
) -> Iterator[list[dict[str, Any]]]:
    """Yield the samples as rows by the columns of SAMPLES; none where the bundle has no such file.

    Raises:
        InvalidSpec: it is no such table, too large, or has a value that cannot be.
        FarmError: Parquet needs a library that is not installed.
    """
    if SAMPLE_FILE not in manifest.files:
        return
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise FarmError("samples need pyarrow: pip install pyarrow") from None
    number = 0
    with opened(folder, SAMPLE_FILE) as file:
        try:
            table = parquet.ParquetFile(file)
            _check(table, most=most)
            for batch in table.iter_batches(batch_size=_PART_ROWS):
                rows = batch.to_pylist()
                yield [
                    _row(row, f"{SAMPLE_FILE}, row {number + i}") for i, row in enumerate(rows, 1)
                ]
                number += len(rows)
                if number > most:  # whatever its metadata say
                    raise InvalidSpec(SAMPLE_FILE, f"{number} rows", f"at most {most}")
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            message = str(error).partition("\n")[0]
            raise InvalidSpec(SAMPLE_FILE, message, "a table in Parquet") from None


def _check(table: Any, *, most: int) -> None:
    if not table.schema_arrow.equals(parquet_schema(SAMPLES)):
        names = table.schema_arrow.names[: len(SAMPLES) + 1]
        raise InvalidSpec(SAMPLE_FILE, names, "the columns and types of an export of samples")
    if table.metadata.num_rows > most:
        raise InvalidSpec(SAMPLE_FILE, f"{table.metadata.num_rows} rows", f"at most {most}")
    for i in range(table.metadata.num_row_groups):
        size = table.metadata.row_group(i).total_byte_size
        if size > _GROUP_BYTES:
            raise InvalidSpec(SAMPLE_FILE, f"{size} bytes", f"at most {_GROUP_BYTES} in a group")


def _row(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    place = {name: row[name] for name in _SamplePlace.__dataclass_fields__}
    known = {name: row[name] for name in _OF_SAMPLE}
    known["extra"] = {} if row["extra"] is None else parsed(row["extra"], where=f"{where}.extra")
    sample = from_json(Sample, known, where=where)
    values = {name: getattr(sample, name) for name in _OF_SAMPLE}
    checked = to_json(from_json(_SamplePlace, place, where=where))
    assert isinstance(checked, dict)
    return {**checked, **values, "extra": sample.extra or None}

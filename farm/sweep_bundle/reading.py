"""Reads a sweep bundle for an import on another farm: all of it is good, or none is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from farm.importers.contracts import Reading
from farm.importers.sheet import MAX_BYTES
from farm.importers.table import read_table
from farm.importing import ImportSource, import_reading, import_samples
from farm.store.engine import make_engine, writing
from farm.store.measurements.imports import Imported, check_origin
from farm.sweep_bundle.archive import bundle_folder
from farm.sweep_bundle.manifest import MEASUREMENTS, content_of, read_manifest
from farm.sweep_bundle.samples import MOST_SAMPLES, sample_parts


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
    content = content_of(folder, manifest, MEASUREMENTS, most=MAX_BYTES)
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


def import_archive(asked: ArchiveImport) -> ImportedBundle:
    """Import a bundle: its measurements as a whole, and then its samples in parts.

    Servers do it in a process: whatever the file makes the Parquet library do, they go on. It is
    unpacked beside the file, so that who removes that folder removes what a crash has left.

    Raises:
        InvalidSpec: see `read_bundle` and `import_reading`.
    """
    engine = make_engine(asked.database_url)
    try:
        beside = asked.file.parent
        with bundle_folder(asked.file, most_bytes=asked.most_bytes, within=beside) as folder:
            read = read_bundle(folder, origin=asked.origin, most_samples=asked.most_samples)
            with writing(engine) as session:
                now, is_replacing = dt.datetime.now(dt.UTC), asked.is_replacing
                done = import_reading(
                    session, read.reading, read.source, now=now, is_replacing=is_replacing
                )
            import_samples(engine, read.source.origin, read.samples(), is_replacing=is_replacing)
    finally:
        engine.dispose()
    return ImportedBundle(source=read.source, done=done, sample_count=read.sample_count)

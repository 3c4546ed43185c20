"""Reads a sweep bundle for an import on another farm: all of it is checked, or nothing is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from farm.importers.contracts import Reading
from farm.importers.sheet import MAX_BYTES
from farm.importers.table import read_table
from farm.importing import ImportSource
from farm.store.measurements.imports import check_origin
from farm.sweep_bundle.manifest import MEASUREMENTS, content_of, read_manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBundle:
    source: ImportSource
    reading: Reading


def read_bundle(folder: Path, *, origin: str | None = None) -> ReadBundle:
    """Read the measurements of a bundle, and where they come from.

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
    return ReadBundle(source=source, reading=read_table(content))

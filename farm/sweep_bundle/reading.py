"""Reads a sweep bundle for an import on another farm: all of it is checked, or nothing is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from farm.importers.contracts import Reading
from farm.importers.sheet import MAX_BYTES
from farm.importers.table import read_table
from farm.importing import ImportSource
from farm.store.measurements.imports import check_origin
from farm.sweep_bundle.manifest import MEASUREMENTS, content_of, read_manifest
from farm.sweep_bundle.samples import sample_parts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBundle:
    """`samples` reads them anew, a part at a time; there are `sample_count` of them."""

    source: ImportSource
    reading: Reading
    sample_count: int
    samples: Callable[[], Iterator[list[dict[str, Any]]]]


def read_bundle(folder: Path, *, origin: str | None = None) -> ReadBundle:
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
    samples = partial(sample_parts, folder, manifest)
    return ReadBundle(
        source=source,
        reading=read_table(content),
        sample_count=sum(map(len, samples())),
        samples=samples,
    )

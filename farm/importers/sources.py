"""Describes the sources of imported measurements for readers."""

from __future__ import annotations

from farm.importers import IMPORTERS


def citation(source: str | None) -> str | None:
    """Return the citation of a published study, or else the source itself: the file of a table."""
    citations = {publication.name: publication.citation for publication in IMPORTERS}
    return citations.get(source or "", source)

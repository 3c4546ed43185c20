"""The published studies that can be imported. docs/extending.md says how to add one."""

from farm.importers.anwar2021 import ANWAR2021
from farm.importers.contracts import Publication
from farm.importers.graur2019 import GRAUR2019

IMPORTERS: tuple[Publication, ...] = (
    ANWAR2021,
    GRAUR2019,
)


def citation(source: str | None) -> str | None:
    """Return the citation of a published study, or else the source itself: the file of a table."""
    citations = {publication.name: publication.citation for publication in IMPORTERS}
    return citations.get(source or "", source)

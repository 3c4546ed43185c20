"""The published studies that can be imported. docs/extending.md says how to add one."""

from farm.importers.anwar2021 import ANWAR2021
from farm.importers.contracts import Publication
from farm.importers.graur2019 import GRAUR2019
from farm.measuring.measurement import OWN_ORIGIN

IMPORTERS: tuple[Publication, ...] = (
    ANWAR2021,
    GRAUR2019,
)


def source_text(origin: str, source: str | None) -> str | None:
    """Say where an origin comes from: from a publication, from the file of a table, or from here.

    `source`: as its measurements have it.
    """
    if origin == OWN_ORIGIN:
        return "measured by this farm"
    citations = {publication.name: publication.citation for publication in IMPORTERS}
    return citations.get(source or "", source)

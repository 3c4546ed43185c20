"""The published studies that can be imported. To add one: its file, and its line in IMPORTERS."""

from farm.importers.anwar2021 import ANWAR2021
from farm.importers.contracts import Publication
from farm.importers.graur2019 import GRAUR2019

IMPORTERS: tuple[Publication, ...] = (
    ANWAR2021,
    GRAUR2019,
)

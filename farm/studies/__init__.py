"""The studies that `farm reproduce` repeats. To add one: its file, and its line in STUDIES."""

from farm.studies.contracts import Study
from farm.studies.latency import LATENCY

STUDIES: tuple[Study, ...] = (LATENCY,)

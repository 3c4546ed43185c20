"""The studies that `farm reproduce` repeats. To add one: its file, and its line in STUDIES."""

from farm.studies.contracts import Study
from farm.studies.latency import LATENCY
from farm.studies.strategies import STRATEGIES_STUDY

STUDIES: tuple[Study, ...] = (LATENCY, STRATEGIES_STUDY)

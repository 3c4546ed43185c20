"""The studies that `farm reproduce` repeats. To add one: its package, and its line in STUDIES."""

from farm.studies.contracts import Study
from farm.studies.latency import LATENCY
from farm.studies.machines import MACHINES
from farm.studies.processes import PROCESSES
from farm.studies.servers import SERVERS
from farm.studies.slow_networks import SLOW_NETWORKS
from farm.studies.strategies import STRATEGIES_STUDY
from farm.studies.updates import UPDATES_STUDY

STUDIES: tuple[Study, ...] = (
    MACHINES,
    SERVERS,
    UPDATES_STUDY,
    PROCESSES,
    LATENCY,
    STRATEGIES_STUDY,
    SLOW_NETWORKS,
)

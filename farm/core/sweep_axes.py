"""The axes of a sweep: how each is written, read, and left out. To add one: its line in AXES.

Each is a list in a `[[case]]` table under its `key`, a tuple of `CaseSpec` under `attribute`, and
one value of a `Cell` and a `JobSpec` under `field`; the four of a network become one profile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from farm.core.fields import (
    Read,
    choice,
    read_bandwidth_bytes_per_s,
    read_delay_s,
    read_loss_ratio,
    read_name,
    read_network_name,
    whole,
)
from farm.core.spec import (
    MAX_GLOBAL_BATCH_SIZE,
    MAX_REPLICAS_PER_RANK,
    MAX_STEPS,
    MAX_WORLD_SIZE,
    BatchSplit,
    OperatorPlacement,
    ServerPlacement,
    TrainingPass,
)

# Two, since one replica of a rank is what `single` measures.
DEFAULT_REPLICAS_PER_RANK = 2
DEFAULT_STEPS_BETWEEN_AVERAGES = 8


@dataclass(frozen=True, slots=True)
class Axis:
    """`default`: of a case that does not name it; an axis without one is required."""

    key: str
    attribute: str
    field: str
    read: Read[Any]
    default: tuple[Any, ...] = ()


CELL_AXES = (
    Axis("model", "models", "model", read_name),
    Axis("dataset", "datasets", "dataset", read_name),
    Axis("strategy", "strategies", "strategy", read_name),
    Axis("world_size", "world_sizes", "world_size", whole(1, MAX_WORLD_SIZE)),
    Axis(
        "global_batch_size",
        "global_batch_sizes",
        "global_batch_size",
        whole(1, MAX_GLOBAL_BATCH_SIZE),
    ),
    # None: one, for strategies that use servers.
    Axis("server_count", "server_counts", "server_count", whole(0, MAX_WORLD_SIZE), (None,)),
    Axis(
        "server_placement",
        "server_placements",
        "server_placement",
        choice(ServerPlacement),
        (ServerPlacement.COLLOCATED,),
    ),
    Axis(
        "replicas_per_rank",
        "replicas_per_rank",
        "replicas_per_rank",
        whole(1, MAX_REPLICAS_PER_RANK),
        (DEFAULT_REPLICAS_PER_RANK,),
    ),
    Axis(
        "steps_between_averages",
        "steps_between_averages",
        "steps_between_averages",
        whole(1, MAX_STEPS),
        (DEFAULT_STEPS_BETWEEN_AVERAGES,),
    ),
    Axis(
        "placement",
        "placements",
        "placement",
        choice(OperatorPlacement),
        (OperatorPlacement.SOFT,),
    ),
    Axis("batch_split", "batch_splits", "batch_split", choice(BatchSplit), (BatchSplit.EVEN,)),
    Axis("network", "interfaces", "interface", read_network_name, (None,)),
    Axis(
        "pass",
        "training_passes",
        "training_pass",
        choice(TrainingPass),
        (TrainingPass.FORWARD_BACKWARD,),
    ),
)
NETWORK_AXES = (
    Axis("one_way_delay_ms", "one_way_delays_s", "one_way_delay_s", read_delay_s, (0.0,)),
    Axis("jitter_ms", "jitters_s", "jitter_s", read_delay_s, (0.0,)),
    Axis("packet_loss_percent", "packet_loss_ratios", "packet_loss_ratio", read_loss_ratio, (0.0,)),
    # None: not limited.
    Axis(
        "bandwidth_mbit_per_s",
        "bandwidths_bytes_per_s",
        "bandwidth_bytes_per_s",
        read_bandwidth_bytes_per_s,
        (None,),
    ),
)
AXES = (*CELL_AXES, *NETWORK_AXES)

# How a strategy is set up, by the names of `Cell.field`. Measurements have columns of these names,
# None where nobody said; with `placement` and the servers' number they tell cells apart.
SETUP_FIELDS = ("server_placement", "replicas_per_rank", "steps_between_averages", "batch_split")
SETUP_AXES = tuple(axis for axis in CELL_AXES if axis.field in SETUP_FIELDS)

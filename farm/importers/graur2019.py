"""D. Graur's thesis: ResNet-50, many strategies, two networks, 1 to 32 nodes.

Problems of its tables, and how they are handled:

- The step time is `nodes x batch_size_per_worker / images_per_second`: the throughput is the whole
  cluster's, while the printed seconds per batch divide one node's batch by it.
- Annex B repeats annex A's parameter server at batch 32, and the rows of one node are printed under
  both networks, though one node uses none. Equal values of one configuration are one measurement,
  stored once with all the tables that contain it. Different values of one configuration are
  repetitions: those of one node differ by 2 % in the median, and in 3 of 12 cases by more than 10
  %.
- The number of parameter servers on nodes of their own is not stated: every node counts into the
  world size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from farm.configuration.spec import TrainingPass
from farm.importers.contracts import PrintedRow, Publication
from farm.measuring.imported import ImportedMeasurement
from farm.values.codec import content_hash

_CONFIGURATION = (
    *("framework", "strategy", "placement", "network"),
    *("nodes", "batch_size_per_worker", "pass"),
)
_ETHERNET, _INFINIBAND = "ethernet_1g", "infiniband_fdr"
_RING_AND_SERVER = ("distributed_allreduce_ringx1", "distributed_allreduce_pscpu")

# Possible, but hard to believe: where, by some of the columns, and why.
_DOUBTS: tuple[tuple[dict[str, tuple[str, ...]], str], ...] = (
    (
        {"strategy": _RING_AND_SERVER, "network": (_INFINIBAND,), "nodes": ("8", "16")},
        "the ring and the parameter server have the same value to the last digit",
    ),
    (
        {
            "strategy": ("collective_allreduce",),
            "network": (_INFINIBAND,),
            "nodes": ("2",),
            "pass": ("forward_backward",),
        },
        "slower than on Ethernet (5.175 against 6.97 images per second)",
    ),
    (
        {
            "strategy": ("ps_collocated",),
            "network": (_ETHERNET,),
            "nodes": ("32",),
            "batch_size_per_worker": ("32",),
            "pass": ("forward_backward",),
        },
        "hard and soft placement differ by 0.003 % only",
    ),
    (
        {
            "strategy": ("ps_collocated", "ps_noncollocated"),
            "nodes": ("1",),
            "placement": ("soft",),
        },
        "collocated and separate parameter servers have the same value: one measurement of one "
        "node, where nothing can be separate",
    ),
)


def _read(rows: Sequence[PrintedRow]) -> list[ImportedMeasurement]:
    printed_in: dict[tuple[tuple[str, ...], str], list[PrintedRow]] = defaultdict(list)
    for row in rows:
        printed_in[_configuration(row), row.cells["images_per_second"]].append(row)
    seen: dict[tuple[str, ...], int] = defaultdict(int)
    measurements = []
    for (configuration, _), copies in printed_in.items():
        measurements.append(_measurement(copies, repetition=seen[configuration]))
        seen[configuration] += 1
    return measurements


def _configuration(row: PrintedRow) -> tuple[str, ...]:
    """Return what tells configurations apart; one node is the same on every network."""
    cells = row.cells if row.cells["nodes"] != "1" else {**row.cells, "network": ""}
    return tuple(cells[column] for column in _CONFIGURATION)


def _measurement(copies: Sequence[PrintedRow], *, repetition: int) -> ImportedMeasurement:
    cells = copies[0].cells
    world_size = int(cells["nodes"])
    global_batch_size = world_size * int(cells["batch_size_per_worker"])
    return ImportedMeasurement(
        source_key=content_hash(cells),
        row_number=copies[0].line_number,
        framework=cells["framework"],
        values={
            "model": "resnet50",
            "dataset": "synthetic_imagenet",
            "training_pass": TrainingPass(cells["pass"]).value,
            "strategy": cells["strategy"],
            "placement": None if cells["placement"] == "n/a" else cells["placement"],
            "network": None if world_size == 1 else cells["network"],
            "world_size": world_size,
            "global_batch_size": global_batch_size,
            "step_time_s": global_batch_size / float(cells["images_per_second"]),
        },
        repetition=repetition,
        notes=tuple(
            why
            for where, why in _DOUBTS
            if all(cells[column] in values for column, values in where.items())
        ),
        printed={**cells, "tables": [row.cells["table"] for row in copies]},
    )


GRAUR2019 = Publication(
    name="graur2019",
    citation=(
        "D. Graur: MSc thesis on distributed parameter update strategies, Delft University of "
        "Technology, 2019; a part of the tables of annexes A and B"
    ),
    what=(
        "ResNet-50 on synthetic ImageNet-like data, TensorFlow 1.13 and Caffe2 0.8.2, 1 to 32 "
        "nodes of DAS-5 (two 8-core Xeon E5-2630 v3) on 1 Gbit/s Ethernet and FDR InfiniBand"
    ),
    file="graur2019.csv",
    sha256="df8e09a198a11571524da8695672cc9482658d5606fa597e56f7e98434d9420b",
    read=_read,
)

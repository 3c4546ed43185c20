"""The study of Anwar, Ghafouri, Gill and Doyle: one small network, 1 to 4 machines, delays.

Problems of its table, and how they are handled:

- An *epoch* is 70 steps at every batch size, a constant of the script. The rows of one machine at
  batches up to 6,400 fit 50 steps, and 70 not at all (2,560: 0.784 s a step, 39 s an epoch). So
  `steps_per_epoch` is 50 there and 70 elsewhere, and both times are kept as printed. Compare step
  times for equal work, and epochs for the study's own answers.
- Both times are printed and rounded: 3 s a step beside 220 s an epoch. The step time is taken from
  the one with the finer last digit. In 5 rows of gangs the two differ by more than their rounding,
  by 1.6 to 10 %. Nothing shows which of them is wrong, so the rule is the same there.
- One machine at 64,000 has no times: it ran out of memory, which is a result.
- One machine was measured without a delay only, since it needs no network.
"""

from __future__ import annotations

from dataclasses import dataclass

from farm.configuration.axes import DELAY
from farm.importers.contracts import PrintedRow, Publication
from farm.measuring.imported import FlagKind, ImportedMeasurement, ImportFlag, misfits
from farm.measuring.measurement import OK
from farm.messages.trainer_lines import FailureKind
from farm.values.codec import content_hash

STEPS_PER_EPOCH = 70
STEPS_PER_EPOCH_ALONE, _LARGEST_BATCH_ALONE = 50, 6400

# By world size, global batch size and delay in milliseconds: possible, but hard to believe.
_DOUBTS = {
    (4, 192, 80): "54 s an epoch, while 60 and 100 ms took 309 s and 385 s",
    (4, 2560, 40): "an accuracy of 0.1354, while all others but one are above 0.29",
    (3, 32000, 80): "an accuracy of 0.1572, while all others but one are above 0.29",
}
# One machine at batch 192: 0.73 s a step and 4 s an epoch would be five steps. The other rows of
# one machine take 0.3 ms an example, so the step is misprinted, perhaps for 0.073 s.
_MISPRINTED_STEP = (1, 192, 0)


@dataclass(frozen=True, slots=True)
class _Printed:
    """A time as printed. `half_width_s`: half of what its last digit stands for."""

    time_s: float
    half_width_s: float

    def per_step(self, step_count: int) -> _Printed:
        return _Printed(self.time_s / step_count, self.half_width_s / step_count)


def _measurement(row: PrintedRow) -> ImportedMeasurement:
    cells = row.cells
    cell = tuple(int(cells[c]) for c in ("workers", "global_batch_size", "one_way_delay_ms"))
    world_size, global_batch_size, delay_ms = cell
    is_short = world_size == 1 and global_batch_size <= _LARGEST_BATCH_ALONE
    steps_per_epoch = STEPS_PER_EPOCH_ALONE if is_short else STEPS_PER_EPOCH
    step, epoch = _time(cells["step_time_s"]), _time(cells["time_per_epoch_s"])
    accuracy = float(cells["accuracy"]) if cells["accuracy"] else None
    flags = []
    if step is not None and epoch is not None and cell == _MISPRINTED_STEP:
        fitting = f"{epoch.time_s:g} s per epoch of {steps_per_epoch} steps"
        message = f"step_time_s: expected what fits {fitting}, got {step.time_s:g}"
        flags.append(ImportFlag(FlagKind.CONTRADICTORY, message))
        step = None
    for misfit in misfits({"accuracy": accuracy}):
        message = f"{misfit.column}: expected {misfit.expected}, got {misfit.value:g}"
        flags.append(ImportFlag(FlagKind.IMPOSSIBLE, message))
        accuracy = None
    finest = _finest(step, epoch.per_step(steps_per_epoch) if epoch else None)
    return ImportedMeasurement(
        source_key=content_hash(cells),
        row_number=row.line_number,
        framework="tensorflow",
        instance_type="t2.large",
        values={
            "model": "small_cnn",
            "dataset": "mnist",
            "strategy": "mwms",
            "world_size": world_size,
            "global_batch_size": global_batch_size,
            "one_way_delay_s": DELAY.read(delay_ms, "one_way_delay_ms"),
            "step_time_s": finest.time_s if finest else None,
            "steps_per_epoch": steps_per_epoch,
            "time_per_epoch_s": epoch.time_s if epoch else None,
            "accuracy": accuracy,
        },
        status=OK if finest else FailureKind.OUT_OF_MEMORY.value,
        flags=tuple(flags),
        notes=(_DOUBTS[cell],) if cell in _DOUBTS else (),
        printed=cells,
    )


def _time(text: str) -> _Printed | None:
    if not text:
        return None
    decimals = len(text.partition(".")[2])
    return _Printed(float(text), 0.5 * 10**-decimals)


def _finest(*times: _Printed | None) -> _Printed | None:
    known = [time for time in times if time is not None]
    return min(known, key=lambda time: time.half_width_s / time.time_s, default=None)


ANWAR2021 = Publication(
    name="anwar2021",
    citation=(
        "M. H. Anwar, S. Ghafouri, S. S. Gill, J. Doyle: Recommender System for Optimal "
        "Distributed Deep Learning in Cloud Datacenters. Wireless Personal Communications, 2021, "
        "doi:10.1007/s11277-021-08699-3"
    ),
    what=(
        "small CNN on MNIST, MultiWorkerMirroredStrategy, 1 to 4 AWS t2.large, 0 to 100 ms of "
        "one-way delay by netem"
    ),
    file="anwar2021.csv",
    sha256="9e8990577364f64a25b391719c08a1852faec3a28e5970a52a523f19bd84a9e3",
    read=lambda rows: [_measurement(row) for row in rows],
)

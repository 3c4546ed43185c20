"""A sweep: axes whose cross product becomes jobs, read from the form that people write.

What `parse_sweep` returns is well formed; whether its cells can run is for
`farm.core.expansion` to say, which knows the models, data sets and strategies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from farm.core.fields import (
    axis,
    read_emulator,
    read_flag,
    read_labels,
    read_name,
    read_precision_ratio,
    read_time_limit_s,
    refuse_unknown,
    scalar,
    whole,
)
from farm.core.precision import LEAST_REPETITIONS, Precision
from farm.core.spec import MAX_STEPS, BatchSplit, OperatorPlacement, ServerPlacement, TrainingPass
from farm.core.sweep_axes import (
    AXES,
    DEFAULT_REPLICAS_PER_RANK,
    DEFAULT_STEPS_BETWEEN_AVERAGES,
)
from farm.errors import InvalidSpec

DEFAULT_STEPS = 30  # fewer say too little of how they depend on each other
MAX_SEED = 2**31 - 1
MAX_PRIORITY = 1000
AUTO = "auto"  # repetitions: until the cell is precise
MAX_AUTO_REPETITIONS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSpec:
    """One cross product. Every axis has at least one value, in the order it was written."""

    models: tuple[str, ...]
    datasets: tuple[str, ...]
    strategies: tuple[str, ...]
    world_sizes: tuple[int, ...]
    global_batch_sizes: tuple[int, ...]
    server_counts: tuple[int | None, ...] = (None,)  # None: one, for strategies that use servers
    server_placements: tuple[ServerPlacement, ...] = (ServerPlacement.COLLOCATED,)
    replicas_per_rank: tuple[int, ...] = (DEFAULT_REPLICAS_PER_RANK,)
    steps_between_averages: tuple[int, ...] = (DEFAULT_STEPS_BETWEEN_AVERAGES,)
    placements: tuple[OperatorPlacement, ...] = (OperatorPlacement.SOFT,)
    batch_splits: tuple[BatchSplit, ...] = (BatchSplit.EVEN,)
    interfaces: tuple[str | None, ...] = (None,)
    one_way_delays_s: tuple[float, ...] = (0.0,)
    jitters_s: tuple[float, ...] = (0.0,)
    packet_loss_ratios: tuple[float, ...] = (0.0,)
    bandwidths_bytes_per_s: tuple[float | None, ...] = (None,)  # None: not limited
    emulator: str | None = None  # None: any that is exact
    training_passes: tuple[TrainingPass, ...] = (TrainingPass.FORWARD_BACKWARD,)
    steps: int | None = None
    epochs: int | None = None
    warmup_step_count: int = 5
    seed: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    time_limit_s: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSpec:
    """`repetitions`: of every cell to begin with; with a `precision` more follow as needed."""

    name: str
    repetitions: int = 1
    precision: Precision | None = None
    repeat: bool = False
    skip_impossible: bool = False
    priority: int = 0
    cases: tuple[CaseSpec, ...]


def parse_sweep(data: object) -> SweepSpec:
    """Read a sweep from TOML's or JSON's values.

    Raises:
        InvalidSpec: a field is unknown, missing, of another type or out of range; its name is
            the path to it, such as `case[0].world_size[1]`.
    """
    if not isinstance(data, Mapping):
        raise InvalidSpec("sweep", data, "a table")
    refuse_unknown(data, _SWEEP_FIELDS, where="")
    cases = data.get("case")
    if not isinstance(cases, list) or not cases:
        raise InvalidSpec("case", cases, "at least one [[case]] table")
    precision = parse_precision(data)
    return SweepSpec(
        name=scalar(data, "name", read=read_name),
        repetitions=(
            scalar(data, "repetitions", read=_read_repetitions, default=1)
            if precision is None
            else precision.min_repetitions
        ),
        precision=precision,
        repeat=scalar(data, "repeat", read=read_flag, default=False),
        skip_impossible=scalar(data, "skip_impossible", read=read_flag, default=False),
        priority=scalar(data, "priority", read=whole(-MAX_PRIORITY, MAX_PRIORITY), default=0),
        cases=tuple(_parse_case(case, f"case[{i}]") for i, case in enumerate(cases)),
    )


def parse_precision(data: Mapping[str, object]) -> Precision | None:
    """Read of a sweep how precise its cells are to be; None where repetitions are a number.

    Raises:
        InvalidSpec: as `parse_sweep`; also where a key says how precise, and repetitions say how
            many: one of the two would be ignored.
    """
    if data.get("repetitions") != AUTO:
        for key in _PRECISION_FIELDS:
            if key in data:
                raise InvalidSpec(key, data[key], f'repetitions = "{AUTO}" beside it')
        return None
    default = Precision()
    least = scalar(
        data,
        "min_repetitions",
        read=whole(LEAST_REPETITIONS, MAX_AUTO_REPETITIONS),
        default=default.min_repetitions,
    )
    return Precision(
        target_ratio=scalar(
            data, "precision_percent", read=read_precision_ratio, default=default.target_ratio
        ),
        min_repetitions=least,
        max_repetitions=scalar(
            data,
            "max_repetitions",
            read=whole(least, MAX_AUTO_REPETITIONS),
            default=max(least, default.max_repetitions),
        ),
    )


def _read_repetitions(value: object, where: str) -> int:
    try:
        # Only the number of jobs limits it, and that is the expansion's to name.
        return whole(1, MAX_SEED)(value, where)
    except InvalidSpec as error:
        raise InvalidSpec(where, value, f'{error.expected} or "{AUTO}"') from None


def _parse_case(case: object, where: str) -> CaseSpec:
    if not isinstance(case, Mapping):
        raise InvalidSpec(where, case, "a table")
    refuse_unknown(case, _CASE_FIELDS, where=f"{where}.")
    if "steps" in case and "epochs" in case:
        raise InvalidSpec(f"{where}.epochs", case["epochs"], "either steps or epochs, not both")
    at = f"{where}."
    count = whole(1, MAX_STEPS)
    default_steps = None if "epochs" in case else DEFAULT_STEPS
    axes: dict[str, Any] = {
        one.attribute: axis(case, one.key, where=at, read=one.read, default=one.default)
        for one in AXES
    }
    return CaseSpec(
        **axes,
        emulator=scalar(case, "emulator", where=at, read=read_emulator, default=None),
        steps=scalar(case, "steps", where=at, read=count, default=default_steps),
        epochs=scalar(case, "epochs", where=at, read=count, default=None),
        warmup_step_count=scalar(
            case, "warmup_steps", where=at, read=whole(0, MAX_STEPS), default=5
        ),
        seed=scalar(case, "seed", where=at, read=whole(0, MAX_SEED), default=0),
        labels=scalar(case, "labels", where=at, read=read_labels, default={}),
        time_limit_s=scalar(case, "time_limit_s", where=at, read=read_time_limit_s, default=3600.0),
    )


_PRECISION_FIELDS = ("precision_percent", "min_repetitions", "max_repetitions")
_SWEEP_FIELDS = (
    "name",
    "repetitions",
    *_PRECISION_FIELDS,
    "repeat",
    "skip_impossible",
    "priority",
    "case",
)
_CASE_FIELDS = (
    *(one.key for one in AXES),
    *("emulator", "steps", "epochs", "warmup_steps", "seed", "labels", "time_limit_s"),
)

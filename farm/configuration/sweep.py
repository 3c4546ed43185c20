"""Parses a sweep from TOML or JSON: axes whose combinations become jobs.

The result of `parse_sweep` is well formed. `farm.configuration.expansion`, which knows the models,
data sets and strategies, decides whether its cells can run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from farm.configuration.axes import AXES
from farm.configuration.scripts import CASE_KEYS as SCRIPT_KEYS
from farm.configuration.scripts import as_axes, script_of
from farm.configuration.spec import (
    DEFAULT_TIME_LIMIT_S,
    DEFAULT_WARMUP_STEPS,
    EMULATOR_NAMES,
    MAX_SEED,
    MAX_STEPS,
    MAX_TIME_LIMIT_S,
)
from farm.errors import InvalidSpec
from farm.values.fields import (
    Amount,
    Boolean,
    Labels,
    Name,
    Type,
    WebAddresses,
    WholeNumber,
    WholeNumberOrWord,
    Word,
    axis,
    refuse_unknown,
    scalar,
)

DEFAULT_STEPS = 30  # fewer say too little of how they depend on each other
MAX_PRIORITY = 1000
NOTIFY = "notify"
BUDGET: Final = "budget_machine_hours"
AUTO = "auto"  # repetitions: until the cell is precise
ALL_STEPS = "all"  # of a script: until it ends by itself
MAX_AUTO_REPETITIONS = 1000
# With two, the interval is nine times as wide as the two are apart.
LEAST_REPETITIONS = 3
# Only the number of jobs limits it, and that is the expansion's to name.
REPETITIONS = WholeNumberOrWord(WholeNumber(1, MAX_SEED), AUTO)
WARMUP_STEPS = WholeNumber(0, MAX_STEPS)
TIME_LIMIT_S = Amount(unit="s", noun="number of seconds", low=1, high=MAX_TIME_LIMIT_S)
MACHINE_HOURS = Amount(
    unit="h",
    noun="number of machine hours",
    per_base=1 / 3600,
    low=0,
    high=1_000_000,
    is_above_low=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Repeat a cell until half of its interval is at most `target_ratio` of the median."""

    target_ratio: float = 0.02
    min_repetitions: int = LEAST_REPETITIONS
    max_repetitions: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOption:
    """One value of a case or of a sweep. `default`: unless said.

    `field`: of its specification, where it has another name there. `unset`: what it means that
    there is none.
    """

    name: str
    type: Type
    meaning: str
    field: str = ""
    default: Any = None
    unset: str = "none"

    def __post_init__(self) -> None:
        object.__setattr__(self, "field", self.field or self.name)


_COUNT = WholeNumber(1, MAX_STEPS)
CASE_OPTIONS = (
    SweepOption(
        name="emulator",
        meaning="the emulator to use: `tc_netem`, `tcp_proxy` or `vde_link`",
        unset="any exact one",
        type=Word(EMULATOR_NAMES),
    ),
    SweepOption(
        name="steps",
        meaning='timed steps, after the warm-up; `"all"` lets a script train to its end',
        unset=f"`{DEFAULT_STEPS}`",
        type=WholeNumberOrWord(_COUNT, ALL_STEPS),
    ),
    SweepOption(
        name="epochs",
        meaning="train this many epochs, and evaluate after each; not with `steps`",
        type=_COUNT,
    ),
    SweepOption(
        name="warmup_steps",
        meaning="steps that run first and are not timed",
        field="warmup_step_count",
        type=WARMUP_STEPS,
        default=DEFAULT_WARMUP_STEPS,
    ),
    SweepOption(
        name="seed",
        meaning="seed of the weights and of the order of the examples",
        type=WholeNumber(0, MAX_SEED),
        default=0,
    ),
    SweepOption(
        name="labels",
        meaning='labels that an agent must have, such as `{ instance_type = "Standard_D2s_v3" }`',
        type=Labels(),
        default={},
    ),
    SweepOption(
        name="time_limit_s",
        meaning="seconds after which a training fails with `time_limit`; up to a week",
        type=TIME_LIMIT_S,
        default=DEFAULT_TIME_LIMIT_S,
    ),
)
CASE_OPTIONS_BY_NAME: Mapping[str, SweepOption] = {one.name: one for one in CASE_OPTIONS}
PRECISION_OPTIONS = (
    SweepOption(
        name="precision_percent",
        meaning="half of the 95 % interval, as a share of the median step time",
        field="target_ratio",
        type=Amount(unit="%", noun="percentage", per_base=100, low=0, high=50, is_above_low=True),
        default=Precision().target_ratio,
    ),
    SweepOption(
        name="min_repetitions",
        meaning="at least this many",
        type=WholeNumber(LEAST_REPETITIONS, MAX_AUTO_REPETITIONS),
        default=Precision().min_repetitions,
    ),
    SweepOption(
        name="max_repetitions",
        meaning="at most this many; no less than `min_repetitions`",
        type=WholeNumber(LEAST_REPETITIONS, MAX_AUTO_REPETITIONS),
        default=Precision().max_repetitions,
    ),
)
SWEEP_OPTIONS = (
    SweepOption(
        name="repeat",
        meaning="allow a global batch larger than the training set",
        type=Boolean(),
        default=False,
    ),
    SweepOption(
        name="skip_impossible",
        meaning="leave out configurations that cannot run, and list them",
        type=Boolean(),
        default=False,
    ),
    SweepOption(
        name="priority",
        meaning="higher goes first",
        type=WholeNumber(-MAX_PRIORITY, MAX_PRIORITY),
        default=0,
    ),
    SweepOption(
        name=BUDGET,
        meaning="start no further job once its attempts have taken this much machine time",
        field="budget_machine_s",
        type=MACHINE_HOURS,
    ),
    SweepOption(
        name=NOTIFY,
        meaning="addresses that get a [message](notifications.md) about the sweep; they are "
        "kept apart from the sweep, since they are often secret",
        type=WebAddresses(most=10, most_characters=2000),
        default=(),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSpec:
    """One cross product.

    `values`: of every axis by its field, at least one each, in the order in which they were
    written. `emulator` None: any that is exact. Exactly one of `steps` and `epochs` is set; neither
    lets a script train to its end.
    """

    values: Mapping[str, tuple[Any, ...]]
    emulator: str | None
    steps: int | None
    epochs: int | None
    warmup_step_count: int
    seed: int
    labels: dict[str, str]
    time_limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSpec:
    """`repetitions`: of every cell to begin with; with a `precision` more follow as needed."""

    name: str
    repetitions: int = 1
    precision: Precision | None = None
    repeat: bool = False
    skip_impossible: bool = False
    priority: int = 0
    budget_machine_s: float | None = None
    notify: tuple[str, ...] = ()
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
        name=scalar(data, "name", read=Name().read),
        repetitions=(
            scalar(data, "repetitions", read=_read_repetitions, default=1)
            if precision is None
            else precision.min_repetitions
        ),
        precision=precision,
        **_read(data, SWEEP_OPTIONS),
        cases=tuple(_parse_case(case, f"case[{i}]") for i, case in enumerate(cases)),
    )


def parse_precision(data: Mapping[str, object]) -> Precision | None:
    """Read of a sweep how precise its cells are to be; None where repetitions are a number.

    Raises:
        InvalidSpec: as `parse_sweep`; also where a key says how precise, and repetitions say how
            many: one of the two would be ignored.
    """
    if data.get("repetitions") != AUTO:
        for option in PRECISION_OPTIONS:
            if option.name in data:
                raise InvalidSpec(
                    option.name, data[option.name], f'repetitions = "{AUTO}" beside it'
                )
        return None
    *first, most = PRECISION_OPTIONS
    given = _read(data, tuple(first))
    least = given["min_repetitions"]
    default = max(least, most.default)
    read = WholeNumber(least, MAX_AUTO_REPETITIONS).read
    return Precision(**given, max_repetitions=scalar(data, most.name, read=read, default=default))


def parse_budget(data: Mapping[str, object]) -> float | None:
    """Read a budget, in seconds of machines; None where there is none.

    Raises:
        InvalidSpec: as `parse_sweep`.
    """
    return scalar(data, BUDGET, read=MACHINE_HOURS.read, default=None)


def _read_repetitions(value: object, where: str) -> int:
    count = REPETITIONS.read(value, where)
    assert isinstance(count, int)  # AUTO is a precision
    return count


def _parse_case(case: object, where: str) -> CaseSpec:
    if not isinstance(case, Mapping):
        raise InvalidSpec(where, case, "a table")
    refuse_unknown(case, _CASE_FIELDS, where=f"{where}.")
    if "script" in case:
        own = [axis.name for axis in AXES if axis.is_of_scripts]
        others = [axis.name for axis in AXES if not axis.is_of_scripts]
        case = as_axes(case, own, others=others, where=f"{where}.")
    elif key := next((key for key in SCRIPT_KEYS if key in case), None):
        raise InvalidSpec(f"{where}.{key}", case[key], "nothing without script")
    if "steps" in case and "epochs" in case:
        raise InvalidSpec(f"{where}.epochs", case["epochs"], "either steps or epochs, not both")
    at = f"{where}."
    values = {
        one.field: axis(
            case,
            one.name,
            where=at,
            read=one.type.read,
            default=() if one.is_required else (one.default,),
        )
        for one in AXES
    }
    given = _read(case, CASE_OPTIONS, where=at)
    if given["steps"] is None and given["epochs"] is None:
        given["steps"] = DEFAULT_STEPS
    elif given["steps"] == ALL_STEPS:
        if not all(script_of(model) for model in values["model"]):
            expected = "a number: only scripts of your own decide when they end"
            raise InvalidSpec(f"{at}steps", ALL_STEPS, expected)
        given["steps"] = None
    return CaseSpec(values=values, **given)


def _read(
    table: Mapping[str, object], options: tuple[SweepOption, ...], *, where: str = ""
) -> dict[str, Any]:
    return {
        one.field: scalar(table, one.name, where=where, read=one.type.read, default=one.default)
        for one in options
    }


_SWEEP_FIELDS = (
    "name",
    "repetitions",
    *(option.name for option in (*PRECISION_OPTIONS, *SWEEP_OPTIONS)),
    "case",
)
_CASE_FIELDS = (
    *(one.name for one in AXES),
    *SCRIPT_KEYS,
    *(option.name for option in CASE_OPTIONS),
)

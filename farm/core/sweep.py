"""A sweep: axes whose cross product becomes jobs, read from the form that people write.

The one place where milliseconds, percent and megabits become seconds, ratios and bytes per
second. What `parse_sweep` returns is well formed; whether its cells can run is for
`farm.core.expansion` to say, which knows the models, data sets and strategies.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from farm.core.spec import (
    MAX_GLOBAL_BATCH_SIZE,
    MAX_ONE_WAY_DELAY_S,
    MAX_STEPS,
    MAX_WORLD_SIZE,
    TrainingPass,
)
from farm.errors import InvalidSpec

DEFAULT_STEPS = 10
MAX_SEED = 2**31 - 1
MAX_PRIORITY = 1000
MAX_NAME_CHARACTERS = 200
# A terabit: beyond any link, and far from what would overflow a float.
MAX_BANDWIDTH_MBIT_PER_S = 1_000_000
MAX_TIME_LIMIT_S = 7 * 86400
_BYTES_PER_S_IN_ONE_MBIT_PER_S = 125_000

_T = TypeVar("_T")
_Read = Callable[[object, str], _T]  # of the value and the name of its field


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSpec:
    """One cross product. Every axis has at least one value, in the order it was written."""

    models: tuple[str, ...]
    datasets: tuple[str, ...]
    strategies: tuple[str, ...]
    world_sizes: tuple[int, ...]
    global_batch_sizes: tuple[int, ...]
    server_counts: tuple[int, ...] = (0,)
    one_way_delays_s: tuple[float, ...] = (0.0,)
    jitters_s: tuple[float, ...] = (0.0,)
    packet_loss_ratios: tuple[float, ...] = (0.0,)
    bandwidths_bytes_per_s: tuple[float | None, ...] = (None,)  # None: not limited
    training_passes: tuple[TrainingPass, ...] = (TrainingPass.FORWARD_BACKWARD,)
    steps: int | None = None
    epochs: int | None = None
    warmup_step_count: int = 5
    seed: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    time_limit_s: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSpec:
    name: str
    repetitions: int = 1
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
    _refuse_unknown(data, _SWEEP_FIELDS, where="")
    cases = data.get("case")
    if not isinstance(cases, list) or not cases:
        raise InvalidSpec("case", cases, "at least one [[case]] table")
    return SweepSpec(
        name=_scalar(data, "name", read=_name),
        # Only the number of jobs limits it, and that is the expansion's to name.
        repetitions=_scalar(data, "repetitions", read=_whole(1, MAX_SEED), default=1),
        repeat=_scalar(data, "repeat", read=_flag, default=False),
        skip_impossible=_scalar(data, "skip_impossible", read=_flag, default=False),
        priority=_scalar(data, "priority", read=_whole(-MAX_PRIORITY, MAX_PRIORITY), default=0),
        cases=tuple(_parse_case(case, f"case[{i}]") for i, case in enumerate(cases)),
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the closest of the known names, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def _parse_case(case: object, where: str) -> CaseSpec:
    if not isinstance(case, Mapping):
        raise InvalidSpec(where, case, "a table")
    _refuse_unknown(case, _CASE_FIELDS, where=f"{where}.")
    if "steps" in case and "epochs" in case:
        raise InvalidSpec(f"{where}.epochs", case["epochs"], "either steps or epochs, not both")
    at = f"{where}."
    count = _whole(1, MAX_STEPS)
    default_steps = None if "epochs" in case else DEFAULT_STEPS
    return CaseSpec(
        models=_axis(case, "model", where=at, read=_name),
        datasets=_axis(case, "dataset", where=at, read=_name),
        strategies=_axis(case, "strategy", where=at, read=_name),
        world_sizes=_axis(case, "world_size", where=at, read=_whole(1, MAX_WORLD_SIZE)),
        global_batch_sizes=_axis(
            case, "global_batch_size", where=at, read=_whole(1, MAX_GLOBAL_BATCH_SIZE)
        ),
        server_counts=_axis(
            case, "server_count", where=at, read=_whole(0, MAX_WORLD_SIZE), default=(0,)
        ),
        one_way_delays_s=_axis(case, "one_way_delay_ms", where=at, read=_delay_s, default=(0.0,)),
        jitters_s=_axis(case, "jitter_ms", where=at, read=_delay_s, default=(0.0,)),
        packet_loss_ratios=_axis(
            case, "packet_loss_percent", where=at, read=_loss_ratio, default=(0.0,)
        ),
        bandwidths_bytes_per_s=_axis(
            case, "bandwidth_mbit_per_s", where=at, read=_bandwidth_bytes_per_s, default=(None,)
        ),
        training_passes=_axis(
            case, "pass", where=at, read=_pass, default=(TrainingPass.FORWARD_BACKWARD,)
        ),
        steps=_scalar(case, "steps", where=at, read=count, default=default_steps),
        epochs=_scalar(case, "epochs", where=at, read=count, default=None),
        warmup_step_count=_scalar(
            case, "warmup_steps", where=at, read=_whole(0, MAX_STEPS), default=5
        ),
        seed=_scalar(case, "seed", where=at, read=_whole(0, MAX_SEED), default=0),
        labels=_scalar(case, "labels", where=at, read=_labels, default={}),
        time_limit_s=_scalar(case, "time_limit_s", where=at, read=_time_limit_s, default=3600.0),
    )


_SWEEP_FIELDS = ("name", "repetitions", "repeat", "skip_impossible", "priority", "case")
_CASE_FIELDS = (
    "model",
    "dataset",
    "strategy",
    "world_size",
    "global_batch_size",
    "server_count",
    "one_way_delay_ms",
    "jitter_ms",
    "packet_loss_percent",
    "bandwidth_mbit_per_s",
    "pass",
    "steps",
    "epochs",
    "warmup_steps",
    "seed",
    "labels",
    "time_limit_s",
)


def _refuse_unknown(table: Mapping[str, object], known: tuple[str, ...], *, where: str) -> None:
    for key, value in table.items():
        if key not in known:
            hint = did_you_mean(str(key), known)
            expected = f"one of the fields {', '.join(known)}{hint}"
            shown = key if isinstance(key, str) and key else repr(key)
            raise InvalidSpec(f"{where}{shown}", value, expected)


_REQUIRED = object()


def _scalar(
    table: Mapping[str, object],
    key: str,
    *,
    where: str = "",
    read: _Read[_T],
    default: object = _REQUIRED,
) -> _T:
    if key in table:
        return read(table[key], f"{where}{key}")
    if default is _REQUIRED:
        raise InvalidSpec(f"{where}{key}", None, "a value: this field is required")
    return default  # type: ignore[return-value] # the caller's default is of the reader's type


def _axis(
    case: Mapping[str, object],
    key: str,
    *,
    where: str,
    read: _Read[_T],
    default: tuple[_T, ...] = (),
) -> tuple[_T, ...]:
    """Read a list, or a single value as a list of one. Without a default it is required."""
    name = f"{where}{key}"
    if key not in case:
        if not default:
            raise InvalidSpec(name, None, "a value: this field is required")
        return default
    value = case[key]
    if not isinstance(value, list):
        return (read(value, name),)
    if not value:
        raise InvalidSpec(name, value, "at least one value")
    return tuple(read(item, f"{name}[{i}]") for i, item in enumerate(value))


# Each of these reads one value, of the field named, or raises InvalidSpec.


def _name(value: object, where: str) -> str:
    # Not printable: line breaks, NUL (which PostgreSQL refuses) and halves of surrogate pairs.
    if isinstance(value, str) and value.strip() and value.isprintable():
        if len(value) <= MAX_NAME_CHARACTERS:
            return value
        raise InvalidSpec(where, value, f"at most {MAX_NAME_CHARACTERS} characters")
    raise InvalidSpec(where, value, "a text of printable characters")


def _flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidSpec(where, value, "true or false")
    return value


def _whole(low: int, high: int) -> _Read[int]:
    def read(value: object, where: str) -> int:
        # bool is an int in Python, but 'true' is no count.
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise InvalidSpec(where, value, f"a whole number from {low} to {high}")
        return value

    return read


def _number(value: object) -> int | float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value + 0  # -0.0 becomes 0.0, which has another canonical text
    return None


def _delay_s(value: object, where: str) -> float:
    number, high = _number(value), MAX_ONE_WAY_DELAY_S * 1000
    # Written so that NaN, which is neither below nor above anything, does not pass.
    if number is None or not 0 <= number <= high:
        raise InvalidSpec(where, value, f"a number of milliseconds from 0 to {high:g}")
    return number / 1000


def _loss_ratio(value: object, where: str) -> float:
    number = _number(value)
    if number is None or not 0 <= number < 100:
        raise InvalidSpec(where, value, "a percentage from 0 to below 100")
    return number / 100


def _bandwidth_bytes_per_s(value: object, where: str) -> float | None:
    number = _number(value)
    if number is None or not 0 < number <= MAX_BANDWIDTH_MBIT_PER_S:
        expected = f"a number of Mbit/s above 0 and up to {MAX_BANDWIDTH_MBIT_PER_S}"
        raise InvalidSpec(where, value, expected)
    return float(number * _BYTES_PER_S_IN_ONE_MBIT_PER_S)


def _pass(value: object, where: str) -> TrainingPass:
    try:
        return TrainingPass(value)
    except ValueError:
        allowed = " or ".join(repr(p.value) for p in TrainingPass)
        raise InvalidSpec(where, value, allowed) from None


def _labels(value: object, where: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidSpec(where, value, "a table of texts")
    return {_name(key, where): _name(item, f"{where}.{key}") for key, item in value.items()}


def _time_limit_s(value: object, where: str) -> float:
    number = _number(value)
    if number is None or not 1 <= number <= MAX_TIME_LIMIT_S:
        raise InvalidSpec(where, value, f"a number of seconds from 1 to {MAX_TIME_LIMIT_S}")
    return float(number)

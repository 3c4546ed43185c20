"""Matches the columns of a foreign table to those of the measurement table.

The unit is part of the name. A column is converted only if its name states both the quantity and
the unit. Otherwise an error says what is missing; nothing is guessed.
"""

from __future__ import annotations

import difflib
import enum
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from farm.importers.hints import COLUMN_MEANINGS, STATISTIC, usual_words

_SECONDS: Mapping[str, Decimal] = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), Decimal(1)),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), Decimal("1e-3")),
    **dict.fromkeys(("us", "usec", "microsecond", "microseconds"), Decimal("1e-6")),
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), Decimal("1e-9")),
    **dict.fromkeys(("minute", "minutes", "mins"), Decimal(60)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), Decimal(3600)),
}
_MEGABITS: Mapping[str, Decimal] = {
    f"{prefix}{word}{plural}": factor * size
    for prefix, factor in {
        **{"": Decimal("1e-6"), "k": Decimal("1e-3"), "kilo": Decimal("1e-3")},
        **{"m": Decimal(1), "mega": Decimal(1), "g": Decimal(1000), "giga": Decimal(1000)},
    }.items()
    for word, size in (("bit", Decimal(1)), ("byte", Decimal(8)))
    for plural in ("", "s")
}
_STEP = "step_time_s"
# Column of the table and the part of a second that is its unit: what else the quantity is called.
_DURATIONS = {
    (_STEP, 1): ("step_time", "time_per_step", "iteration_time", "time_per_iteration"),
    ("time_per_epoch_s", 1): ("time_per_epoch", "epoch_time", "epoch_duration"),
    ("step_time_spread_s", 1): ("step_time_spread", "step_time_iqr"),
    ("one_way_delay_ms", 1000): ("one_way_delay", "one_way_latency"),
    ("jitter_ms", 1000): ("jitter",),
}
_EXAMPLES = ("example", "image", "img", "sample", "record")
_STEPS = ("step", "iteration", "iter", "it")
_HUNDRED = Decimal(100)
_MINUTES = re.compile(r"[\[(]\s*mins?\s*[\])]")
_LONGEST = 100  # characters of a header that are looked at
# Bits or bytes: no more than a letter's case tells them apart, which people do not keep to.
_SHORT_BANDWIDTH = re.compile(r"bandwidth_[kmg]?bps|bandwidth_[kmg]b_per_s(ec)?")
# What stands between words and says nothing: a hyphen does, but no minus before or behind a name.
_BETWEEN = re.compile(
    r"(?<=[0-9a-z])\s?[-\u2010-\u2014]\s?(?=[0-9a-z])|[\s_.,:;()\[\]{}\ufeff\u200b]+"
)
_SIGN = re.compile(r"[^0-9a-z ]")
_ANY_SIGN = "?"
_CLOSE_RATIO = 0.8
_SHOWN_SIGNS = 8
# Where a number belongs that stands in a header, by the word beside it.
_NUMBERED: Mapping[str, str] = {
    **dict.fromkeys(("batch", "gbs"), "global_batch_size"),
    **dict.fromkeys(("gpu", "node", "n", "np", "ws", "w", "size"), "world_size"),
    **dict.fromkeys(("run", "trial", "rep", "repeat", "repetition"), "repetition"),
    **dict.fromkeys(("ps", "server", "servers"), "server_count"),
}


class Derivation(enum.Enum):
    """How a value of another kind becomes one of the measurement table's."""

    UNIT = "the same quantity in another unit"
    EXAMPLE_RATE = "global_batch_size / {header}"
    STEP_RATE = "1 / {header}"
    BATCH = "{header} x world_size x replicas_per_rank"


@dataclass(frozen=True, slots=True)
class Conversion:
    """A column that gives the values of `target`, a column of the measurement table."""

    target: str
    derivation: Derivation
    factor: Decimal = Decimal(1)  # to the unit of the target, or of the rate to one per second

    def statement(self, header: str) -> str:
        """Describe in one line how the column is converted."""
        unit = ""
        if self.factor > 1:
            unit = f" x {_plain(self.factor)}"
        elif self.factor < 1:
            unit = f" / {_plain(1 / self.factor)}"
        if self.derivation is Derivation.UNIT:
            return f"{self.target} = {header}{unit}"
        given = f"({header}{unit})" if unit else header
        return f"{self.target} = {self.derivation.value.format(header=given)}"


def _conversions() -> Iterator[tuple[str, Conversion]]:
    """Yield every name that is converted, without its prefix or plural, and how."""
    for (target, parts), names in _DURATIONS.items():
        for unit, seconds in _SECONDS.items():
            for name in names:
                yield f"{name}_{unit}", Conversion(target, Derivation.UNIT, seconds * parts)
    # "min" of a duration may be the least of several.
    for unit, seconds in {**_SECONDS, "min": Decimal(60)}.items():
        for per, target in (*((step, _STEP) for step in _STEPS), ("epoch", "time_per_epoch_s")):
            yield f"{unit}_per_{per}", Conversion(target, Derivation.UNIT, seconds)
        for word in (name for one in _EXAMPLES for name in (one, f"{one}s")):
            rate = Conversion(_STEP, Derivation.EXAMPLE_RATE, 1 / seconds)
            yield f"{word}_per_{unit}", rate
            yield f"throughput_{word}_per_{unit}", rate
        for word in (name for one in _STEPS for name in (one, f"{one}s")):
            yield f"{word}_per_{unit}", Conversion(_STEP, Derivation.STEP_RATE, 1 / seconds)
    for unit, megabits in _MEGABITS.items():
        for second in ("s", "sec", "second"):
            target = "bandwidth_mbit_per_s"
            yield f"bandwidth_{unit}_per_{second}", Conversion(target, Derivation.UNIT, megabits)
    for ratio in ("ratio", "fraction"):
        yield f"packet_loss_{ratio}", Conversion("packet_loss_percent", Derivation.UNIT, _HUNDRED)
        yield f"accuracy_{ratio}", Conversion("accuracy", Derivation.UNIT)
    for percent in ("percent", "pct", "percentage"):
        yield f"packet_loss_{percent}", Conversion("packet_loss_percent", Derivation.UNIT)
        yield f"accuracy_{percent}", Conversion("accuracy", Derivation.UNIT, 1 / _HUNDRED)
    yield "per_replica_batch_size", Conversion("global_batch_size", Derivation.BATCH)


CONVERTED: Mapping[str, Conversion] = dict(_conversions())


def normal_form(header: str) -> str:
    """Return a name as the measurement table writes them: `Step time [ms]` is step_time_ms.

    A letter of another script or a sign such as `+-` may make another quantity of it. Each becomes
    a question mark, which no name of a column has.
    """
    text = _SIGN.sub(_ANY_SIGN, _spaced(header))
    # "in" precedes a unit, and says nothing more.
    return "_".join(w for w in text.split() if w != "in")


def _spaced(header: str) -> str:
    """Return a header in lower case, with spaces for what stands between words."""
    text = (
        unicodedata.normalize("NFKC", header[:_LONGEST])
        .replace("\u03bc", "u")
        .strip(" \t\"'\ufeff")
    )
    text = text.removeprefix("#")  # as numpy.savetxt begins a header
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text).lower()
    text = _MINUTES.sub(" minutes ", text)
    text = text.replace("%", " percent ").replace("/", " per ")
    return _BETWEEN.sub(" ", text)


def column_of(header: str, known: Collection[str]) -> str | Conversion | None:
    """Return which of the `known` columns a header names, or how it is converted into one.

    None: neither; see `hint_of`.
    """
    plain = header.strip().lower()
    if not plain or plain in known:
        return plain
    name = normal_form(header)
    if name in known:
        return name
    conversion = CONVERTED.get(name)
    return conversion if conversion is not None and conversion.target in known else None


def hint_of(header: str, known: Sequence[str]) -> str | None:
    """Return a hint for a column that is neither known nor converted; None: no hint.

    What a name means goes before what it looks like: a local batch is not a global one. Misspelt
    names are never taken for a name of another unit.
    """
    name = normal_form(header)
    if _ANY_SIGN in name:
        signs = "".join(dict.fromkeys(_SIGN.findall(_spaced(header))))[:_SHOWN_SIGNS]
        return f"{signs!r} is not understood: rename the column only if it is no other quantity"
    conversion = CONVERTED.get(name)
    if conversion is not None:
        least = _MINUTES.sub(" min ", header[:_LONGEST].lower())
        if normal_form(least) == name:
            return None  # of a column that is not wanted here
        name = normal_form(least)
    if _SHORT_BANDWIDTH.fullmatch(name):
        return "bits or bytes: name it bandwidth_mbit_per_s, or bandwidth_mbyte_per_s (x 8)"
    usual = usual_words(name)
    for pattern, meaning in COLUMN_MEANINGS:
        if pattern.fullmatch(usual):
            return meaning
    candidates = [*known, *(n for n, c in CONVERTED.items() if c.target in known)]
    close = difflib.get_close_matches(name, candidates, n=3, cutoff=_CLOSE_RATIO)
    for meant in close:
        if _ending(meant) == _ending(name) and not _differs_in_a_word(meant, name):
            return f"did you mean '{meant}'?"
    return None


def _ending(name: str) -> str:
    """Return the unit that a name ends with; empty where it ends with none."""
    last = name.rpartition("_")[2]
    return last if last in _SECONDS or last in ("percent", "pct", "ratio", "fraction") else ""


def _differs_in_a_word(one: str, other: str) -> bool:
    """Whether one of two names has words in place of others', such as epoch for step."""
    ones, others = one.split("_"), other.split("_")
    if len(ones) != len(others):
        return True
    pairs = [(a, b) for a, b in zip(ones, others, strict=True) if a != b]
    return not all(difflib.SequenceMatcher(None, a, b).ratio() >= 0.7 for a, b in pairs)


def _numbers_apart(header: str) -> list[str]:
    """Return the words of a header with # for each number; p99 and top1 are words."""
    words = re.findall(r"(?:p|top_?)\d+|\d+|[a-z]+|\?+", normal_form(header.replace("=", " ")))
    return usual_words("_".join("#" if w.isdigit() else w for w in words)).split("_")


def wide_columns(headers: Sequence[str]) -> list[str]:
    """Return those of the headers that differ in numbers alone: one quantity in many columns."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for header in headers:
        words = _numbers_apart(header)
        if "#" in words:
            groups.setdefault(tuple(words), []).append(header)
    return max((group for group in groups.values() if len(group) > 1), key=len, default=[])


def wide_hint(header: str, known: Sequence[str], *, missing: Sequence[str]) -> str:
    """Say how to write the columns of which `header` is one; `missing`: required columns."""
    words = _numbers_apart(header)
    columns, used = [], set()
    for i in (i for i, word in enumerate(words) if word == "#"):
        beside = [k for k in (i - 1, i + 1) if 0 <= k < len(words) and words[k] in _NUMBERED]
        if beside and words[beside[0] - 1 : beside[0]] != ["per"]:
            columns.append(_NUMBERED[words[beside[0]]])
            used.add(beside[0])
    columns = columns or [*missing[:1]] or ["repetition"]
    value = "_".join(w for k, w in enumerate(words) if w != "#" and k not in used)
    unit = value.removeprefix("time").removeprefix("t").removeprefix("_")
    if f"step_time_{unit}" in CONVERTED:
        value = f"step_time_{unit}"
    if not unit:
        into = "one that has their unit in its name, such as step_time_s or step_time_ms"
    elif column_of(value, known):
        into = f"one such as {value}"
    else:
        hint = hint_of(header if _ANY_SIGN in value else value, known)
        into = "another" + (f" ({hint})" if hint else "")
    return (
        "a wide table; write one row for each of these columns, with their number in a column such "
        f"as {' and '.join(columns)} and their values in {into}"
    )


def least_of_several(headers: Sequence[str]) -> list[str]:
    """Return headers whose "(min)" is the least: another one has "(max)" or "(mean)" there."""
    in_minutes = {
        header: normal_form(header[: found.start()] + header[found.end() :]).split("_")
        for header in headers
        if (found := _MINUTES.search(header.lower()))
    }
    if not in_minutes:
        return []
    statistics = re.compile(rf"{STATISTIC}|mean|avg|average|median|std|.*\?.*")
    others = set()
    for header in headers:
        words = normal_form(header).split("_")
        left = [word for word in words if not statistics.fullmatch(word)]
        if left != words:
            others.add(_without_units(left))
    return [header for header, words in in_minutes.items() if _without_units(words) in others]


def _without_units(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word in words if word not in _SECONDS)


def _plain(number: Decimal) -> str:
    # 1 / (1 / 60) is 60 but for its last digits.
    return f"{round(number, 9).normalize():f}"

"""What a column of anybody's table means: a column of the measurement table, one that is converted
into it, or neither, with a hint by what its name says.

The unit is part of the name. A column is converted only if its name says both what is measured and
in which unit; what its name leaves open is asked for, and never guessed.
"""

from __future__ import annotations

import difflib
import enum
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal


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
        """Say in one line what is done with the column."""
        unit = ""
        if self.factor > 1:
            unit = f" x {_plain(self.factor)}"
        elif self.factor < 1:
            unit = f" / {_plain(1 / self.factor)}"
        if self.derivation is Derivation.UNIT:
            return f"{self.target} = {header}{unit}"
        given = f"({header}{unit})" if unit else header
        return f"{self.target} = {self.derivation.value.format(header=given)}"


_SECONDS: Mapping[str, Decimal] = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), Decimal(1)),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), Decimal("1e-3")),
    **dict.fromkeys(("us", "usec", "microsecond", "microseconds"), Decimal("1e-6")),
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), Decimal("1e-9")),
    **dict.fromkeys(("minute", "minutes"), Decimal(60)),
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


_HUNDRED = Decimal(100)
_LONGEST = 100  # characters of a header that are looked at
CONVERTED: Mapping[str, Conversion] = dict(_conversions())
# Bits or bytes: no more than a letter's case tells them apart, which people do not keep to.
_SHORT_BANDWIDTH = re.compile(r"bandwidth_[kmg]?bps|bandwidth_[kmg]b_per_s(ec)?")


def normal_form(header: str) -> str:
    """Return a name as the measurement table writes them: `Step time [ms]` is step_time_ms."""
    text = (
        unicodedata.normalize("NFKC", header[:_LONGEST])
        .replace("\u03bc", "u")
        .strip(" \t\"'\ufeff")
    )
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text).lower()
    text = re.sub(r"[\[(]\s*mins?\s*[\])]", " minutes ", text)
    text = text.replace("%", " percent ").replace("/", " per ")
    text = re.sub(r"\bin\b(?=[ \w]*$)", " ", text)
    return re.sub(r"[^0-9a-z]+", "_", text).strip("_")


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


_DEVICES = (
    "(replica|rank|worker|gpu|device|machine|node|core|tpu|accelerator|vm|host|process|instance)s?"
)
_COUNT = r"(n|nr|num|no|number|number_of|count|count_of|total)_?"
_UNITS = "its unit in the name, such as "
# By the normal form, the first that fits it whole. Nothing here names a column of another unit
# without saying how to convert into it.
_HINTS: Sequence[tuple[str, str]] = (
    (r"unnamed(_\d+)*|index|row(_id)?|level_\d+", "a number that a program gave the rows"),
    (
        rf"(.*_)?(throughput|speed|rate|ips|fps|per_s(ec(ond)?)?)(_.*)?_per_{_DEVICES}(_.*)?",
        "a throughput of one device: step_time_s = global_batch_size / (it x their number)",
    ),
    (
        r"(.*_)?(k|kilo|thousands?|millions?)_?(of_)?(images?|imgs?|examples?|samples?|records?)_per_"
        r"(s|sec|second|min|minute|h|hr|hour)",
        "a throughput in thousands or millions: multiply its values, and name it examples_per_s",
    ),
    (
        r"(.*_)?(std|stddev|stdev|sd|variance|var|iqr|ci\d*|sem|err)(_.*)?",
        "how much values differ: step_time_spread_s is the interquartile range of the steps",
    ),
    (
        r"(step|iter|iteration|it)_(s|secs?|seconds?|ms|us|ns)",
        "a time of a step: name it step_time_s, step_time_ms or step_time_us",
    ),
    (r".*tokens?_.*", "a rate of tokens, not examples: step_time_s = tokens of a step / it"),
    (
        r"(.*_)?(images?|imgs?|examples?|ex|samples?|records?)_(per_)?"
        r"(s|secs?|seconds?|ms|min|minutes?|h|hours?)|(.*_)?throughput(_.*)?|fps|ips|speed",
        "a throughput: name it examples_per_s if it is of all ranks together, per second; else "
        "step_time_s = global_batch_size / throughput",
    ),
    (
        rf"(.*_)?(per_?{_DEVICES}|local|micro|mini|device|{_DEVICES})_?(batch.*|bs|bsz)|"
        rf"(batch(_?size)?|bs|bsz|samples?|examples?|images?)_per_{_DEVICES}",
        "a batch of one device: name it per_replica_batch_size, and it is multiplied by world_size "
        "and replicas_per_rank; or global_batch_size = it x the number of devices (and x the steps "
        "of a gradient accumulation)",
    ),
    (
        r"(total|effective|overall|global)_?(batch(_?size)?|bs|bsz)|gbs|gbsz",
        "examples of all ranks in one step: name it global_batch_size",
    ),
    (
        r"(n_?)?batch(_?size)?|bs|bsz|batchsize",
        "a batch of whom it does not say: global_batch_size of all ranks together, or "
        "per_replica_batch_size of one",
    ),
    (
        rf"{_DEVICES}_per_{_DEVICES}",
        "replicas_per_rank, if a rank trains on so many devices",
    ),
    (
        rf"({_COUNT})?(gpus?|devices?|accelerators?|tpus?)(_?count|_?num(ber)?)?",
        "devices: name it world_size where each rank has one device; else world_size counts the "
        "ranks, and replicas_per_rank the devices of one",
    ),
    (
        rf"({_COUNT})?(nodes?|workers?|machines?|hosts?|vms?|instances?|ranks?|process(es)?|procs?|"
        r"peers?|replicas?|clients?|learners?|nprocs?|np)(_?count|_?num(ber)?)?|"
        r"(cluster|world|gang)_?(size)?|parallelism|n",
        "name it world_size if each of them is one rank that trains",
    ),
    (
        rf"({_COUNT})?(ps|servers?|parameter_servers?)(_?count)?",
        "name it server_count if these are parameter servers beside the ranks",
    ),
    (
        r"(.*_)?(rtt|round_?trip(_?time|_?delay|_?latency)?|ping)(_.*)?",
        "a round trip: one_way_delay_ms is half of it, in ms, if both ways are alike",
    ),
    (
        r"(.*_)?(delay|latency|lag)(_.*)?",
        "a delay: name it one_way_delay_ms or one_way_delay_s, if it is of one way (half of a "
        "round trip)",
    ),
    (r"jitter(_.*)?", f"a jitter: {_UNITS}jitter_ms or jitter_s"),
    (
        r"(.*_)?(bandwidth|link_speed|bitrate|[kmg]bps|[kmg]bits?|[kmg]bytes?)(_.*)?",
        "a bandwidth: name it bandwidth_mbit_per_s, or bandwidth_mbyte_per_s for bytes (1 Gbit/s "
        "is 1000 Mbit/s, 1 MB/s is 8 Mbit/s)",
    ),
    (
        r"(.*_)?(packet|pkt)_?(loss|drop)s?(_.*)?|(loss|drop)_(rate|ratio|percent|pct)",
        "a packet loss: name it packet_loss_percent, or packet_loss_ratio from 0 to 1",
    ),
    (r"(.*_)?loss(_.*)?", "a loss of the training has no column here"),
    (
        r"(.*_)?(acc|accuracy|top_?1)(_.*)?",
        "an accuracy: name it accuracy if it is from 0 to 1 at the end, else accuracy_percent",
    ),
    (
        r"(data|dataset|training|train|epoch)_?(set)?_?(size|len(gth)?|count)|"
        rf"({_COUNT})?(data|dataset|train(ing)?)?_?(examples?|samples?|images?|records?)"
        r"(_count|_per_epoch)?",
        "a data set's size: steps_per_epoch = size / global_batch_size, rounded up",
    ),
    (
        r"(.*_)?epoch_?(time|duration|length|s|sec|seconds|ms|min)(_.*)?|(.*_)?time_per_epoch.*",
        f"a time of an epoch: {_UNITS}time_per_epoch_s or time_per_epoch_ms",
    ),
    (
        r"(.*_)?(step|iter|iteration|batch)_?(time|duration|length|latency)(_.*)?|"
        r"(.*_)?time_per_(step|iter|iteration|batch).*",
        f"a time of a step: {_UNITS}step_time_s, step_time_ms or step_time_us",
    ),
    (
        r"(total|train|training|wall|wall_clock|run|elapsed|overall)_?(time|duration)(_.*)?|"
        r"runtime(_.*)?|elapsed(_.*)?|walltime(_.*)?",
        "a time of a whole run: time_per_epoch_s = it / epochs, in seconds",
    ),
    (
        r"(time|duration|t|mean|median|avg)_?(ms|msecs?|milliseconds?)|ms|milliseconds?",
        "milliseconds of what it does not say: name it step_time_ms or time_per_epoch_ms, and it "
        "is divided by 1000",
    ),
    (
        r"(time|duration|t|mean|median|avg)_?(us|usecs?|microseconds?)|us|microseconds?",
        "microseconds of what it does not say: name it step_time_us, and it is divided by 1000000",
    ),
    (
        r"(.*_)?(time|duration|seconds?|secs?|minutes?|hours?)|(time|duration|t|mean|median)_s",
        f"a time of what it does not say: {_UNITS}step_time_s or time_per_epoch_s",
    ),
    (
        r"batch(es)?_per_(s|sec|second|min|minute)",
        "a rate of steps: name it steps_per_s if a batch is one step of all ranks",
    ),
    (
        rf"({_COUNT})?(steps|iterations|iters|batches)(_count)?",
        "a number of steps: name it steps_per_epoch if it is of one epoch",
    ),
    (r"(arch|architecture|net|network_name|model_name|nn)", "name it model"),
    (
        r"(machine|vm|gpu|device|hardware|cpu)_?(type|name|model)|hardware|sku|flavou?r",
        "name it instance_type",
    ),
    (r"(data|dataset_name|task)", "name it dataset"),
    (r"(lib|library|backend|engine|software)", "name it framework"),
    (r"(algorithm|method|scheme|mode|approach|dist(ribution)?_strategy)", "name it strategy"),
    (
        r"(run|trial|rep|repeat|replicate)(_?(id|nr|no|number))?",
        "name it repetition, counted from 0",
    ),
    (
        r"(error|failed|failure|outcome|success|state|result)",
        "name it status: ok, or why there is no time",
    ),
)
_COMPILED = tuple((re.compile(pattern), text) for pattern, text in _HINTS)
_CLOSE_RATIO = 0.8


def hint_of(header: str, known: Sequence[str]) -> str | None:
    """Say what to do with a column that is neither known nor converted; None: nothing is known.

    What a name means goes before what it looks like: a local batch is not a global one. Misspelt
    names are never taken for a name of another unit.
    """
    name = normal_form(header)
    conversion = CONVERTED.get(name)
    if conversion is not None:
        return None  # of a column that is not wanted here
    if _SHORT_BANDWIDTH.fullmatch(name):
        return "bits or bytes: name it bandwidth_mbit_per_s, or bandwidth_mbyte_per_s (x 8)"
    meaning = next((text for pattern, text in _COMPILED if pattern.fullmatch(name)), None)
    if meaning is not None:
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


_NUMBERED = re.compile(r"(?P<before>[a-z_]*?)_?(?P<number>\d+)_?(?P<after>[a-z_]*)")


def wide_columns(headers: Sequence[str]) -> list[str]:
    """Return those of the headers that differ in a number alone: one quantity in many columns."""
    groups: dict[tuple[str, str], list[str]] = {}
    for header in headers:
        found = _NUMBERED.fullmatch(normal_form(header))
        if found:
            groups.setdefault((found["before"], found["after"]), []).append(header)
    return max((group for group in groups.values() if len(group) > 1), key=len, default=[])


def _plain(number: Decimal) -> str:
    # 1 / (1 / 60) is 60 but for its last digits.
    return f"{round(number, 9).normalize():f}"

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
_MINUTES = re.compile(r"[\[(]\s*mins?\s*[\])]")
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
    text = _MINUTES.sub(" minutes ", text)
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


# One word for all that mean the same in a name, so that a pattern of a hint needs one alone.
_SAME_WORDS: Mapping[str, str] = {
    word: same
    for same, words in {
        "": "mean avg average median p50 of the",
        "example": "example image img sample record frame ex",
        "thousand_example": "kexample kimage kimg ksample mexample mimage mimg msample",
        "step": "step iteration iter it update",
        "epoch": "epoch",
        "batch": "bs bsz batchsize",
        "gpu": "gpu device accelerator tpu card chip ngpu",
        "tokens": "token tok",
        "node": "node worker machine host vm instance rank process proc peer replica client "
        "learner nnode nworker nrank nproc",
        "core": "core",
        "delay": "delay latency lag",
    }.items()
    for one in words.split()
    for word in (one, f"{one}s")
} | {
    word: same
    for same, words in {
        "node": "processes",
        "mini_batch": "minibatch",
        "batches": "minibatches",
        "thousand": "k kilo thousand thousands million millions 1000 1k",
        "accuracy": "acc",
        "s": "sec secs second seconds",
        "ms": "msec msecs millisecond milliseconds",
        "us": "usec usecs microsecond microseconds",
        "minute": "minute minutes mins",
        "hour": "hr hrs hour hours",
    }.items()
    for word in words.split()
}


def _usual_words(name: str) -> str:
    """Return a normal form in the words that hints use: avg_img_per_sec is example_per_s."""
    # "min" of a duration may be the least of several; beside "per" it is a minute.
    name = re.sub(r"(?<=per_)min(?=_|$)|(?<![a-z0-9])min(?=_per_)", "minute", name)
    words = name.replace("batch_size", "batch").split("_")
    return "_".join(filter(None, (_SAME_WORDS.get(word, word) for word in words)))


def _with(words: str) -> str:
    """Return a pattern of names that have one of the words, with `|` between them."""
    return rf"(.*_)?({words})(_.*)?"


def _with_both(some: str, others: str) -> str:
    return rf"(?={_with(some)}$){_with(others)}"


_UNIT = "(s|ms|us|ns|minute|h|hour|days?)"
_DEVICE = "(gpu|node|core)"
_COUNT = "(n|nr|num|no|number|count|total)_?"
_ONE = "(per|each|one|single)"
_OF_ONE = rf"(?=((.*_)?{_ONE}_)?{_DEVICE}_|local_|.*_{_ONE}_{_DEVICE}(_|$))"
_BITS = "[kmgt]?i?(bps|b|bits?|bytes?)(_per_s)?"
_LINK = "((link|network|net|nic|ethernet|interconnect|limit|max)_)*"
_STATISTIC = (
    r"p\d+|q\d|\d+th|percentile|quantile|quartile|max|maximum|min|minimum|best|worst|peak|fastest|"
    "slowest|longest|shortest|highest|lowest|upper|lower|first|last"
)
_IN_UNIT = "its unit in the name, such as "
# By the name in its usual words, the first that fits it whole; None: it has no column here.
# Nothing here names a column of another unit without saying how to convert into it.
_HINTS: Sequence[tuple[str, str | None]] = (
    (r"unnamed(_\d+)*|index|row(_id)?|level_\d+", "a number that a program gave the rows"),
    (
        _with(r"log|log2|log10|ln|normali[sz]ed|norm|relative|rel|inverse|inv|speed_?up|x\d+"),
        None,
    ),
    (r".*_per_(thousand|\d+)", None),
    (_with_both("ratio|fraction|frac|share|cv", "time"), None),
    (_with("price|cost|usd|memory|mem|vram|ram|sent|received|recv|tx|rx|traffic"), None),
    (
        _with(r"to_(.*_)?(accuracy|top_?\d|target|loss|converge\w*|\d+)|tta"),
        "what a training takes to become so good has no column here",
    ),
    (
        r"(.*_)?(packet|pkt)_?(loss|drop)s?(_.*)?|(loss|drop)_(rate|ratio|percent|pct)",
        "a packet loss: name it packet_loss_percent, or packet_loss_ratio from 0 to 1",
    ),
    (_with("loss"), "a loss of the training has no column here"),
    (
        r"(.*_)?(top_?1|accuracy|test|val|validation)_err(or)?(_.*)?|error_(rate|percent|pct|ratio)",
        "an error: accuracy = 1 - it, as a ratio on the test data at the end",
    ),
    (
        r"((final|test|val|validation|eval|model|top_?1)_)*(accuracy|top_?1)"
        r"(_(at_)?(1|final|test|val|0_1|0_100|percent|pct|ratio|end))*",
        "an accuracy: name it accuracy if it is from 0 to 1 at the end, else accuracy_percent",
    ),
    (_with(r"accuracy|top_?\d"), None),
    (
        _with(r"std|stddev|stdev|sd|variance|var|iqr|ci\d*|sem"),
        "how much values differ: step_time_spread_s is the interquartile range of the steps",
    ),
    (
        _with("rtt|round_?trip(_?time|_?delay)?|ping"),
        "a round trip: one_way_delay_ms is half of it, in ms, if both ways are alike",
    ),
    (
        rf"((network|net|link|one_?way|added|injected|emulated|packet)_)*delay"
        rf"(_({_UNIT}|time|one_way))*",
        "a delay: name it one_way_delay_ms or one_way_delay_s, if it is of one way (half of a "
        "round trip)",
    ),
    (r"jitter(_.*)?", f"a jitter: {_IN_UNIT}jitter_ms or jitter_s"),
    (_with_both(_STATISTIC, "delay"), None),
    (
        r"(.*_)?step(_.*)?_min",
        "minutes, or the least of several: name minutes step_time_minutes; step_time_s is the "
        "median of the timed steps",
    ),
    (
        r"(.*_)?epoch(_.*)?_min",
        "minutes, or the least of several: name minutes time_per_epoch_minutes",
    ),
    (
        _with_both(_STATISTIC, f"time|duration|throughput|fps|ips|{_UNIT}"),
        "not the median, which is wanted: step_time_s is the median of the timed steps",
    ),
    (
        rf"(.*_)?tokens?_per_{_UNIT}(_.*)?|throughput_tokens?",
        "a rate of tokens, not examples: step_time_s = tokens of a step / it, both of all ranks",
    ),
    (
        rf"(.*_)?epoch_per_{_UNIT}(_.*)?",
        "a rate of epochs: time_per_epoch_s = 1 / it (60 / it per minute, 3600 / it per hour)",
    ),
    (
        rf"(.*_)?(step|batch|batches)_(per_{_UNIT}|rate)(_.*)?",
        "a rate of steps: step_time_s = 1 / it; name it steps_per_s if these are steps of all "
        "ranks together, per second",
    ),
    (
        _with_both("throughput", f"{_BITS}|network|link|disk"),
        "a throughput of bits or bytes, not of examples, has no column here",
    ),
    (rf"(.*_)?example_per_{_UNIT}_per_(?!{_DEVICE}).*", None),
    (
        _with_both("thousand", f"throughput|example_per_{_UNIT}"),
        "a throughput in thousands or millions: multiply its values, and name it examples_per_s "
        "if it is of all ranks together",
    ),
    (
        rf"{_OF_ONE}{_with(f'throughput|speed|rate|fps|ips|per_{_UNIT}')}",
        "a throughput of one device: step_time_s = global_batch_size / (it x their number)",
    ),
    (
        rf"(.*_)?(time|{_UNIT})_(per|for)_(thousand_|\d+_?)[a-z].*|"
        rf"\d+_(epoch|step|batch|batches)_(time_)?{_UNIT}",
        "a time of several: divide it by their number, and name it step_time_s or step_time_ms "
        "if they are steps",
    ),
    (
        rf"(.*_)?(time|duration|delay|{_UNIT})_per_example(_.*)?",
        "a time of one example: step_time_s = it x the examples that a rank computes in a step, "
        "in seconds",
    ),
    (
        rf"{_with(f'throughput|example_(per_)?{_UNIT}')}|fps|ips|speed",
        "a throughput: name it examples_per_s if it is of all ranks together, in examples per "
        "second: step_time_s = global_batch_size / it",
    ),
    (
        "(?!.*_per_)"
        + _with_both(
            r"forward|fwd|backward|bwd|comput\w*|comm\w*|all_?reduce|sync\w*|wait\w*|io|"
            r"data|load\w*|eval\w*|val|validation|test|startup|warm_?up|(cpu|gpu)_time",
            f"time|duration|{_UNIT}",
        ),
        "a part of the work, which has no column here: step_time_s is a whole step",
    ),
    (
        rf"(.*_)?epoch_?(time|duration|length|delay|{_UNIT})(_.*)?|"
        rf"(.*_)?(time|{_UNIT})_per_epoch(_.*)?",
        f"a time of an epoch: {_IN_UNIT}time_per_epoch_s or time_per_epoch_ms",
    ),
    (
        rf"(.*_)?(step|batch)_?(time|duration|length|delay)(_.*)?|step_{_UNIT}|"
        rf"(.*_)?(time|{_UNIT})_per_(step|batch)(_.*)?",
        f"a time of a step: {_IN_UNIT}step_time_s, step_time_ms or step_time_us",
    ),
    (
        rf"(.*_)?({_DEVICE}|local|micro|mini)_?(train_)?batch(_.*)?|(batch|example)_per_{_DEVICE}",
        "a batch of one device: name it per_replica_batch_size, and it is multiplied by world_size "
        "and replicas_per_rank; or global_batch_size = it x the number of devices (and x the steps "
        "of a gradient accumulation)",
    ),
    (
        r"(total|effective|overall|global)_?batch(size)?|gbs|gbsz|batch_(total|effective|global)",
        "examples of all ranks in one step: name it global_batch_size",
    ),
    (
        r"(n_?)?batch",
        "a batch of whom it does not say: global_batch_size of all ranks together, or "
        "per_replica_batch_size of one",
    ),
    (
        rf"{_DEVICE}_per_{_DEVICE}",
        "replicas_per_rank, if a rank trains on so many devices",
    ),
    (
        rf"({_COUNT})?gpu(_?count|_?num(ber)?|_total|_used)?",
        "devices: name it world_size where each rank has one device; else world_size counts the "
        "ranks, and replicas_per_rank the devices of one",
    ),
    (
        rf"({_COUNT})?node(_?count|_?num(ber)?|_total|_used)?|n|np|(cluster|world|gang)_?(size)?|parallelism",
        "name it world_size if each of them is one rank that trains",
    ),
    (
        rf"({_COUNT})?(ps|servers?|parameter_servers?)(_?count)?",
        "name it server_count if these are parameter servers beside the ranks",
    ),
    (
        rf"{_LINK}((bandwidth|bw|link_speed|bitrate)(_limit|_{_BITS})*|"
        r"[kmg]i?(bps|(bits?|bytes?)_per_s))",
        "a bandwidth: name it bandwidth_mbit_per_s, or bandwidth_mbyte_per_s for bytes (1 Gbit/s "
        "is 1000 Mbit/s, 1 MB/s is 8 Mbit/s)",
    ),
    (
        rf"(({_COUNT}|max_|train_|training_|trained_))*epoch(_(count|trained|run|total))*",
        "a number of epochs: name it epochs if so many were trained",
    ),
    (
        r"(data|dataset|training|train|epoch)_?(set)?_?(size|len(gth)?|count)|"
        rf"({_COUNT})?(data|dataset|train(ing)?)?_?example(_count|_per_epoch)?",
        "a data set's size: steps_per_epoch = size / global_batch_size, rounded up",
    ),
    (r"(step|batch|batches)_per_epoch", "name it steps_per_epoch"),
    (
        r"(total|train|training|wall|wall_clock|run|elapsed|overall)_?(time|duration)(_.*)?|"
        r"runtime(_.*)?|elapsed(_.*)?|walltime(_.*)?",
        "a time of a whole run: time_per_epoch_s = it / epochs, in seconds",
    ),
    (
        r"((time|duration|t)_)?ms",
        "milliseconds of what it does not say: name it step_time_ms or time_per_epoch_ms, and it "
        "is divided by 1000",
    ),
    (
        r"((time|duration|t)_)?us",
        "microseconds of what it does not say: name it step_time_us, and it is divided by 1000000",
    ),
    (
        rf"(.*_)?(time|duration)(_{_UNIT})?|t_s|s|minute|hour",
        f"a time of what it does not say: {_IN_UNIT}step_time_s or time_per_epoch_s",
    ),
    (
        rf"({_COUNT})?(steps|step|batches)(_count)?",
        "a number of steps: name it steps_per_epoch if it is of one epoch",
    ),
    (r"arch|architecture|net|network_name|model_name|nn", "name it model"),
    (r"(gpu|node|hardware|cpu)_?(type|name|model)|hardware|sku|flavou?r", "name it instance_type"),
    (r"data|dataset_name|task", "name it dataset"),
    (r"lib|library|backend|engine|software", "name it framework"),
    (r"algorithm|method|scheme|mode|approach|dist(ribution)?_strategy", "name it strategy"),
    (
        r"(run|trial|rep|repeat|replicate)(_?(id|nr|no|number))?",
        "name it repetition, counted from 0",
    ),
    (
        r"error|failed|failure|outcome|success|state|result",
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
        least = _MINUTES.sub(" min ", header[:_LONGEST].lower())
        if normal_form(least) == name:
            return None  # of a column that is not wanted here
        name = normal_form(least)
    if _SHORT_BANDWIDTH.fullmatch(name):
        return "bits or bytes: name it bandwidth_mbit_per_s, or bandwidth_mbyte_per_s (x 8)"
    usual = _usual_words(name)
    for pattern, meaning in _COMPILED:
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


# Where a number belongs that stands in a header, by the word beside it.
_NUMBERED: Mapping[str, str] = {
    **dict.fromkeys(("batch", "gbs"), "global_batch_size"),
    **dict.fromkeys(("gpu", "node", "n", "np", "ws", "w", "size"), "world_size"),
    **dict.fromkeys(("run", "trial", "rep", "repeat", "repetition"), "repetition"),
    **dict.fromkeys(("ps", "server", "servers"), "server_count"),
}


def _numbers_apart(header: str) -> list[str]:
    """Return the words of a header with # for each number; p99 and top1 are words."""
    words = re.findall(r"(?:p|top_?)\d+|\d+|[a-z]+", normal_form(header))
    return _usual_words("_".join("#" if w.isdigit() else w for w in words)).split("_")


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
        hint = hint_of(value, known)
        into = "another" + (f" ({hint})" if hint else "")
    return (
        "a wide table; write one row for each of these columns, with their number in a column such "
        f"as {' and '.join(columns)} and their values in {into}"
    )


def least_of_several(headers: Sequence[str]) -> list[str]:
    """Return headers whose "(min)" is the least: another one has "(max)" or "(mean)" there."""
    statistics = re.compile(rf"{_STATISTIC}|mean|avg|average|median|std")
    others = set()
    for header in headers:
        words = normal_form(header).split("_")
        left = [word for word in words if not statistics.fullmatch(word)]
        if left != words:
            others.add(_without_units(left))
    return [
        header
        for header in headers
        if (found := _MINUTES.search(header.lower()))
        and _without_units(normal_form(header[: found.start()] + header[found.end() :]).split("_"))
        in others
    ]


def _without_units(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word in words if word not in _SECONDS)


def _plain(number: Decimal) -> str:
    # 1 / (1 / 60) is 60 but for its last digits.
    return f"{round(number, 9).normalize():f}"

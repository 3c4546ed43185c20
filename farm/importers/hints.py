"""Hints for column names that cannot be matched to the measurement table.

Names arrive in their normal form, see `headers`, and are translated into usual words here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

# One word for all that mean the same in a name, so that a pattern of a hint needs one alone.
_SAME_WORDS: Mapping[str, str] = {
    word: same
    for same, words in {
        "": "mean avg average median p50 of the",
        "example": "example image img im sample record frame ex sequence seq sentence document doc "
        "clip query querie request prompt",
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


def usual_words(name: str) -> str:
    """Return a normal form in the words that hints use: avg_img_per_sec is example_per_s."""
    # "min" of a duration may be the least of several; beside "per" it is a minute.
    name = re.sub(r"(?<=per_)min(?=_|$)|(?<![a-z0-9])min(?=_per_)", "minute", name)
    words = name.replace("batch_size", "batch").split("_")
    return "_".join(filter(None, (_SAME_WORDS.get(word, word) for word in words)))


def _with(words: str) -> str:
    """Return a pattern of names that have one of the words, with `|` between them."""
    return rf"(.*_)?({words})(_.*)?"


def _only(words: str) -> str:
    """Return the beginning of a pattern, for names that have no other words."""
    return rf"(?=({words})(_({words}))*$)"


def _with_both(some: str, others: str) -> str:
    return rf"(?={_with(some)}$){_with(others)}"


_UNIT = "(s|ms|us|ns|minute|h|hour|days?)"
_DEVICE = "(gpu|node|core)"
_COUNT = "(n|nr|num|no|number|count|total)_?"
_ONE = "(per|each|one|single)"
_OF_ONE = rf"(?=((.*_)?{_ONE}_)?{_DEVICE}_|local_|.*_{_ONE}_{_DEVICE}(_|$))"
_BITS = "[kmgt]?i?(bps|b|bits?|bytes?)(_per_s)?"
_LINK = "((link|network|net|nic|ethernet|interconnect|limit|max)_)*"
STATISTIC = (
    r"p\d+|q\d|\d+th|percentile|quantile|quartile|max|maximum|min|minimum|best|worst|peak|fastest|"
    "slowest|longest|shortest|highest|lowest|upper|lower|first|last"
)
# Any other word in a name, such as "predicted", may make another quantity of it.
_PLAIN = (
    "step|batch|epoch|time|duration|length|delay|train|training|wall|clock|global|local|each|per|"
    f"single|one|mini|{_UNIT}|{_DEVICE}"
)
_PLAIN_RATE = (
    f"{_PLAIN}|throughput|tput|example|total|overall|aggregate|combined|cluster|system|all|rate|"
    "speed|fps|ips"
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
        _with(r"to_(.*_)?(accuracy|top_?\d|target|loss|converge\w*|\d+)|tta|ttt|convergence"),
        "there is no column for the time to an accuracy",
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
        rf"(_({_UNIT}|time|one_way))*|owd(_{_UNIT})?",
        "a delay: name it one_way_delay_ms or one_way_delay_s, if it is of one way (half of a "
        "round trip)",
    ),
    (r"jitter(_.*)?", f"a jitter: {_IN_UNIT}jitter_ms or jitter_s"),
    (_with_both(STATISTIC, "delay"), None),
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
        _with_both(STATISTIC, f"time|duration|throughput|fps|ips|{_UNIT}"),
        "not the median, which is wanted: step_time_s is the median of the timed steps",
    ),
    (
        _with(
            "overhead|predict(ed|ion)|pred|estimated?|expected|theoretical|ideal|simulated|target|"
            r"error|err|diff\w*|delta|change|gain|savings?|deviation|dev|mad|mae|r?mse|residual"
        ),
        None,
    ),
    (
        _with_both("total|sum|cum|cumulative|accumulated", "(step|batch)_?(time|duration|delay)"),
        "a time of several steps: step_time_s is the median of the timed steps",
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
        rf"{_only(_PLAIN_RATE)}{_with(f'throughput|tput|example_(per_)?{_UNIT}')}|"
        "fps|ips|qps|rps|thr|speed",
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
        rf"{_only(_PLAIN)}((.*_)?epoch_?(time|duration|length|delay|{_UNIT})(_.*)?|"
        rf"(.*_)?(time|{_UNIT})_per_epoch(_.*)?)",
        f"a time of an epoch: {_IN_UNIT}time_per_epoch_s or time_per_epoch_ms",
    ),
    (
        rf"{_only(_PLAIN)}((.*_)?(step|batch)_?(time|duration|length|delay)(_.*)?|step_{_UNIT}|"
        rf"(.*_)?(time|{_UNIT})_per_(step|batch)(_.*)?)",
        f"a time of a step: {_IN_UNIT}step_time_s, step_time_ms or step_time_us",
    ),
    (
        rf"(.*_)?({_DEVICE}|local|micro)_?(train_|mini_)?batch(_.*)?|"
        rf"(mini_)?(batch|example)_per_{_DEVICE}",
        "a batch of one device: name it per_replica_batch_size, and it is multiplied by world_size "
        "and replicas_per_rank; or global_batch_size = it x the number of devices (and x the steps "
        "of a gradient accumulation)",
    ),
    (
        r"(total|effective|overall|global)_?(mini_)?batch(size)?|gbs|gbsz|batch_(total|effective|global)",
        "examples of all ranks in one step: name it global_batch_size",
    ),
    (
        r"grad(ient)?s?_?acc(um\w*)?(_.*)?|accum\w*(_.*)?|ga(_step)?",
        "steps of a gradient accumulation: global_batch_size = their number x the examples of "
        "all ranks in one of them",
    ),
    (
        r"(n_?|mini_)?batch|mbsz?",
        "its name does not say whose batch this is: global_batch_size of all ranks together, or "
        "per_replica_batch_size of one",
    ),
    (
        rf"{_DEVICE}_per_{_DEVICE}",
        "replicas_per_rank, if this is the number of devices of a rank",
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
        "a number of epochs: name it epochs if this is how many were trained",
    ),
    (
        r"(data|dataset|training|train|epoch)_?(set)?_?(size|len(gth)?|count)|"
        rf"({_COUNT})?(data|dataset|train(ing)?)?_?example(_count|_per_epoch)?",
        "a data set's size: steps_per_epoch = size / global_batch_size, rounded up",
    ),
    (r"(step|batch|batches)_per_epoch", "name it steps_per_epoch"),
    (
        r"(total|train|training|wall|wall_clock|run|elapsed|overall)_?(time|duration)(_.*)?|"
        rf"(runtime|elapsed|walltime)(_.*)?|(wall|wall_?clock)(_{_UNIT})?|time_to_train(_{_UNIT})?",
        "a time of a whole run: time_per_epoch_s = it / epochs, in seconds",
    ),
    (
        r"((time|duration|t)_)?ms",
        "its name does not say which milliseconds these are: name it step_time_ms or "
        "time_per_epoch_ms, and it is divided by 1000",
    ),
    (
        r"((time|duration|t)_)?us",
        "its name does not say which microseconds these are: name it step_time_us, and it is "
        "divided by 1000000",
    ),
    (
        rf"{_only(_PLAIN)}(.*_)?(time|duration)(_{_UNIT})?|t_s|s|minute|hour",
        f"its name does not say which time this is: {_IN_UNIT}step_time_s or time_per_epoch_s",
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
COLUMN_MEANINGS: Sequence[tuple[re.Pattern[str], str | None]] = tuple(
    (re.compile(pattern), text) for pattern, text in _HINTS
)

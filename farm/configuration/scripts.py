"""Users' training scripts: their names in sweep files, and their command lines. Pure.

A case says `script = "train.py"`, its `launcher`, its `args` and its `[case.parameters]`. A job has
the launcher as its strategy and the command as its model, with placeholders in braces that each
rank fills in. So scripts that compute something else are different models:

    script:train.py@b005a2175131 --batch-size {per_rank_batch_size}

An agent that has the file, and whose operator allows it, reports a capability for it. After the @
are the first digits of `script_sha256`, if the sweep has it: another content is another model.

A script that no agent has is sent with the files of its folder as a bundle (see
`farm.configuration.bundle`). The sweep names the bundle by `bundle_sha256`:

    bundle:train.py@b005a2175131 --batch-size {per_rank_batch_size}

Agents whose operators allow it fetch the bundle from the server when a job needs it. After a # is
the name of the interpreter, if it is not the agent's own: `bundle:train.py@b005a2175131#hf`. Values
of parameters and environment variables come before the arguments and end with `--`:

    script:train.py {hidden}=256 OMP_NUM_THREADS=2 -- --hidden {hidden}
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from farm.configuration.bundle import SCRIPT_PATH, is_script_path
from farm.configuration.catalogue import StrategyFacts
from farm.configuration.model_files import FILE_NAME, is_file_name
from farm.errors import InvalidSpec
from farm.values.fields import WholeNumber, did_you_mean

PREFIX = "script:"
BUNDLE_PREFIX = "bundle:"
# The capability of agents that run bundles.
RUNS_BUNDLES = "bundles"
# Begins the capability of agents that have an interpreter of that name.
PYTHON_CAPABILITY = "python:"
OWN_DATA = "script"  # the data set of a script, which loads its own
_AXES = ("ranks_per_agent", "gpus_per_rank")
# By the launcher's name in a sweep: what starts the ranks of a script, as a strategy.
LAUNCHERS: Mapping[str, StrategyFacts] = {
    "torch": StrategyFacts(
        name="torch_script",
        summary="a script of your own, started as `torchrun` would",
        framework="torch",
        axes=_AXES,
        chooses_ports=True,
    ),
    "tensorflow": StrategyFacts(
        name="tensorflow_script",
        summary="a script of your own, with the gang in `TF_CONFIG`",
        framework="tensorflow",
        axes=_AXES,
    ),
    "none": StrategyFacts(
        name="plain_script",
        summary="a script of your own, with the gang in `FARM_RANK_ADDRESSES`",
        framework="script",
        axes=_AXES,
        chooses_ports=True,
    ),
}
LAUNCHED = frozenset(facts.name for facts in LAUNCHERS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptKey:
    """A key of a case with a script, which replaces axes.

    `meaning`: of what stands in a sweep file; `typed`: of what is typed into a form, empty: the
    same. `choices`: the first is the default. `is_table`: of values by name. `is_long`: many
    characters are usual.
    """

    meaning: str
    typed: str = ""
    choices: tuple[str, ...] = ()
    is_table: bool = False
    is_long: bool = False


CASE_KEYS: Mapping[str, ScriptKey] = {
    "script": ScriptKey(
        meaning="Python file, instead of `model`, `dataset` and `strategy`",
        typed="one that agents have, or its path in the files below; instead of models, data sets "
        "and strategies",
    ),
    "script_sha256": ScriptKey(
        meaning="of a file that the agents have; distinguishes its versions"
    ),
    "bundle_sha256": ScriptKey(
        meaning="of a bundle that the server has; its `script` may be in a folder of it"
    ),
    "python": ScriptKey(
        meaning="interpreter, by a name of `AGENT_PYTHON_ENVIRONMENTS`; by default the agent's own"
    ),
    "launcher": ScriptKey(
        meaning="the launcher of the script: `torch` (the default), `tensorflow` or `none`",
        choices=tuple(LAUNCHERS),
    ),
    "args": ScriptKey(
        meaning="its arguments, a list or one text, with placeholders such as "
        "`{per_rank_batch_size}`",
        typed="as in a shell, such as --batch-size {per_rank_batch_size} --hidden {hidden}",
        is_long=True,
    ),
    "environment": ScriptKey(
        meaning="a table `[case.environment]` of variables, with placeholders",
        typed="variables, such as OMP_NUM_THREADS=2",
        is_table=True,
        is_long=True,
    ),
    "parameters": ScriptKey(
        meaning="a table `[case.parameters]` of further placeholders, each a value or a list",
        typed="values of {hidden} and others in the arguments, such as hidden=256,1024 lr=1e-3",
        is_table=True,
        is_long=True,
    ),
    "examples_per_epoch": ScriptKey(meaning="how many examples an epoch has, for its time"),
}
SET_BY_SCRIPT = ("model", "dataset", "strategy")
PER_RANK = "per_rank_batch_size"
# What the ranks of a job fill in beside the values of axes.
_OF_RANKS = (PER_RANK, "rank", "seed", "data_dir")
MOST_PARAMETERS = 20
MOST_COMMANDS = 100_000  # no sweep may have more jobs
MOST_MODEL_CHARACTERS = 1000  # of a name; that of a script has its command line in it
_MOST_EXAMPLES = 10**12
_SHA256 = re.compile(r"[0-9a-f]{64}")
VERSION_DIGITS = 12
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_SETTING = re.compile(r"(\{[a-z][a-z0-9_]*\}|[A-Za-z_][A-Za-z0-9_]*)=.*", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9@%+=:,./{}_-]+")  # needs no quotes in a command
_NEVER_SET = ("LD_", "PYTHON", "FARM_", "AGENT_", "BENCHFARM_")
_NEVER_SET_NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "VIRTUAL_ENV", "TF_CONFIG"),
        *("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
        *("NODE_RANK", "GROUP_RANK"),
    }
)
PYTHON_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_HEAD = re.compile(
    r"[a-z]+:(?P<name>[^@#]*)(@(?P<version>[0-9a-f]{12}))?(#[A-Za-z0-9][A-Za-z0-9._-]{0,39})?"
)
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def check_command(model: str) -> None:
    """Refuse what begins like a script's model and is none that `as_axes` makes.

    Raises:
        InvalidSpec: where the script is from, its version, interpreter or a variable cannot be so.
    """
    if not model.startswith((PREFIX, BUNDLE_PREFIX)):
        return
    head, _, rest = model.partition(" ")
    found = _HEAD.fullmatch(head)
    is_bundle = model.startswith(BUNDLE_PREFIX)
    if found is None or not (is_script_path if is_bundle else is_file_name)(found["name"]):
        raise InvalidSpec("model", model, f"{SCRIPT_PATH if is_bundle else FILE_NAME} after ':'")
    if is_bundle and found["version"] is None:
        raise InvalidSpec("model", model, f"{VERSION_DIGITS} hexadecimal digits after '@'")
    try:
        settings, _ = _split(shlex.split(rest))
    except ValueError as error:
        raise InvalidSpec("model", model, f"words as in a shell ({error})") from None
    for setting in settings:
        if not setting.startswith("{"):
            _check_variable(setting.partition("=")[0], "model")


def script_of(model: str) -> str | None:
    """Return the file name in a job's model; None: it is no script."""
    if not model.startswith((PREFIX, BUNDLE_PREFIX)):
        return None
    return _head(model).partition(":")[2].partition("@")[0]


def version_of(model: str) -> str:
    """Return the first digits of the sha256 that a sweep has given; empty: it has not."""
    return _head(model).partition("@")[2]


def without_version(model: str) -> str:
    """Return the same command for all versions of its script; another model is as it was."""
    version = version_of(model) if script_of(model) is not None else ""
    return model.replace(f"@{version}", "", 1) if version else model


def python_of(model: str) -> str | None:
    """Return the name of the interpreter that runs the script; None: the agent's own."""
    if script_of(model) is None:
        return None
    return model.partition(" ")[0].partition("#")[2] or None


def _head(model: str) -> str:
    """Return where a script comes from, its name and its version."""
    return model.partition(" ")[0].partition("#")[0]


def bundle_of(model: str) -> str | None:
    """Return the first digits of the bundle's sha256; None: the model is in no bundle."""
    return version_of(model) if model.startswith(BUNDLE_PREFIX) else None


def capability_of(name: str) -> str:
    """Return the capability of agents that have the script, such as "script:train.py"."""
    return f"{PREFIX}{name}"


def needed_capabilities(model: str) -> frozenset[str]:
    """Return the capabilities that the model's script needs; empty if it is no script."""
    name, python = script_of(model), python_of(model)
    if name is None:
        return frozenset()
    own = RUNS_BUNDLES if model.startswith(BUNDLE_PREFIX) else capability_of(name)
    return frozenset({own} if python is None else {own, f"{PYTHON_CAPABILITY}{python}"})


def are_of_script(capabilities: Collection[str]) -> bool:
    """Whether the capabilities are those of a script's job, which names its own framework."""
    return any(one == RUNS_BUNDLES or one.startswith(PREFIX) for one in capabilities)


def words_of(model: str, values: Mapping[str, object]) -> list[str]:
    """Return the arguments of the command, with values in the place of their names.

    `values`: beside those of the parameters. A word in braces that is in neither stays: it may be
    JSON, or a format of the script's own.
    """
    known = {**values, **parameters_of(model)}
    return [_filled(word, known) for word in _split(shlex.split(model.partition(" ")[2]))[1]]


def variables_of(model: str, values: Mapping[str, object] | None = None) -> dict[str, str]:
    """Return the environment that the sweep has given to the script, filled in like its words."""
    known = {**(values or {}), **parameters_of(model)}
    found = _settings_of(model).items()
    return {name: _filled(value, known) for name, value in found if not name.startswith("{")}


def parameters_of(model: str) -> dict[str, str]:
    """Return the values that the sweep has given to the script's own parameters."""
    found = _settings_of(model).items()
    return {name[1:-1]: value for name, value in found if name.startswith("{")}


def without_parameters(model: str) -> str:
    """Return the same command for all values of the parameters; another model is as it was."""
    if not parameters_of(model):
        return model
    name, _, rest = model.partition(" ")
    settings, words = _split(shlex.split(rest))
    variables = [setting for setting in settings if not setting.startswith("{")]
    return " ".join([name, shell_text([*variables, "--", *words] if variables else words)]).rstrip()


@functools.lru_cache(maxsize=4096)  # of thousands of cells, pages ask for each axis
def _settings_of(model: str) -> Mapping[str, str]:
    if script_of(model) is None:
        return {}
    settings, _ = _split(shlex.split(model.partition(" ")[2]))
    pairs = (setting.partition("=") for setting in settings)
    return {name: value for name, _, value in pairs}


def _split(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the settings and the arguments. Arguments may have such words, too, and a `--`."""
    if "--" in words:
        end = words.index("--")
        if all(map(_SETTING.fullmatch, words[:end])):
            return words[:end], words[end + 1 :]
    return (), words


def workload_text(model: str | None, dataset: str | None) -> str:
    """Name a workload for people; a script by its command, with its parameters filled in."""
    if model is None or script_of(model) is None:
        return f"{model or 'unnamed model'} on {dataset or 'an unnamed data set'}"
    name = model.partition(" ")[0].removeprefix(PREFIX).removeprefix(BUNDLE_PREFIX)
    settings = [f"{key}={value}" for key, value in variables_of(model).items()]
    return " ".join([*settings, name, shell_text(words_of(model, {}))]).rstrip()


def names_per_rank_batch(model: str) -> bool:
    """Whether the command has the examples of one rank in it."""
    return f"{{{PER_RANK}}}" in model


def examples_per_epoch(dataset: str) -> int | None:
    """Return how many examples an epoch of the script has, if the sweep states it."""
    count = dataset.removeprefix(f"{OWN_DATA}:")
    return int(count) if count != dataset and count.isdecimal() else None


def as_axes(
    case: Mapping[str, object], axes: Collection[str], *, others: Collection[str], where: str
) -> dict[str, object]:
    """Return a case that names a script with the values of axes in its place.

    `axes`: the names of those that mean something for a script; `others`: of the rest, which would
    tell jobs apart that are alike. Each combination of the parameters' values is one model.

    Raises:
        InvalidSpec: a key is of another type or contradicts another, a placeholder is not known, or
            values reach no placeholder.
    """
    for name in (*others, "epochs"):
        if name in case:
            expected = "nothing beside script, which learns of it in [case.parameters] alone"
            raise InvalidSpec(f"{where}{name}", case[name], expected)
    launcher = case.get("launcher", "torch")
    if not isinstance(launcher, str) or launcher not in LAUNCHERS:
        raise InvalidSpec(f"{where}launcher", launcher, f"one of {', '.join(LAUNCHERS)}")
    parameters = _read_parameters(case.get("parameters", {}), axes, where=f"{where}parameters")
    words = _read_args(case.get("args", []), where=f"{where}args")
    settings = _read_environment(case.get("environment", {}), where=f"{where}environment")
    used = {name for word in (*settings, *words) for name in _PLACEHOLDER.findall(word)}
    known = (*axes, *_OF_RANKS, *parameters)
    for name in sorted(used):
        if name not in known:
            expected = f"a placeholder of {', '.join(known)}{did_you_mean(name, known)}"
            raise InvalidSpec(f"{where}args", f"{{{name}}}", expected)
    _refuse_unused(case, parameters, used, where=where)
    name = _read_name(case, where=where) + _read_python(case, where=where)
    data = OWN_DATA
    if (count := case.get("examples_per_epoch")) is not None:
        data += f":{WholeNumber(1, _MOST_EXAMPLES).read(count, f'{where}examples_per_epoch')}"
    return {
        **{key: value for key, value in case.items() if key not in CASE_KEYS},
        "model": [
            _command(name, settings, words, dict(zip(parameters, values, strict=True)), where=where)
            for values in itertools.product(*parameters.values())
        ],
        "dataset": data,
        "strategy": LAUNCHERS[launcher].name,
    }


def _read_name(case: Mapping[str, object], *, where: str) -> str:
    """Return what the model begins with: where the script comes from, its name and version."""
    script, sha256 = case["script"], case.get("script_sha256")
    bundle_sha256 = case.get("bundle_sha256")
    if bundle_sha256 is not None:
        if sha256 is not None:
            raise InvalidSpec(f"{where}script_sha256", sha256, "nothing beside bundle_sha256")
        if not isinstance(script, str) or not is_script_path(script):
            raise InvalidSpec(f"{where}script", script, SCRIPT_PATH)
        digits = _read_sha256(bundle_sha256, f"{where}bundle_sha256")[:VERSION_DIGITS]
        return f"{BUNDLE_PREFIX}{script}@{digits}"
    if not isinstance(script, str) or not is_file_name(script):
        raise InvalidSpec(f"{where}script", script, FILE_NAME)
    if sha256 is None:
        return f"{PREFIX}{script}"
    return f"{PREFIX}{script}@{_read_sha256(sha256, f'{where}script_sha256')[:VERSION_DIGITS]}"


def _read_python(case: Mapping[str, object], *, where: str) -> str:
    python = case.get("python")
    if python is None:
        return ""
    if not isinstance(python, str) or not PYTHON_NAME.fullmatch(python):
        raise InvalidSpec(f"{where}python", python, "a name of letters, digits, '.', '_' and '-'")
    return f"#{python}"


def _read_sha256(value: object, where: str) -> str:
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise InvalidSpec(where, value, "64 hexadecimal digits")
    return value


def _read_args(given: object, *, where: str) -> list[str]:
    if isinstance(given, str):
        try:
            given = shlex.split(given)
        except ValueError as error:
            raise InvalidSpec(where, given, f"words as in a shell ({error})") from None
    if not isinstance(given, list) or not all(_is_word(word) for word in given):
        raise InvalidSpec(where, given, "a list of printable texts, without line breaks")
    return given


def _read_environment(given: object, *, where: str) -> list[str]:
    """Return `NAME=VALUE` of each variable, by name."""
    if not isinstance(given, Mapping):
        raise InvalidSpec(where, given, "a table of values by name")
    settings = []
    for name, value in given.items():
        at = f"{where}.{name}"
        _check_variable(name, at)
        if isinstance(value, bool | int | float):
            value = _text_of(value, at)
        if not _is_word(value):
            raise InvalidSpec(at, value, "a text, a number, true or false")
        settings.append(f"{name}={value}")
    return sorted(settings)


def _check_variable(name: object, where: str) -> None:
    if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
        raise InvalidSpec(where, name, "a name of letters, digits and '_'")
    if name.startswith(_NEVER_SET) or name in _NEVER_SET_NAMES:
        raise InvalidSpec(
            where, name, "another variable: this one decides which program runs, or where"
        )


def _is_word(word: object) -> bool:
    return isinstance(word, str) and word.isprintable()


def _read_parameters(
    given: object, axes: Collection[str], *, where: str
) -> dict[str, tuple[str, ...]]:
    """Return the values of each parameter as texts, as they were written."""
    if not isinstance(given, Mapping):
        raise InvalidSpec(where, given, "a table of values by name")
    if len(given) > MOST_PARAMETERS:
        raise InvalidSpec(where, len(given), f"at most {MOST_PARAMETERS} parameters")
    found: dict[str, tuple[str, ...]] = {}
    for name, values in given.items():
        at = f"{where}.{name}"
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidSpec(at, name, "a name of small letters, digits and '_'")
        if name in (*axes, *_OF_RANKS, *CASE_KEYS):
            raise InvalidSpec(at, name, "another name: this one has a meaning already")
        listed = values if isinstance(values, list) else [values]
        if not listed:
            raise InvalidSpec(at, values, "at least one value")
        found[name] = tuple(dict.fromkeys(_text_of(value, at) for value in listed))
    count = math.prod(map(len, found.values()))
    if count > MOST_COMMANDS:
        raise InvalidSpec(where, count, f"at most {MOST_COMMANDS} combinations of values")
    return found


def _text_of(value: object, where: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if not _is_word(value):
        raise InvalidSpec(where, value, "a text, a number, true or false")
    if not value or _PLACEHOLDER.search(str(value)):
        raise InvalidSpec(where, value, "a text that is not empty, without words in braces")
    return str(value)


def _refuse_unused(
    case: Mapping[str, object],
    parameters: Mapping[str, Sequence[str]],
    used: Collection[str],
    *,
    where: str,
) -> None:
    """Refuse values that would be told apart and make no difference to the script."""
    for name, values in parameters.items():
        if name not in used:
            expected = f"{{{name}}} in args, or the script never learns of it"
            raise InvalidSpec(f"{where}parameters.{name}", list(values), expected)
    batches = case.get("global_batch_size")
    is_told = not {PER_RANK, "global_batch_size"}.isdisjoint(used)
    if isinstance(batches, list) and len(batches) > 1 and not is_told:
        expected = (
            f"{{{PER_RANK}}} or {{global_batch_size}} in args, or the script never learns of it"
        )
        raise InvalidSpec(f"{where}global_batch_size", batches, expected)


def _command(
    name: str,
    settings: Sequence[str],
    words: Sequence[str],
    parameters: Mapping[str, str],
    *,
    where: str,
) -> str:
    given = [*(f"{{{key}}}={value}" for key, value in parameters.items()), *settings]
    if given or _split(words)[1] is not words:
        words = [*given, "--", *words]
    command = " ".join([name, *([shell_text(words)] if words else [])])
    if len(command) > MOST_MODEL_CHARACTERS:
        # At the first one, before as many more are made as there are combinations.
        expected = f"a command of at most {MOST_MODEL_CHARACTERS} characters"
        raise InvalidSpec(f"{where}args", command, expected)
    return command


def shell_text(words: Iterable[str]) -> str:
    """Return words as one line of a shell, placeholders without quotes."""
    return " ".join(word if _PLAIN.fullmatch(word) else shlex.quote(word) for word in words)


def _filled(word: str, values: Mapping[str, object]) -> str:
    return _PLACEHOLDER.sub(
        lambda found: str(values[found[1]]) if found[1] in values else found[0], word
    )

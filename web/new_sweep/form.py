"""Converts the form of a new sweep to a sweep file, and back where that is possible. Pure.

Each field of the form has the name and the unit of a key of the sweep file. Its text is passed on
unchanged and checked as a sweep file is, so form and file give the same errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from werkzeug.datastructures import MultiDict

from farm.configuration.axes import AXES
from farm.configuration.axis import AxisKind
from farm.configuration.catalogue import Catalogue
from farm.configuration.scripts import CASE_KEYS, SET_BY_SCRIPT
from farm.configuration.sweep import ALL_STEPS, AUTO, BUDGET, NOTIFY
from farm.errors import InvalidSpec
from farm.text.toml_text import value_text
from farm.values.fields import Boolean, Name, parse_number
from web.new_sweep import script_fields

# Axes of which several values may be ticked; all others are lists, of numbers or of names.
_REGISTERED = tuple(axis.name for axis in AXES if axis.is_required and isinstance(axis.type, Name))
TICKED = (*_REGISTERED, *(axis.name for axis in AXES if axis.options))
_FLAGS = frozenset(axis.name for axis in AXES if isinstance(axis.type, Boolean))
LISTS = tuple(axis.name for axis in AXES if axis.name not in TICKED)
NAMED = tuple(axis.name for axis in AXES if axis.name in LISTS and isinstance(axis.type, Name))
# Those for which the template has no field with a place and words of its own.
FURTHER = tuple(
    axis
    for axis in AXES
    if axis.kind in (AxisKind.SETUP, AxisKind.PROFILE, AxisKind.WORKLOAD)
    and axis.name not in (*_REGISTERED, "server_count", "one_way_delay_ms", "bandwidth_mbit_per_s")
)
_OF_CASE = ("steps", "epochs", "warmup_steps", "seed", "time_limit_s")
_OF_PRECISION = ("precision_percent", "min_repetitions", "max_repetitions")
BY = "repetitions_by"  # how many they are: COUNT or AUTO
COUNT = "count"
_YES = "yes"
FIELDS = (
    *("name", BY, "repetitions", *_OF_PRECISION, "priority", BUDGET, "repeat", NOTIFY),
    *(*TICKED, *LISTS, *_OF_CASE, *CASE_KEYS, "emulator", "labels"),
)
MAX_CHARACTERS = 2000  # of a field
_MOST_CHOSEN = 200
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_BETWEEN = re.compile(r"[,;\s]+")
_LABELS = "such as instance_type=Standard_D2s_v3, zone=a"
_FIELD_OF = re.compile(r"(?:case\[[0-9]+\]\.)?([a-z_][a-z_0-9]*)")


@dataclass(frozen=True, slots=True)
class Fields:
    """What stands in the form, by field. A field that is not there is empty."""

    values: Mapping[str, tuple[str, ...]]

    def text(self, name: str) -> str:
        """Return what was typed."""
        return next(iter(self.values.get(name, ())), "")

    def chosen(self, name: str) -> tuple[str, ...]:
        """Return what was ticked."""
        return self.values.get(name, ())


def read_fields(form: MultiDict[str, str]) -> Fields:
    """Take the fields of this form from what was sent."""
    values = {
        name: tuple(text for raw in form.getlist(name) if (text := raw.strip())) for name in FIELDS
    }
    return Fields({name: texts for name, texts in values.items() if texts})


def sweep_of(fields: Fields) -> dict[str, object]:
    """Return the sweep that the fields ask for, in the keys and units of a sweep file.

    What cannot run is left out of it and not refused: a cross product of strategies and world
    sizes nearly always has such cells, and the preview names them.

    Raises:
        InvalidSpec: a field is longer than anybody types, or the labels are no pairs. Everything
            else is for `parse_sweep` to say.
    """
    _check_lengths(fields)
    sweep: dict[str, object] = {}
    if name := fields.text("name"):
        sweep["name"] = name
    if fields.text(BY) == AUTO:
        sweep["repetitions"] = AUTO
        _add_numbers(sweep, fields, _OF_PRECISION)
    else:
        _add_numbers(sweep, fields, ("repetitions",))
    _add_numbers(sweep, fields, ("priority", BUDGET))
    if fields.text("repeat"):
        sweep["repeat"] = True
    if addresses := fields.text(NOTIFY).split():
        sweep[NOTIFY] = addresses
    sweep["skip_impossible"] = True
    sweep["case"] = [_case_of(fields)]
    return sweep


def _check_lengths(fields: Fields) -> None:
    for name, texts in fields.values.items():
        if len(texts) > _MOST_CHOSEN:
            raise InvalidSpec(name, len(texts), f"at most {_MOST_CHOSEN} of them")
        for text in texts:
            if len(text) > MAX_CHARACTERS:
                raise InvalidSpec(name, text, f"at most {MAX_CHARACTERS} characters")


def _case_of(fields: Fields) -> dict[str, object]:
    case: dict[str, object] = {}
    for key in CASE_KEYS:
        if text := fields.text(key):
            case[key] = script_fields.value_of(key, text)
    for axis in AXES:
        if "script" in case and axis.name in SET_BY_SCRIPT:
            continue
        if axis.name in TICKED:
            ticked = fields.chosen(axis.name)
            is_flag = axis.name in _FLAGS
            _add(case, axis.name, [Boolean.of(text) if is_flag else text for text in ticked])
        else:
            items = [item for item in _BETWEEN.split(fields.text(axis.name)) if item]
            is_named = axis.name in NAMED
            _add(case, axis.name, [item if is_named else _number(item) for item in items])
    if emulator := fields.text("emulator"):
        case["emulator"] = emulator
    _add_numbers(case, fields, _OF_CASE)
    if labels := fields.text("labels"):
        case["labels"] = _labels(labels)
    return case


def _add(table: dict[str, object], name: str, items: Sequence[object]) -> None:
    if items:
        table[name] = items[0] if len(items) == 1 else items


def _add_numbers(table: dict[str, object], fields: Fields, names: Sequence[str]) -> None:
    for name in names:
        if text := fields.text(name):
            table[name] = _number(text)


def _number(text: str) -> int | float | str:
    """Return the number that a text is, or the text, which validation then refuses."""
    if _WHOLE.fullmatch(text):
        return int(text)
    number = parse_number(text)
    return text if number is None else number


def _labels(text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    for pair in text.split(","):
        name, _, value = (part.strip() for part in pair.partition("="))
        if not name or not value or name in labels:
            raise InvalidSpec("labels", text, _LABELS)
        labels[name] = value
    return labels


def fields_of(sweep: object) -> Fields | None:
    """Return the fields that ask for what a sweep file asks for; None where no fields can.

    That is so where it has several cases, or values that a form could not give back.
    """
    if not isinstance(sweep, Mapping):
        return None
    cases = sweep.get("case")
    if not isinstance(cases, list) or len(cases) != 1 or not isinstance(cases[0], Mapping):
        return None
    given = {**sweep, **cases[0]}
    known = {*FIELDS, "case", "skip_impossible"} - {BY}
    if not set(given) <= known or len(given) != len(sweep) + len(cases[0]):
        return None
    values: dict[str, tuple[str, ...]] = {
        BY: (AUTO if given.get("repetitions") == AUTO else COUNT,)
    }
    for name in FIELDS:
        if name in given and (name, given[name]) != ("repetitions", AUTO):
            texts = _texts(name, given[name])
            if texts is None:
                return None
            values[name] = texts
    return Fields({name: texts for name, texts in values.items() if texts})


def _texts(name: str, value: object) -> tuple[str, ...] | None:
    """Return what a field would have to hold for a value; None: it can hold no such value."""
    if name in TICKED:
        items = value if isinstance(value, list) else [value]
        if name in _FLAGS:
            items = [value_text(item) if isinstance(item, bool) else None for item in items]
        names = tuple(item for item in items if isinstance(item, str) and _is_plain(item))
        return names if len(names) == len(items) else None
    if name in LISTS:
        items = value if isinstance(value, list) else [value]
        write = _named if name in NAMED else _shown
        numbers = [write(item) for item in items]
        joined = ", ".join(text for text in numbers if text is not None)
        return None if None in numbers or len(joined) > MAX_CHARACTERS else (joined,)
    if name == "repeat":
        return (_YES,) if value is True else () if value is False else None
    if name == "labels":
        return _shown_labels(value)
    if name == NOTIFY:
        return _shown_addresses(value)
    if name in CASE_KEYS:
        text = script_fields.text_of(name, value)
        return None if text is None or len(text) > MAX_CHARACTERS else (text,)
    if (name, value) == ("steps", ALL_STEPS):
        return (ALL_STEPS,)
    if name in ("name", "emulator"):
        return (value,) if isinstance(value, str) and _is_plain(value) else None
    shown = _shown(value)
    return None if shown is None else (shown,)


def _named(value: object) -> str | None:
    return value if isinstance(value, str) and not _BETWEEN.search(value) and value else None


def _shown(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    text = value_text(value)
    return text if parse_number(text) is not None and len(text) <= 30 else None


def _shown_labels(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, Mapping):
        return None
    text = ", ".join(f"{key}={item}" for key, item in value.items())
    if not text:
        return ()
    try:
        return (text,) if _labels(text) == dict(value) else None
    except InvalidSpec:
        return None


def _shown_addresses(value: object) -> tuple[str, ...] | None:
    items = value if isinstance(value, list) else [value]
    texts = [item for item in items if isinstance(item, str) and item.split() == [item]]
    joined = " ".join(texts)
    return (joined,) if len(texts) == len(items) and len(joined) <= MAX_CHARACTERS else None


def _is_plain(text: str) -> bool:
    """Whether a field gives a text back as it was."""
    return bool(text) and text == text.strip() and text.isprintable()


def refused_field(error: InvalidSpec) -> tuple[str | None, InvalidSpec]:
    """Return the form field that caused the error, and the error renamed for that field.

    None: no single field; the error then stays as it is.
    """
    match = _FIELD_OF.match(error.field)
    name = match[1] if match else None
    if name is None or name not in (*FIELDS, script_fields.FILES):
        return None, error
    return name, InvalidSpec(name, error.value, error.expected)


def beyond(world_sizes: str, ranks_per_agent: str, agent_count: int) -> list[int]:
    """Return the world sizes in a field for which that many agents do not suffice.

    `ranks_per_agent`: the field of these; with the fewest of them a gang needs the most agents.
    """
    each = min((count for count in _counts(ranks_per_agent) if count), default=1)
    return sorted(size for size in _counts(world_sizes) if size > agent_count * each)


def _counts(text: str) -> set[int]:
    numbers = {_number(item) for item in _BETWEEN.split(text) if item}
    return {number for number in numbers if isinstance(number, int)}


def first_fields(known: Catalogue, *, agent_count: int) -> Fields:
    """Return what the form shows first: a sweep that the live agents can run as it is.

    It asks whether one machine is enough, with what is always there: the first model and the first
    data set of the registry.
    """
    strategies = known.strategies.values()
    alone = [s.name for s in strategies if s.max_world_size == 1]
    together = [s.name for s in strategies if s.max_world_size is None and not s.uses_servers]
    is_alone = agent_count == 1
    sizes = [1] if is_alone else [n for n in (1, 2, 4) if n <= max(2, agent_count)]
    return Fields(
        {
            "name": ("does a second machine help?" if not is_alone else "one machine",),
            BY: (COUNT,),
            "repetitions": ("3",),
            "model": tuple(known.models)[:1],
            "dataset": tuple(known.datasets)[:1],
            "strategy": (*alone[:1], *(() if is_alone else together[:1])),
            "world_size": (", ".join(str(n) for n in sizes),),
            "global_batch_size": ("64, 256",),
        }
    )

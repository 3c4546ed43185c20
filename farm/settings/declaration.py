"""Settings: each is one field of a dataclass, declared by `setting`.

The parser, `farm-agent --help` and the tables of docs/settings.md are derived from the declaration.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, overload

from farm.errors import InvalidSpec

_DECLARATION = "setting"
_HELP_WIDTH = 100

T = TypeVar("T")
A = TypeVar("A")
N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. `parse` turns its text into a value and raises `ValueError` saying what fits."""

    name: str  # the environment variable, and the key in a configuration file
    default: str | None  # as it would be written; None: `absent` makes the value
    meaning: str  # Markdown, with links relative to docs
    parse: Callable[[str], object]
    absent: Callable[[], object]


@overload
def setting(
    name: str,
    *,
    default: str | None = None,
    absent: Callable[[], A],
    meaning: str,
    parse: Callable[[str], T],
    secret: bool = False,
) -> T | A: ...
@overload
def setting(
    name: str, *, default: str, meaning: str, parse: Callable[[str], T], secret: bool = False
) -> T: ...
@overload
def setting(
    name: str,
    *,
    default: None = None,
    meaning: str,
    parse: Callable[[str], T],
    secret: bool = False,
) -> T | None: ...
def setting(
    name: str,
    *,
    default: str | None = None,
    absent: Callable[[], object] = lambda: None,
    meaning: str,
    parse: Callable[[str], object],
    secret: bool = False,
) -> Any:
    """Declare a field of a dataclass that `read_settings` fills.

    The type checker compares the field's type with what `parse` returns, and with what `absent`
    returns if nothing is given and there is no default. `secret`: the value is kept out of `repr`.
    """
    declared = Setting(name=name, default=default, meaning=meaning, parse=parse, absent=absent)
    return dataclasses.field(repr=not secret, metadata={_DECLARATION: declared})


def settings_of(declaring: Any) -> dict[str, Setting]:
    """Return the settings that a dataclass or a value of it declares, by field, in their order."""
    return {field.name: field.metadata[_DECLARATION] for field in dataclasses.fields(declaring)}


def secret_names(declaring: Any) -> frozenset[str]:
    """Return the names of the settings whose values are kept out of `repr`."""
    fields = dataclasses.fields(declaring)
    return frozenset(field.metadata[_DECLARATION].name for field in fields if not field.repr)


def settings_help(declaring: Any) -> list[str]:
    """Return the lines that explain the settings on a terminal, where links are only text."""
    declared = settings_of(declaring).values()
    width = max(len(one.name) for one in declared)
    return [line for one in declared for line in _help(one, width=width)]


def _help(setting: Setting, *, width: int) -> list[str]:
    meaning = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", setting.meaning)
    shown = "" if setting.default is None else f" (default {setting.default})"
    first = f"  {setting.name:<{width}}  "
    return textwrap.wrap(
        meaning + shown,
        width=_HELP_WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


def read_settings(cls: type[T], environ: Mapping[str, str], *, file: Mapping[str, object]) -> T:
    """Return a value of `cls`. The environment wins over the file, the file over the default.

    An empty text counts as not given, as systemd's and compose's environment files have it.

    Raises:
        InvalidSpec: a value does not parse, or the file has a key that is no setting.
    """
    declared = settings_of(cls)
    known = [one.name for one in declared.values()]
    for key, given in file.items():
        if key not in known:
            raise InvalidSpec(key, given, f"one of the settings {', '.join(known)}")
        if not isinstance(given, str | int | float):
            raise InvalidSpec(key, given, "a text or a number")
    return cls(**{field: _read(one, environ, file) for field, one in declared.items()})


def _read(setting: Setting, environ: Mapping[str, str], file: Mapping[str, object]) -> object:
    # Compared with "" and not asked for truth: 0 is a value.
    written = str(file.get(setting.name, ""))
    text = environ.get(setting.name) or written or setting.default
    if text is None:
        return setting.absent()
    try:
        return setting.parse(text)
    except ValueError as error:
        raise InvalidSpec(setting.name, text, str(error)) from None


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of whole numbers within the bounds, both included."""
    return _within(int, low, high, f"a whole number from {low} to {high}")


def seconds(low: float, high: float) -> Callable[[str], float]:
    """Return a parser of durations in seconds within the bounds, both included."""
    return _within(float, low, high, f"a number of seconds from {low:g} to {high:g}")


def _within(read: Callable[[str], N], low: N, high: N, expected: str) -> Callable[[str], N]:
    def parse(text: str) -> N:
        try:
            value = read(text)
        except ValueError:
            raise ValueError(expected) from None
        if not low <= value <= high:
            raise ValueError(expected)
        return value

    return parse


def one_of(*allowed: str) -> Callable[[str], str]:
    """Return a parser of the words given, which are in capitals; a value need not be."""

    def parse(text: str) -> str:
        if text.upper() not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return text.upper()

    return parse


def folder(text: str) -> Path:
    """Read the path of a folder, which may begin with "~"."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError(f"a folder of a known user ({error})") from None


def read_file(path: Path) -> dict[str, object]:
    """Read a TOML configuration file.

    Raises:
        InvalidSpec: it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        expected = f"a readable TOML file ({error})"
        raise InvalidSpec("configuration file", str(path), expected) from None

"""Types of the values that people write, and lookup of these values by name.

A type parses a value, or refuses it with the name of its field. It converts milliseconds, percent
and megabits to seconds, ratios and bytes per second. The API's documents are generated from the
types.
"""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, TypeAlias, TypeVar

from farm.errors import InvalidSpec

MAX_NAME_CHARACTERS = 200
MAX_LABELS = 20
MAX_LABEL_CHARACTERS = 1000  # of all labels of a table together

_T = TypeVar("_T")
_E = TypeVar("_E", bound=enum.Enum)
Read = Callable[[object, str], _T]  # of the value and the name of its field


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the closest of the known names, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def refuse_unknown(table: Mapping[str, object], known: tuple[str, ...], *, where: str) -> None:
    """Refuse the first key that is not known; `where` is the path to the table."""
    for key, value in table.items():
        if key not in known:
            hint = did_you_mean(str(key), known)
            expected = f"one of the fields {', '.join(known)}{hint}"
            shown = key if isinstance(key, str) and key else repr(key)
            raise InvalidSpec(f"{where}{shown}", value, expected)


_REQUIRED = object()


def scalar(
    table: Mapping[str, object],
    key: str,
    *,
    where: str = "",
    read: Read[_T],
    default: object = _REQUIRED,
) -> _T:
    """Read a single value. Without a default it is required."""
    if key in table:
        return read(table[key], f"{where}{key}")
    if default is _REQUIRED:
        raise InvalidSpec(f"{where}{key}", None, "a value: this field is required")
    return default  # type: ignore[return-value] # the caller's default is of the reader's type


def axis(
    case: Mapping[str, object],
    key: str,
    *,
    where: str,
    read: Read[_T],
    default: tuple[_T, ...] = (),
) -> tuple[_T, ...]:
    """Read a list, or a single value as a list of one. Without a default it is required.

    Of equal values the first counts: each would become a cell, only to be dropped again.
    """
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
    return tuple(dict.fromkeys(read(item, f"{name}[{i}]") for i, item in enumerate(value)))


def canonical(value: float) -> float:
    """Return the number with 12 significant digits, so that 0.1 * 3 and 0.3 are one value."""
    return float(f"{value:.12g}")


# Of an agent, a network or a token: also a part of a path and a word on a command line.
SHORT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SHORT_NAME_EXPECTED = "up to 64 letters, digits, '.', '_' or '-', the first a letter or digit"
# float() also takes spaces, underscores and the digits of every script.
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_WHOLE = re.compile(r"[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,4})?")
_MOST_WHOLE = 10**18


def parse_number(text: str) -> float | None:
    """Return the number that a text is, infinite where it is too large; None: it is none."""
    return float(text) if _NUMBER.fullmatch(text) else None


def parse_whole_number(text: str) -> int | None:
    """Return the whole number that a text is, such as 64, 64.0 or 6.4e1; None: it is none."""
    if not _WHOLE.fullmatch(text):
        return None
    number = Decimal(text)
    # Before it is a whole number in Python, which 1e9999 would be, too.
    if number > _MOST_WHOLE or number != number.to_integral_value():
        return None
    return int(number)


@dataclass(frozen=True, slots=True)
class Name:
    """A text of printable characters; `pattern`: of the whole text, `expected` says it in words."""

    pattern: str = ""
    expected: str = ""
    most: int = MAX_NAME_CHARACTERS

    def read(self, value: object, where: str) -> str:
        """Return the text.

        Raises:
            InvalidSpec: it is none, or too long.
        """
        # Not printable: line breaks, NUL (which PostgreSQL refuses) and halves of surrogate pairs.
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise InvalidSpec(where, value, self.expected or "a text of printable characters")
        if self.pattern and not re.fullmatch(self.pattern, value):
            raise InvalidSpec(where, value, self.expected)
        if len(value) > self.most:
            raise InvalidSpec(where, value, f"at most {self.most} characters")
        return value


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """A whole number from `low` to `high`; 64.0 is one, as JSON Schema has it."""

    low: int
    high: int

    def read(self, value: object, where: str) -> int:
        """Return the number.

        Raises:
            InvalidSpec: it is none, or out of range.
        """
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        # bool is an int in Python, but 'true' is no count.
        if (
            isinstance(value, int)
            and not isinstance(value, bool)
            and self.low <= value <= self.high
        ):
            return value
        raise InvalidSpec(where, value, f"a whole number from {self.low} to {self.high}")


@dataclass(frozen=True, slots=True)
class WholeNumberOrWord:
    """A whole number, or a word in its place."""

    whole: WholeNumber
    word: str

    def read(self, value: object, where: str) -> int | str:
        """Return the number, or the word.

        Raises:
            InvalidSpec: it is neither, or out of range.
        """
        if value == self.word:
            return self.word
        try:
            return self.whole.read(value, where)
        except InvalidSpec as error:
            raise InvalidSpec(where, value, f'{error.expected} or "{self.word}"') from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A number with a unit: people write `unit`, `read` returns base units.

    `noun`: what it is, for errors. `per_base`: units in one base unit. `low` and `high`: in
    `unit`; `is_above_low` and `is_below_high`: whether these themselves are left out. What is
    nearer to 0 than `resolution`, in `unit`, is 0.
    """

    unit: str
    noun: str
    low: float
    high: float
    per_base: float = 1.0
    is_above_low: bool = False
    is_below_high: bool = False
    resolution: float = 0.0

    def read(self, value: object, where: str) -> float:
        """Return the number in base units.

        Raises:
            InvalidSpec: it is none, or out of range.
        """
        if (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or not self._is_in_range(value)
        ):
            low = f"above {self.low:g} and" if self.is_above_low else f"from {self.low:g}"
            high = f"below {self.high:.9g}" if self.is_below_high else f"{self.high:.9g}"
            up_to = "up to" if self.is_above_low else "to"
            raise InvalidSpec(where, value, f"a {self.noun} {low} {up_to} {high}")
        if abs(value) < self.resolution:
            return 0.0
        number = (value + 0) / self.per_base  # -0.0 becomes 0.0, which has another canonical text
        if self.per_base == 1:
            return number
        rounded = canonical(number)
        # What is just below the highest value stays below it.
        return rounded if self._is_in_range(rounded * self.per_base) else number

    def _is_in_range(self, number: float) -> bool:
        # NaN, which is neither below nor above anything, is not.
        is_high_enough = self.low < number if self.is_above_low else self.low <= number
        return is_high_enough and (
            number < self.high if self.is_below_high else number <= self.high
        )


@dataclass(frozen=True, slots=True)
class OneOf(Generic[_E]):
    """One of the values of an enumeration."""

    kind: type[_E]

    @property
    def options(self) -> tuple[Any, ...]:
        """What there is to choose from, as JSON has it."""
        return tuple(member.value for member in self.kind)

    def read(self, value: object, where: str) -> _E:
        """Return the member.

        Raises:
            InvalidSpec: there is none of this value.
        """
        try:
            return self.kind(value)
        except ValueError:
            allowed = " or ".join(repr(member.value) for member in self.kind)
            raise InvalidSpec(where, value, allowed) from None


@dataclass(frozen=True, slots=True)
class Word:
    """One of some words."""

    words: tuple[str, ...]

    @property
    def options(self) -> tuple[str, ...]:
        """What there is to choose from."""
        return self.words

    def read(self, value: object, where: str) -> str:
        """Return the word.

        Raises:
            InvalidSpec: it is another.
        """
        if not isinstance(value, str) or value not in self.words:
            hint = did_you_mean(str(value), self.words)
            raise InvalidSpec(where, value, f"one of {', '.join(self.words)}{hint}")
        return value


@dataclass(frozen=True, slots=True)
class Boolean:
    """True or false."""

    @property
    def options(self) -> tuple[bool, ...]:
        """What there is to choose from."""
        return (True, False)

    @staticmethod
    def of(text: str) -> bool | str:
        """Return the flag that a text is; else the text, which `read` refuses."""
        flags: dict[str, bool | str] = {"true": True, "false": False}
        return flags.get(text.lower(), text)

    def read(self, value: object, where: str) -> bool:
        """Return the flag.

        Raises:
            InvalidSpec: it is none.
        """
        if not isinstance(value, bool):
            raise InvalidSpec(where, value, "true or false")
        return value


@dataclass(frozen=True, slots=True)
class WebAddresses:
    """At most `most` addresses. What they name may be secret, so errors do not show it."""

    most: int
    most_characters: int

    def read(self, value: object, where: str) -> tuple[str, ...]:
        """Return them, each once; a single text is one.

        Raises:
            InvalidSpec: one is no text, or there are too many.
        """
        listed = value if isinstance(value, list) else [value]
        if len(listed) > self.most:
            raise InvalidSpec(where, f"{len(listed)} addresses", f"at most {self.most}")
        for number, one in enumerate(listed):
            if not isinstance(one, str) or len(one) > self.most_characters:
                shown = type(one).__name__
                expected = f"an address of at most {self.most_characters} characters"
                raise InvalidSpec(f"{where}[{number}]", shown, expected)
        return tuple(dict.fromkeys(listed))


@dataclass(frozen=True, slots=True)
class Labels:
    """Names by name: few and short ones, since every job stores them."""

    def read(self, value: object, where: str) -> dict[str, str]:
        """Return the labels.

        Raises:
            InvalidSpec: it is no table, has something else than names, or too much of them.
        """
        if not isinstance(value, Mapping):
            raise InvalidSpec(where, value, "a table of texts")
        if len(value) > MAX_LABELS:
            raise InvalidSpec(where, len(value), f"at most {MAX_LABELS} labels")
        name = Name()
        labels = {
            name.read(key, where): name.read(item, f"{where}.{key}") for key, item in value.items()
        }
        characters = sum(len(key) + len(item) for key, item in labels.items())
        if characters > MAX_LABEL_CHARACTERS:
            raise InvalidSpec(where, characters, f"at most {MAX_LABEL_CHARACTERS} characters")
        return labels


Choice: TypeAlias = OneOf[Any] | Word | Boolean
# Of one value that a table can have in a column.
ValueType: TypeAlias = Name | WholeNumber | Amount | Choice
Type: TypeAlias = ValueType | WholeNumberOrWord | Labels | WebAddresses

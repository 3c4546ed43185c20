"""What an attack is: somebody's place, what he tries from there, and what has to refuse it."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.e2e.security.strict_farm import StrictFarm

_SHOWN_CHARACTERS = 150


class Position(enum.Enum):
    NETWORK = "the network"
    BROKER = "access to the broker, without a key"
    AGENT = "a stolen agent"
    TOKEN = "a read token"
    FILE = "a hostile file"
    OPERATOR = "an operator's mistake"
    READER = "a copy of what is left behind"
    BROWSER = "another site's page"


class Succeeded(AssertionError):
    """An attack was not refused."""


@dataclass(frozen=True, slots=True)
class Attack:
    """`act` returns the words of what refused it. Raises Succeeded where nothing did.

    `line`: who tries, in the words of the threat model in docs/security.md.
    """

    position: Position
    tried: str
    line: str
    act: Callable[[StrictFarm], str]


def refusal_of(attempt: Callable[[], object], *expected: type[Exception], says: str = "") -> str:
    """Return what refused an attempt. Raises Succeeded where it went through."""
    try:
        got = attempt()
    except expected as error:
        words = f"{type(error).__name__}: {error}" if not says else str(error)
        if says and not re.search(says, words):
            raise Succeeded(f"expected {says!r} to refuse it, got {words!r}") from error
        return " ".join(words.split())
    raise Succeeded(f"nothing refused it: {str(got)[:200]!r}")


def shown(words: str, farm: StrictFarm) -> str:
    """Shorten a refusal to what is the same in every farm."""
    words = words.replace(str(farm.home), "HOME").replace(farm.address, "HOST")
    words = re.sub(r"\b(database|broker) \w+(\+\w+)?://\S+", r"\1", words)
    words = re.sub(r'(HOST"?)[:\s,]+(port )?\d{4,5}', r"\1", words)
    words = re.sub(r" ?\(_ssl\.c:\d+\)|\d{4}-\d\d-\d\d [\d:,]+ ", "", words).replace("|", "/")
    return words if len(words) <= _SHOWN_CHARACTERS else f"{words[: _SHOWN_CHARACTERS - 3]}..."

"""The errors of the program, named for what the caller can do about them.

Every message says what was wrong, with the value, and then what was expected or what to do.
The command line prints it as one line; anything that is not a `FarmError` is a bug and keeps
its traceback.
"""

from __future__ import annotations

_SHOWN_CHARACTERS = 80
_FIELD_CHARACTERS = 200


class FarmError(Exception):
    """Base of every error that a user or an operator can mend."""


class InvalidSpec(FarmError):
    """An input that cannot be accepted: mend the named field."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        try:
            shown = repr(value)
        except (ValueError, RecursionError):
            # Python does not print integers of more than 4300 digits, nor endless nesting.
            shown = f"an unprintable {type(value).__name__}"
        if len(shown) > _SHOWN_CHARACTERS:
            shown = shown[: _SHOWN_CHARACTERS - 3] + "..."
        # A key of the user's own may hold a line break, and an error is one line.
        name = field if field.isprintable() else repr(field)
        if len(name) > _FIELD_CHARACTERS:
            name = name[: _FIELD_CHARACTERS - 3] + "..."
        super().__init__(f"{name}: expected {expected}, got {shown}")
        self.field = field
        self.value = value
        self.expected = expected

    def __reduce__(self) -> tuple[type[InvalidSpec], tuple[str, object, str]]:
        return InvalidSpec, (self.field, self.value, self.expected)


class NotFound(FarmError):
    """No such job, sweep or agent: look up its name."""


class LeaseConflict(FarmError):
    """Somebody else was quicker: take a fresh snapshot and decide again."""


class InvalidTransition(FarmError):
    """This state does not lead to that one: read the job's story."""


class EmulationFailed(FarmError):
    """A network profile could not be applied or undone."""


class TrainerFailed(FarmError):
    """A trainer could not be started, or failed."""


class Unreachable(FarmError):
    """A broker, a database or a server does not answer: start it or correct its URL."""


class NotPermitted(FarmError):
    """An account lacks the right to do that: grant it."""


class OtherFarm(FarmError):
    """A broker or a database belongs to another farm: name the right one, or take it over."""

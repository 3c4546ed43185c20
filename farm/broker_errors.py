"""What goes wrong with a broker, in one family of errors and in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from farm.broker_url import redact
from farm.errors import Unreachable


def broker_errors() -> tuple[type[Exception], ...]:
    """Return what a broker that is away makes clients raise."""
    import redis
    from kombu.exceptions import BatchPublishError, LimitExceeded, OperationalError

    return (redis.RedisError, OperationalError, LimitExceeded, BatchPublishError, OSError)


@contextmanager
def reported(broker_url: str) -> Iterator[None]:
    """Raise Unreachable, in plain words, in the place of what a broker's client raises."""
    try:
        yield
    except broker_errors() as error:
        # Kombu says of a batch only that it failed; why is behind it.
        said = error.__cause__ if isinstance(error.__cause__, broker_errors()) else error
        reason = " ".join(str(said).split()) or type(said).__name__
        if _is_of_password(said):
            raise Unreachable(
                f"broker {redact(broker_url)} refused the account or its password ({reason}): "
                "check FARM_BROKER_URL"
            ) from error
        raise Unreachable(
            f"broker {redact(broker_url)} does not answer ({reason}): "
            "start Redis there or correct FARM_BROKER_URL"
        ) from error


def _is_of_password(error: BaseException | None) -> bool:
    """Whether a broker answered, and knows nobody of that name and password. Kombu wraps that."""
    import redis

    while error is not None and not isinstance(error, redis.AuthenticationError):
        error = error.__cause__
    return error is not None

"""Errors of the broker, with messages in plain words."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from farm.broker.url import redact
from farm.errors import Unreachable


def broker_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that clients raise when the broker cannot be reached."""
    import redis
    from kombu.exceptions import LimitExceeded, OperationalError

    return (redis.RedisError, OperationalError, LimitExceeded, OSError)


@contextmanager
def translate_errors(broker_url: str) -> Iterator[None]:
    """Replace an exception of the broker's client by Unreachable, with a clear message."""
    try:
        yield
    except broker_errors() as error:
        # Kombu may say only that something failed; why is behind it.
        cause = error.__cause__ if isinstance(error.__cause__, broker_errors()) else error
        reason = " ".join(str(cause).split()) or type(cause).__name__
        raise Unreachable(f"broker {redact(broker_url)} {_explained(cause, reason)}") from error


def _explained(error: BaseException, reason: str) -> str:
    """Say what a broker did, and what to do about it. Kombu wraps what Redis's client raised."""
    import redis

    for behind in _chain(error):
        if isinstance(behind, redis.OutOfMemoryError):
            return (
                f"is full ({reason}): raise its `maxmemory`, and see whether the collector runs, "
                "which empties the queues"
            )
        if isinstance(behind, redis.AuthenticationError):
            return f"refused the account or its password ({reason}): check FARM_BROKER_URL"
        if isinstance(behind, ssl.SSLCertVerificationError):
            why = behind.verify_message.rstrip(".")
            return (
                f"has a certificate that is not trusted ({why}): name its authority in "
                "ssl_ca_certs=, and its host as the certificate does, in FARM_BROKER_URL"
            )
        if isinstance(behind, ssl.SSLError):
            return (
                f"ended the TLS ({reason}): check that it speaks TLS on that port, and trusts "
                "ssl_certfile= of FARM_BROKER_URL, where it asks for a certificate"
            )
        if isinstance(behind, redis.ResponseError):
            return (
                f"refused the command ({reason}): check its configuration, and the account's rights"
            )
    return f"does not answer ({reason}): start Redis there or correct FARM_BROKER_URL"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__

"""Finds the farm's address and token: in arguments, in the environment, or in a file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from benchfarm.client.connection import ANSWER_S, FarmConnection
from benchfarm.client.errors import NotConnected, WrongServer
from benchfarm.client.farm import Farm

URL_VARIABLE, TOKEN_VARIABLE = "BENCHFARM_URL", "BENCHFARM_TOKEN"
DEFAULT_URL = "http://127.0.0.1:8080"
KEYS = ("url", "token")
# A wrong address shall show at once.
_FIRST_PATIENCE_S, _FIRST_ANSWER_S = 2.0, 10.0


def connect(
    url: str | None = None,
    token: str | None = None,
    *,
    patience_s: float = 60.0,
    transport: httpx.BaseTransport | None = None,
) -> Farm:
    """Connect to a farm's web server.

    What is not given is looked up: first BENCHFARM_URL and BENCHFARM_TOKEN, then `url` and `token`
    in `~/.config/benchfarm/client.toml`, whose token goes to its own address alone. Without any it
    is http://127.0.0.1:8080.

    `patience_s`: how long a request is tried again while the server does not answer.

    Raises:
        ClientError: nothing answers there, it is no farm, or the token is not known.
    """
    url = url or os.environ.get(URL_VARIABLE) or None
    token = token or os.environ.get(TOKEN_VARIABLE)
    if url is None:
        written = _settings_in(config_file(os.environ))
        url, token = written.get("url", DEFAULT_URL), token or written.get("token")
    first_s = min(_FIRST_PATIENCE_S, patience_s)
    connection = FarmConnection(url, token, patience_s=first_s, transport=transport)
    connection.answer_s = _FIRST_ANSWER_S
    try:
        version = _version_of(connection)
    except BaseException:
        connection.close()
        raise
    connection.patience_s, connection.answer_s = patience_s, ANSWER_S
    return Farm(connection, version=version)


def _version_of(connection: FarmConnection) -> str:
    match connection.get("/openapi.json"):
        case {"info": {"title": "Benchfarm", "version": str(version)}}:
            return version
    raise WrongServer(f"{connection.url}: its API is not that of a farm")


def config_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the user's settings file, which need not exist."""
    folder = (
        environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or "~").expanduser() / ".config"
    )
    return Path(folder) / "benchfarm" / "client.toml"


def _settings_in(file: Path) -> dict[str, str]:
    try:
        written: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise NotConnected(f"{file}: cannot be read ({error}); repair or remove it") from None
    for key, value in written.items():
        if key not in KEYS or not isinstance(value, str):
            # Not the value: it may be the token.
            raise NotConnected(f"{file}: {key!r}: expected url and token alone, both texts")
    return written

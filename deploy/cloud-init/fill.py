#!/usr/bin/env python3
"""Fill in deploy/cloud-init/server.yaml or agent.yaml, and print what is the VM's user data.

fill.py server --url URL --archive FILE
fill.py agent --url URL --archive FILE --settings NAME.env

URL is from where the VM fetches the archive, FILE the same archive here, for its sha256; NAME.env
holds what `farm agent add NAME` printed on the server. Needs nothing but Python.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).parent
# AWS takes 16 KiB of user data, Azure 64.
MOST_BYTES = 16 * 1024
NEEDED = ("AGENT_ID", "AGENT_KEY", "FARM_BROKER_URL")
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


class WrongValueError(Exception):
    pass


def checked_url(url: str) -> str:
    """Return a URL that can stand between single quotes of a shell, within YAML."""
    if not re.fullmatch(r"https?://[^\s'\\]+", url) or not url.isascii() or not url.isprintable():
        raise WrongValueError(f"--url: expected http(s)://... without quotes or spaces, got {url}")
    return url


def checked_settings(path: Path) -> str:
    """Return the file in base64, if an agent can start with what it says."""
    text = path.read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    for line in lines:
        if not re.fullmatch(r"[A-Z][A-Z0-9_]*=.*", line):
            name = line.partition("=")[0]
            raise WrongValueError(f"--settings: expected lines NAME=VALUE, got {name}")
    values = dict(line.split("=", 1) for line in lines)
    for name in NEEDED:
        if not values.get(name) or "CHANGE-ME" in values[name]:
            raise WrongValueError(f"--settings: expected a value of {name} in {path}")
    if urlsplit(values["FARM_BROKER_URL"]).hostname in LOCAL_HOSTS:
        raise WrongValueError(
            "--settings: FARM_BROKER_URL: expected the server's address, got the VM's own"
        )
    return base64.b64encode(text.encode()).decode()


def filled(arguments: argparse.Namespace) -> str:
    """Return the user data."""
    text = (HERE / f"{arguments.role}.yaml").read_text()
    values = {
        "CHANGE-ME-URL": checked_url(arguments.url),
        "CHANGE-ME-SHA256": hashlib.sha256(arguments.archive.read_bytes()).hexdigest(),
    }
    if arguments.role == "agent":
        if arguments.settings is None:
            raise WrongValueError("--settings: expected the file of what `farm agent add` printed")
        values["CHANGE-ME-SETTINGS"] = checked_settings(arguments.settings)
    for name, value in values.items():
        text = text.replace(name, value)
    if len(text) > MOST_BYTES:
        raise WrongValueError(f"expected at most {MOST_BYTES} bytes of user data, got {len(text)}")
    return text


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("role", choices=["server", "agent"])
    parser.add_argument("--url", required=True)
    parser.add_argument("--archive", type=Path, required=True)
    parser.add_argument("--settings", type=Path)
    try:
        print(filled(parser.parse_args()), end="")
    except (WrongValueError, OSError, UnicodeDecodeError) as error:
        print(f"fill.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

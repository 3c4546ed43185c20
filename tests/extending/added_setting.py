"""Find a setting that was added to the server's or to an agent's; run in a changed copy.

    python -m tests.extending.added_setting FIELD

The setting is a whole number from 1 on with the default 1, declared as a field of `Settings` or of
`AgentSettings`. Prints where it was found, one place a line; what is not found is an error.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import sqlalchemy as sa
from click.testing import CliRunner

from farm.cli.main import main
from farm.errors import InvalidSpec
from farm.settings.declaration import Setting, settings_help, settings_of
from farm.settings.server import Settings, environment_of, load_settings
from tests import document_tables
from tests.extending.added import look
from worker_agent.config import load_config
from worker_agent.settings import AgentSettings


def places(field: str, engine: sa.Engine) -> Iterator[tuple[str, bool]]:
    """Yield where a setting has to be, and whether it is."""
    of_server = settings_of(Settings).get(field)
    if of_server is not None:
        yield from _places(of_server, Settings)
        url = engine.url.render_as_string(hide_password=False)
        yield from _of_commands(of_server, field, url)
    else:
        of_agent = settings_of(AgentSettings)[field]
        yield from _places(of_agent, AgentSettings)
        yield "farm-agent --help", of_agent.name in " ".join(settings_help(AgentSettings))


def _places(setting: Setting, declaring: type) -> Iterator[tuple[str, bool]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "farm.toml"
        file.write_text(f"{setting.name} = 2\n")

        def read(environ: dict[str, str], file: Path | None = None) -> object:
            if declaring is Settings:
                loaded: object = load_settings(environ, file=file)
            else:
                given = {"AGENT_STATE_DIR": folder, "AGENT_CLOUD": "never", **environ}
                loaded = load_config(given, file=file).settings
            [field] = [f for f, one in settings_of(declaring).items() if one == setting]
            return getattr(loaded, field)

        yield "default", read({}) == 1
        yield "environment", read({setting.name: "3"}) == 3
        yield "file", read({}, file) == 2
        yield "environment before file", read({setting.name: "3"}, file) == 3
        try:
            read({setting.name: "0"})
        except InvalidSpec as error:
            yield "refusal", (error.field, error.value) == (setting.name, "0")
    lines = document_tables.settings(declaring)
    yield "settings.md", any(setting.name in line and setting.meaning in line for line in lines)


def _of_commands(setting: Setting, field: str, url: str) -> Iterator[tuple[str, bool]]:
    settings = load_settings({setting.name: "3"})
    yield "processes of a farm", environment_of(settings)[setting.name] == "3"
    with patch.dict(os.environ, {"FARM_DATABASE_URL": url, setting.name: "x"}):
        result = CliRunner().invoke(main, ["status"])
    line = result.stderr.splitlines()
    yield "message of farm", result.exit_code == 2 and len(line) == 1 and setting.name in line[0]


if __name__ == "__main__":
    sys.exit(look(places, sys.argv[1]))

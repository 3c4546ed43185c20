"""Run `farm` in this process on a store of the test's own, and read what it printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from farm.cli.main import main
from farm.embedded.redis import free_port


class FarmCommand:
    """Settings name the store, and a broker that is not there."""

    def __init__(self, engine: sa.Engine, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        url = engine.url.render_as_string(hide_password=False)
        monkeypatch.setenv("FARM_DATABASE_URL", url)
        monkeypatch.setenv("FARM_BROKER_URL", f"redis://127.0.0.1:{free_port()}/0")
        monkeypatch.setenv("FARM_HOME", str(home))

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments), catch_exceptions=False)

    def text(self, *arguments: str) -> str:
        """Return standard output of a command that must succeed."""
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *arguments: str) -> Any:
        """Return the one JSON document that a command must print."""
        return json.loads(self.text(*arguments, "--json"))

    def refusal(self, *arguments: str, status: int) -> str:
        """Return the one line on standard error of a command that must fail so."""
        result = self.run(*arguments)
        assert result.exit_code == status, result.output
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        return result.stderr

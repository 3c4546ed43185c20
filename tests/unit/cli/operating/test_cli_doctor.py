"""What `farm doctor` makes of a check that does not get an answer."""

from __future__ import annotations

import pytest

from farm.cli.operating.doctor import run_checks
from farm.cli.operating.doctor_checks import Check
from farm.diagnosis.finding import Finding, Level
from farm.errors import NotPermitted, Unreachable
from farm.settings.server import Settings
from tests.web.web_client import web_settings


def found_by(error: Exception) -> Finding:
    """Run a check that raises the error; return its finding."""

    def look(settings: Settings) -> list[Finding]:
        raise error

    [checked] = run_checks([Check("database", look)], web_settings(), limit_s=600.0)
    [finding] = checked.findings
    return finding


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ("store f cannot be read (denied): run as the farm's user", "run as the farm's user"),
        ("database d has schema 1, expected 2: run `farm db upgrade`", "run `farm db upgrade`"),
        (
            "database d cannot be used: hint; check the disk; check that it runs",
            "check that it runs",
        ),
        (
            "broker b does not answer (a: start b): start Redis there or mend",
            "start Redis there or mend",
        ),
        ("what was never said before", "start it"),
    ],
)
def test_an_error_is_split_into_what_is_wrong_and_what_to_do(message: str, remedy: str) -> None:
    for error, level in ((Unreachable, Level.WRONG), (NotPermitted, Level.DOUBT)):
        found = found_by(error(message))
        assert (found.level, found.remedy) == (level, remedy)
        assert remedy not in found.what
        assert message.startswith(found.what)

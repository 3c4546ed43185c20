from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from farm.errors import InvalidSpec
from farm.settings.declaration import (
    one_of,
    read_settings,
    seconds,
    setting,
    settings_help,
    settings_of,
    whole_number,
)
from farm.settings.server import Settings, environment_of
from tests import document_tables
from worker_agent.settings import AgentSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    port: int = setting(
        "PORT",
        default="80",
        meaning="A port, see [ports](ports.md#all).",
        parse=whole_number(1, 65535),
    )
    name: str | None = setting("NAME", meaning="A name.", parse=str)
    wait_s: float = setting("WAIT_S", default="2", meaning="A wait.", parse=seconds(0, 60))
    level: str = setting("LEVEL", default="INFO", meaning="A level.", parse=one_of("INFO", "DEBUG"))
    tags: frozenset[str] = setting("TAGS", absent=frozenset, meaning="Tags.", parse=frozenset)
    password: str | None = setting("PASSWORD", meaning="Secret.", parse=str, secret=True)


def test_the_environment_wins_over_the_file_and_the_file_over_the_default() -> None:
    assert read_settings(Example, {}, file={}).port == 80
    assert read_settings(Example, {}, file={"PORT": 81}).port == 81
    assert read_settings(Example, {"PORT": "82"}, file={"PORT": 81}).port == 82


def test_without_a_default_what_is_not_given_is_missing() -> None:
    assert read_settings(Example, {}, file={}).name is None


def test_an_empty_text_counts_as_not_given() -> None:
    assert read_settings(Example, {"PORT": "", "NAME": ""}, file={}) == read_settings(
        Example, {}, file={}
    )
    assert read_settings(Example, {"NAME": ""}, file={"NAME": "x"}).name == "x"
    assert read_settings(Example, {}, file={"NAME": ""}).name is None


def test_zero_in_a_file_is_a_value() -> None:
    assert read_settings(Example, {}, file={"WAIT_S": 0}).wait_s == 0.0
    assert read_settings(Example, {"WAIT_S": "0"}, file={}).wait_s == 0.0


def test_other_variables_of_the_environment_are_ignored() -> None:
    assert read_settings(Example, {"HOME": "/root"}, file={}) == read_settings(Example, {}, file={})


def test_an_unknown_key_in_a_file_is_refused() -> None:
    with pytest.raises(
        InvalidSpec,
        match=r"^PROT: expected one of the settings PORT, NAME, WAIT_S, LEVEL, TAGS, PASSWORD",
    ):
        read_settings(Example, {}, file={"PROT": 80})


@pytest.mark.parametrize("value", [[80], {"a": 1}, None])
def test_a_file_gives_texts_and_numbers_only(value: object) -> None:
    with pytest.raises(InvalidSpec, match=r"^PORT: expected a text or a number"):
        read_settings(Example, {}, file={"PORT": value})


@pytest.mark.parametrize("text", ["0", "65536", "80.0", "x", "-1", "true"])
def test_a_whole_number_keeps_its_bounds(text: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^PORT: expected a whole number from 1 to 65535, got"):
        read_settings(Example, {"PORT": text}, file={})


@pytest.mark.parametrize("text", ["-0.1", "60.1", "nan", "inf", "soon", "1e999"])
def test_a_duration_keeps_its_bounds(text: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^WAIT_S: expected a number of seconds from 0 to 60"):
        read_settings(Example, {"WAIT_S": text}, file={})


def test_a_word_is_one_of_those_allowed_in_any_case() -> None:
    assert read_settings(Example, {"LEVEL": "debug"}, file={}).level == "DEBUG"
    with pytest.raises(InvalidSpec, match=r"^LEVEL: expected one of INFO, DEBUG, got 'LOUD'"):
        read_settings(Example, {"LEVEL": "LOUD"}, file={})


def test_a_setting_that_is_absent_may_have_an_empty_value() -> None:
    assert read_settings(Example, {}, file={}).tags == frozenset()
    assert read_settings(Example, {"TAGS": "ab"}, file={}).tags == {"a", "b"}


def test_a_secret_is_not_shown() -> None:
    settings = read_settings(Example, {"PASSWORD": "12345"}, file={})
    assert settings.password == "12345"
    assert "12345" not in repr(settings)


def test_help_has_one_paragraph_for_each_setting_without_links() -> None:
    assert settings_help(Example)[:2] == [
        "  PORT      A port, see ports. (default 80)",
        "  NAME      A name.",
    ]


# --- one line for each setting ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreServer(Settings):
    probe_s: float = setting("FARM_PROBE_S", default="3", meaning="A.", parse=seconds(1, 10))


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreAgent(AgentSettings):
    probe_s: float = setting("AGENT_PROBE_S", default="3", meaning="A.", parse=seconds(1, 10))


@pytest.mark.parametrize(("more", "name"), [(MoreServer, "FARM"), (MoreAgent, "AGENT")])
def test_one_declaration_adds_a_setting(more: type[MoreServer | MoreAgent], name: str) -> None:
    name += "_PROBE_S"
    assert read_settings(more, {}, file={}).probe_s == 3.0
    assert read_settings(more, {name: "4"}, file={}).probe_s == 4.0
    assert read_settings(more, {}, file={name: 5}).probe_s == 5.0
    with pytest.raises(InvalidSpec, match=rf"^{name}: expected a number of seconds from 1 to 10"):
        read_settings(more, {name: "11"}, file={})
    with pytest.raises(InvalidSpec, match=rf"one of the settings .*, {name}, got"):
        read_settings(more, {}, file={"FARM_PROEB_S": 4})
    assert document_tables.settings(more)[-1] == f"| `{name}` | `3` | A. |"
    assert re.fullmatch(rf"  {name} +A\. \(default 3\)", settings_help(more)[-1])


def test_processes_that_a_farm_starts_get_an_added_setting() -> None:
    settings = read_settings(MoreServer, {"FARM_PROBE_S": "4"}, file={})
    assert environment_of(settings)["FARM_PROBE_S"] == "4.0"


def test_server_and_agent_agree_on_the_default_of_a_setting_of_both() -> None:
    server = {one.name: one.default for one in settings_of(Settings).values()}
    agent = {one.name: one.default for one in settings_of(AgentSettings).values()}
    assert {name: server[name] for name in server.keys() & agent.keys()}.items() <= agent.items()

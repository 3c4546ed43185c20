from pathlib import Path

import pytest

from farm.errors import InvalidSpec
from farm.settings.declaration import settings_of
from farm.settings.server import Settings, environment_of, load_settings


def test_without_any_setting_everything_has_a_value_for_one_machine() -> None:
    settings = load_settings({})
    assert settings.broker_url == "redis://127.0.0.1:6379/0"
    assert settings.web_host == "127.0.0.1"
    assert settings.api_token is None
    assert settings.lease_s == 20.0
    assert settings.database_url == f"sqlite:///{settings.home}/farm.db"


def test_the_store_lies_in_the_home_of_the_farm_unless_told_otherwise() -> None:
    assert load_settings({"FARM_HOME": "/srv/f"}).database_url == "sqlite:////srv/f/farm.db"
    url = "postgresql+psycopg://u@localhost/d"
    assert load_settings({"FARM_DATABASE_URL": url}).database_url == url


def test_a_tilde_is_the_users_home() -> None:
    assert load_settings({"FARM_HOME": "~/f"}).home == Path.home() / "f"


def test_the_home_of_an_unknown_user_is_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"^FARM_HOME: expected a folder of a known user"):
        load_settings({"FARM_HOME": "~no-such-user/f"})


@pytest.mark.parametrize("name", ["a?b", "a#b"])
def test_a_home_that_would_end_the_stores_url_is_refused(name: str) -> None:
    with pytest.raises(InvalidSpec, match="FARM_HOME"):
        load_settings({"FARM_HOME": f"/srv/{name}"})


def test_a_blank_token_is_no_token() -> None:
    assert load_settings({"FARM_API_TOKEN": "  "}).api_token is None
    assert load_settings({"FARM_API_TOKEN": " secret "}).api_token == "secret"


def test_a_file_sets_what_the_environment_does_not(tmp_path: Path) -> None:
    file = tmp_path / "farm.toml"
    file.write_text('FARM_WEB_PORT = 9000\nFARM_RETRY_WAIT_S = 0\nFARM_API_TOKEN = "t"\n')
    settings = load_settings({"FARM_WEB_PORT": "9001"}, file=file)
    assert (settings.web_port, settings.retry_wait_s, settings.api_token) == (9001, 0.0, "t")


@pytest.mark.parametrize("content", [b"FARM_WEB_PORT = ", b"\xff\xfe", None])
def test_a_file_that_is_no_toml_or_not_there_is_refused(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "farm.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidSpec, match=r"^configuration file: expected a readable TOML file"):
        load_settings({}, file=file)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FARM_WEB_PORT", "0"),
        ("FARM_LEASE_S", "1"),
        ("FARM_RESERVE_AFTER_S", "-1"),
        ("FARM_MAX_ATTEMPTS", "0"),
        ("FARM_RETRY_WAIT_S", "nan"),
        ("FARM_PREPARE_TIMEOUT_S", "0"),
        ("FARM_START_TIMEOUT_S", "soon"),
        ("FARM_OPEN_READING", "yes"),
        ("FARM_PROXY_COUNT", "-1"),
        ("FARM_PROXY_COUNT", "11"),
        ("FARM_LOG_LEVEL", "LOUD"),
    ],
)
def test_a_setting_out_of_range_is_named_with_its_value(name: str, value: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        load_settings({name: value})
    assert (refused.value.field, refused.value.value) == (name, value)


def test_every_default_is_a_value_of_its_setting() -> None:
    for setting in settings_of(Settings).values():
        assert setting.meaning
        if setting.default is not None:
            setting.parse(setting.default)


def test_settings_shown_for_whatever_reason_hold_no_secret() -> None:
    secrets = {
        "FARM_API_TOKEN": "secret-1",
        "FARM_DATABASE_URL": "postgresql://u:secret-2@h/d",
        "FARM_BROKER_URL": "redis://:secret-3@h/0",
        "FARM_PLAINTEXT": "broker,database",
    }
    settings = load_settings(secrets)
    assert settings.api_token == "secret-1"
    assert "secret" not in f"{settings} {settings!r}"


def test_reading_is_open_only_where_somebody_said_so() -> None:
    assert load_settings({}).open_reading == 0
    assert load_settings({"FARM_OPEN_READING": "1"}).open_reading == 1
    assert load_settings({"FARM_OPEN_READING": "0"}).open_reading == 0


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"FARM_API_TOKEN": "t", "FARM_NOISE_POLICY": "flag", "FARM_LOG_FORMAT": "json"},
        {"FARM_HOME": "/srv/f", "FARM_PLAINTEXT": "web,broker", "FARM_PRICES": "prices.csv"},
        {"FARM_BROKER_URL": "redis://:p@127.0.0.1/1", "FARM_RETRY_WAIT_S": "0"},
    ],
)
def test_the_environment_of_settings_reads_back_as_the_same(environ: dict[str, str]) -> None:
    settings = load_settings(environ)
    assert load_settings(environment_of(settings)) == settings

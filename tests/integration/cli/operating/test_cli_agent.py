"""`farm agent`: what is printed, what never, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
import sqlalchemy as sa

from farm.keys.signing_key import read_signing_key
from farm.messages.agent_keys import derive_key, key_text
from tests.commands.farm_command import FarmCommand
from tests.services.certificates import Authority
from tests.services.redis_server import RedisServer, TlsRedisServer, speaks_tls


@pytest.fixture
def key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "signing.key"
    monkeypatch.setenv("FARM_SIGNING_KEY_FILE", str(file))
    return file


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


def test_the_first_agent_makes_the_farms_key_and_each_prints_what_to_install(
    farm: FarmCommand, key_file: Path
) -> None:
    printed = farm.text("agent", "add", "vm-1")
    key = key_text(derive_key(read_signing_key(key_file), "vm-1", 1))
    assert printed == f"AGENT_ID=vm-1\nAGENT_KEY={key}\n"
    other = farm.json("agent", "add", "vm-2")
    assert (other["agent_id"], other["number"]) == ("vm-2", 1)
    assert other["broker_url"] is None  # no account may manage accounts
    assert other["key"] not in (key, None)


def test_a_lost_farm_key_is_never_replaced_in_silence(farm: FarmCommand, key_file: Path) -> None:
    farm.text("agent", "add", "vm-1")
    key_file.unlink()
    assert "No such file" in farm.refusal("agent", "add", "vm-2", status=2)
    assert not key_file.exists()


def test_without_a_file_for_the_farms_key_nobody_is_added(farm: FarmCommand) -> None:
    message = farm.refusal("agent", "add", "vm-1", status=2)
    assert message.startswith("farm: FARM_SIGNING_KEY_FILE: expected a file for")
    assert farm.json("agent", "list") == []


def test_a_rotation_prints_another_key_and_says_how_long_the_old_one_counts(
    farm: FarmCommand, key_file: Path
) -> None:
    first = farm.json("agent", "add", "vm-1")["key"]
    result = farm.run("agent", "rotate", "vm-1")
    assert result.exit_code == 0
    assert "AGENT_KEY=bfk_2_" in result.stdout
    assert "its old credentials are valid until" in result.stderr
    assert first not in result.output
    [listed] = farm.json("agent", "list")
    assert (listed["number"], listed["state"]) == (2, "counts")
    assert listed["previous_until"] is not None
    farm.text("agent", "rotate", "vm-1", "--grace-hours", "0")
    [listed] = farm.json("agent", "list")
    assert (listed["number"], listed["previous_until"]) == (3, None)


@pytest.mark.parametrize("process", ["scheduler", "collector"])
def test_beyond_loopback_no_server_starts_without_the_farms_key(
    farm: FarmCommand, monkeypatch: pytest.MonkeyPatch, process: str
) -> None:
    monkeypatch.setenv("FARM_BROKER_URL", "redis://:secret@192.0.2.1:6379/0")
    monkeypatch.setenv("FARM_PLAINTEXT", "broker")
    message = farm.refusal("run", process, status=2)
    assert message.startswith("farm: FARM_SIGNING_KEY_FILE: expected the file")
    assert "`farm agent add NAME` makes it" in message
    assert "secret" not in message


def test_a_list_shows_no_key(farm: FarmCommand, key_file: Path) -> None:
    assert "no agent has a key" in farm.text("agent", "list")
    key = farm.json("agent", "add", "vm-1")["key"]
    for shown in (farm.text("agent", "list"), farm.text("agent", "list", "--json")):
        assert "vm-1" in shown
        assert key not in shown
        assert read_signing_key(key_file).hex() not in shown


def test_a_removed_agent_is_listed_as_such_and_may_come_back_with_another_key(
    farm: FarmCommand, key_file: Path
) -> None:
    first = farm.json("agent", "add", "vm-1")["key"]
    assert "vm-1 is removed" in farm.text("agent", "remove", "vm-1")
    assert [row["state"] for row in farm.json("agent", "list")] == ["removed"]
    assert "has no key" in farm.refusal("agent", "rotate", "vm-1", status=1)
    assert "has no key" in farm.refusal("agent", "remove", "vm-2", status=1)
    again = farm.json("agent", "add", "vm-1")
    assert again["number"] == 2
    assert again["key"] != first


def test_with_an_account_that_manages_others_each_agent_gets_its_own(
    farm: FarmCommand, key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "FARM_BROKER_ADMIN_URL: expected the broker's URL"
    assert message in farm.refusal("agent", "sync", status=2)
    broker = RedisServer(tmp_path)
    broker.start()
    try:
        monkeypatch.setenv("FARM_BROKER_ADMIN_URL", broker.url)
        monkeypatch.setenv("FARM_BROKER_URL", broker.url)
        added = farm.run("agent", "add", "vm-1")
        assert added.exit_code == 0
        assert "start Redis with an aclfile" in added.stderr
        [line] = [line for line in added.stdout.splitlines() if "FARM_BROKER_URL" in line]
        url = line.removeprefix("FARM_BROKER_URL=")
        assert signs_in(url)
        assert "FARM_PLAINTEXT" not in added.stdout
        second = farm.json("agent", "rotate", "vm-1")["broker_url"]
        assert signs_in(url)
        assert signs_in(second)
        third = farm.json("agent", "rotate", "vm-1", "--grace-hours", "0")["broker_url"]
        assert [signs_in(one) for one in (url, second, third)] == [False, False, True]
        # What the server may leave plain its agents need to, too.
        monkeypatch.setenv("FARM_PLAINTEXT", "broker,web")
        assert "FARM_PLAINTEXT=broker\n" in farm.run("agent", "add", "vm-2").stdout
        farm.run("agent", "remove", "vm-2")
        with broker.client() as admin:
            admin.acl_deluser("agent.vm-1")
        assert "1 accounts are as they should be" in farm.text("agent", "sync")
        assert signs_in(third)
        # A grace of a few milliseconds is over by the next command, whichever that is.
        fourth = farm.json("agent", "rotate", "vm-1", "--grace-hours", "1e-6")["broker_url"]
        farm.text("agent", "list")
        assert [signs_in(one) for one in (third, fourth)] == [False, True]
        third = fourth
        farm.run("agent", "remove", "vm-1")
        assert not signs_in(third)
    finally:
        broker.kill()
    refused = farm.refusal("agent", "sync", status=1)
    assert "correct FARM_BROKER_ADMIN_URL" in refused


def test_what_an_agent_has_to_trust_is_printed_as_comments_with_its_lines(
    farm: FarmCommand, key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not speaks_tls():
        pytest.skip("this Redis was built without TLS")
    authority = Authority(tmp_path / "certificates")
    certificate = authority.file.read_text()
    broker = TlsRedisServer(tmp_path, authority=authority)
    broker.start()
    try:
        monkeypatch.setenv("FARM_BROKER_ADMIN_URL", broker.url)
        monkeypatch.setenv("FARM_BROKER_URL", broker.url)
        # A key beside it stays here; its text before the certificate is no line of an agent's.
        authority.file.write_text(f"SECRET=1\n{certificate}")
        printed = farm.run("agent", "add", "vm-1").stdout.splitlines()
        assert [line.partition("=")[0] for line in printed[:3]] == [
            *("AGENT_ID", "AGENT_KEY", "FARM_BROKER_URL")
        ]
        assert printed[3].startswith(f"# What it trusts, for its {authority.file}")
        assert printed[4:] == [f"# {line}" for line in certificate.splitlines()]
        assert farm.json("agent", "rotate", "vm-1")["authority"] == certificate
        # The system's authorities are on each machine already.
        authority.file.write_text(certificate * 40)
        assert "#" not in farm.run("agent", "add", "vm-2").stdout
    finally:
        broker.kill()


def signs_in(url: str) -> bool:
    try:
        with redis.Redis.from_url(url, socket_timeout=60) as client:
            return bool(client.ping())
    except redis.exceptions.AuthenticationError:
        return False

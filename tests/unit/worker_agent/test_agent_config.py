"""What the agent's settings accept, and what it says of the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from farm.errors import InvalidSpec, Unreachable
from farm.messages.agent_keys import derive_key, key_text
from worker_agent.config import load_config
from worker_agent.settings import (
    parse_agent_id,
    parse_cpus,
    parse_labels,
    parse_networks,
    parse_port_range,
)


def test_the_defaults_suit_a_machine_with_its_broker_on_loopback() -> None:
    config = load_config({"AGENT_ID": "vm-1"})
    assert config.agent_id == "vm-1"
    assert config.address == "127.0.0.1"
    assert config.interface == "lo"
    assert config.settings.port_range == (20000, 20999)
    assert config.cpus == tuple(sorted(os.sched_getaffinity(0)))
    assert config.trainer[-1] == "farm.trainers"
    assert config.settings.heartbeat_s == 5
    assert config.settings.lease_s == 20


def test_a_file_sets_the_same_names_and_the_environment_wins(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('AGENT_ID = "from-file"\nAGENT_HEARTBEAT_S = 2\nAGENT_LABELS = "zone=1"\n')
    config = load_config({"AGENT_ID": "from-env"}, file=file)
    assert config.agent_id == "from-env"
    assert config.settings.heartbeat_s == 2
    assert config.settings.labels == {"zone": "1"}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("AGENT_ID", "a b", "letters, digits"),
        ("AGENT_PORT_RANGE", "20000", "20000-20999"),
        ("AGENT_PORT_RANGE", "80-90", "within 1024-65535"),
        ("AGENT_CPUS", "0-", "0-3,6"),
        ("AGENT_CPUS", "4999", "cores among"),
        ("AGENT_LABELS", "zone", "each key once"),
        ("AGENT_HEARTBEAT_S", "soon", "seconds"),
        ("AGENT_HEARTBEAT_S", "10", "less than 10 s"),
        ("AGENT_INTERFACE", "nope0", "one of"),
        ("AGENT_ADVERTISE_ADDRESS", "192.0.2.1", "since no interface here holds"),
        ("AGENT_TRAINER", '"', "closing quotation"),
        ("AGENT_PYTHON_ENVIRONMENTS", "hf=bin/python", "absolute path of an interpreter"),
        ("AGENT_PYTHON_ENVIRONMENTS", "a b=/bin/sh", "absolute path of an interpreter"),
        ("AGENT_PYTHON_ENVIRONMENTS", "hf=/etc/passwd", "programs that may be run"),
        ("AGENT_SCRIPTS", "submitted", "AGENT_TRAINER_USER"),
        ("FARM_BROKER_URL", "amqp://me:secret@host", "redis://127.0.0.1"),
        ("FARM_LOG_LEVEL", "loud", "WARNING"),
    ],
)
def test_a_bad_value_is_named_with_what_was_expected(name: str, value: str, expected: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        load_config({"AGENT_ID": "vm-1", name: value})
    message = str(caught.value)
    assert expected in message
    assert "\n" not in message
    assert "secret" not in message
    # An address that no interface holds is mended by naming the interface.
    assert message.startswith("AGENT_INTERFACE" if "holds" in expected else name)


def test_a_broker_that_cannot_be_reached_yet_is_no_wrong_setting() -> None:
    """The unit restarts on exit status 1, not on 2: at boot the network may come up late."""
    url = "redis://no-such-host.invalid"
    with pytest.raises(Unreachable, match="set AGENT_ADVERTISE_ADDRESS"):
        load_config({"AGENT_ID": "vm-1", "FARM_BROKER_URL": url, "FARM_PLAINTEXT": "broker"})


def test_a_key_that_is_no_setting_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('AGENT_COLOUR = "red"\n')
    with pytest.raises(InvalidSpec, match="AGENT_COLOUR"):
        load_config({"AGENT_ID": "vm-1"}, file=file)


@pytest.mark.parametrize(
    ("text", "cpus"), [("0", (0,)), ("0-3,6", (0, 1, 2, 3, 6)), ("2, 1-2", (1, 2))]
)
def test_core_lists_are_read_as_the_kernel_writes_them(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpus(text) == cpus


@pytest.mark.parametrize("text", ["", "a", "3-1", "1-2-3", "-1", "1;2"])
def test_other_core_lists_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="0-3,6"):
        parse_cpus(text)


def test_labels_and_ports_are_read() -> None:
    assert parse_labels("a=1, b = x=y") == {"a": "1", "b": "x=y"}
    assert parse_port_range("20000-20001") == (20000, 20001)


@pytest.mark.parametrize("text", ["", "-a", "a/b", "a" * 65, "ä"])
def test_what_cannot_be_part_of_a_queues_name_is_no_agent_id(text: str) -> None:
    with pytest.raises(ValueError, match="letters"):
        parse_agent_id(text)


def test_a_rank_may_be_in_another_network_than_its_agents_usual_one() -> None:
    config = load_config({"AGENT_ID": "vm-1", "AGENT_NETWORKS": "fast=127.0.0.2,slow=127.0.0.1"})
    assert config.within(None) is config
    inside = config.within("fast")
    assert (inside.address, inside.interface) == ("127.0.0.2", "lo")
    assert (config.address, config.within("slow").address) == ("127.0.0.1", "127.0.0.1")


def test_a_network_needs_a_name_and_an_address_that_is_there() -> None:
    with pytest.raises(ValueError, match="names of letters"):
        parse_networks("in fini=127.0.0.1")
    with pytest.raises(InvalidSpec, match=r"AGENT_NETWORKS fast: .*203\.0\.113\.9"):
        load_config({"AGENT_ID": "vm-1", "AGENT_NETWORKS": "fast=203.0.113.9"})


ELSEWHERE = {
    "AGENT_ID": "vm-1",
    "FARM_BROKER_URL": "redis://:secret@192.0.2.1:6379/0",
    "FARM_PLAINTEXT": "broker",
}


def test_beyond_loopback_an_agent_does_not_start_without_its_key(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"^AGENT_KEY: .*`farm agent add NAME`") as refused:
        load_config({**ELSEWHERE, "AGENT_ADVERTISE_ADDRESS": "127.0.0.1"})
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)
    key = derive_key(bytes(32), "vm-1", 3)
    given = {**ELSEWHERE, "AGENT_ADVERTISE_ADDRESS": "127.0.0.1"}
    assert load_config({**given, "AGENT_KEY": key_text(key)}).key == key
    file = tmp_path / "agent.key"
    file.write_text(key_text(key) + "\n")
    config = load_config({**given, "AGENT_KEY_FILE": str(file)})
    assert config.key == key
    assert key_text(key) not in repr(config)


@pytest.mark.parametrize("name", ["AGENT_KEY", "AGENT_KEY_FILE"])
def test_a_key_that_is_none_is_refused_even_on_loopback(tmp_path: Path, name: str) -> None:
    file = tmp_path / "agent.key"
    file.write_text("not a key, but a secret")
    with pytest.raises(InvalidSpec, match=rf"^{name}: expected a key as") as refused:
        load_config({name: str(file) if name.endswith("FILE") else file.read_text()})
    assert "secret" not in str(refused.value)
    with pytest.raises(InvalidSpec, match=r"^AGENT_KEY_FILE: expected a file with"):
        load_config({"AGENT_KEY_FILE": str(tmp_path / "none")})

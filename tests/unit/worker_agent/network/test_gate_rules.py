"""The rules that keep a gang's ports for the gang."""

from __future__ import annotations

import os
from ipaddress import ip_address
from pathlib import Path

import pytest

from farm.errors import EmulationFailed, InvalidSpec, Unreachable
from worker_agent.config import load_config
from worker_agent.network import nft
from worker_agent.network.nft import GateRules, closing_script, nft_table_name, removing_script


def test_a_script_replaces_the_table_and_names_each_address_once() -> None:
    peers = [ip_address(text) for text in ("10.0.0.3", "fd00::2", "10.0.0.2", "10.0.0.3")]
    rules = GateRules(table="benchfarm_x", ports=(20001, 20000), peers=peers)
    assert closing_script(rules) == (
        "add table inet benchfarm_x\n"
        "delete table inet benchfarm_x\n"
        "table inet benchfarm_x {\n"
        "  chain incoming {\n"
        "    type filter hook input priority filter - 5; policy accept;\n"
        '    iif "lo" accept\n'
        "    tcp dport { 20000, 20001 } ip saddr { 10.0.0.2, 10.0.0.3 } accept\n"
        "    tcp dport { 20000, 20001 } ip6 saddr { fd00::2 } accept\n"
        "    tcp dport { 20000, 20001 } counter reject with tcp reset\n"
        "  }\n"
        "}\n"
    )


def test_a_rank_alone_lets_nobody_in() -> None:
    script = closing_script(GateRules(table="benchfarm_x", ports=(20000,), peers=()))
    assert "saddr" not in script
    assert "tcp dport { 20000 } counter reject" in script


def test_agents_of_one_machine_have_tables_of_their_own() -> None:
    assert nft_table_name("/state/a") != nft_table_name("/state/b")
    assert removing_script(nft_table_name("/state/a")).count(nft_table_name("/state/a")) == 2


@pytest.fixture
def no_nft(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nft, "PLACES", ())
    monkeypatch.setenv("PATH", "/nonexistent")


@pytest.mark.usefixtures("no_nft")
def test_without_nft_nothing_is_claimed_and_the_reason_is_told() -> None:
    missing = "nft is not installed (Debian: apt install nftables)"
    assert nft.find_obstacle() == missing
    with pytest.raises(EmulationFailed, match="nft is not installed"):
        nft.run_nft("list ruleset\n")
    assert load_config({}).open_ports_reason == missing


def stand_in(folder: Path, script: str) -> None:
    program = folder / "nft"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.parametrize("setting", ["auto", "always"])
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exec sleep 60", "nft did not answer within 0.2 s"),
        ("kill -9 $$", "nft was ended by signal 9"),
    ],
    ids=["hangs", "is killed"],
)
def test_an_agent_whose_nft_gives_no_answer_does_not_start_with_open_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str, setting: str
) -> None:
    stand_in(tmp_path, script)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(nft, "ANSWER_LIMIT_S", 0.2)

    with pytest.raises(Unreachable, match=rf"AGENT_CLOSES_PORTS: {reason}.*start it again"):
        load_config({"AGENT_CLOSES_PORTS": setting})
    assert load_config({"AGENT_CLOSES_PORTS": "never"}).open_ports_reason is not None


def test_an_nft_that_refuses_is_an_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, "echo 'Operation not permitted (you must be root)' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert nft.find_obstacle() == "nft: Operation not permitted (you must be root)"


@pytest.mark.usefixtures("no_nft")
def test_an_agent_that_must_close_its_ports_does_not_start_where_it_may_not() -> None:
    with pytest.raises(InvalidSpec, match=r"AGENT_CLOSES_PORTS: .*nft is not installed"):
        load_config({"AGENT_CLOSES_PORTS": "always"})


def test_an_agent_may_be_told_to_leave_its_ports_alone() -> None:
    reason = load_config({"AGENT_CLOSES_PORTS": "never"}).open_ports_reason
    assert reason == "AGENT_CLOSES_PORTS is never"

"""The rules that keep a gang's ports for the gang."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from farm.errors import EmulationFailed, InvalidSpec
from worker_agent import nft
from worker_agent.config import load_config
from worker_agent.gate_rules import GateRules, closing_script, removing_script, table_of


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
    assert table_of("/state/a") != table_of("/state/b")
    assert removing_script(table_of("/state/a")).count(table_of("/state/a")) == 2


@pytest.fixture
def no_nft(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nft, "_PLACES", ())
    monkeypatch.setenv("PATH", "/nonexistent")


@pytest.mark.usefixtures("no_nft")
def test_without_nft_nothing_is_claimed_and_the_reason_is_told() -> None:
    missing = "nft is not installed (Debian: apt install nftables)"
    assert nft.find_obstacle() == missing
    with pytest.raises(EmulationFailed, match="nft is not installed"):
        nft.run_nft("list ruleset\n")
    assert load_config({}).open_ports_reason == missing


@pytest.mark.usefixtures("no_nft")
def test_an_agent_that_must_close_its_ports_does_not_start_where_it_may_not() -> None:
    with pytest.raises(InvalidSpec, match=r"AGENT_CLOSES_PORTS: .*nft is not installed"):
        load_config({"AGENT_CLOSES_PORTS": "always"})


def test_an_agent_may_be_told_to_leave_its_ports_alone() -> None:
    reason = load_config({"AGENT_CLOSES_PORTS": "never"}).open_ports_reason
    assert reason == "AGENT_CLOSES_PORTS is never"

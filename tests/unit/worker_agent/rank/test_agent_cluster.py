"""The cluster as one rank sees it."""

from __future__ import annotations

from dataclasses import replace

from farm.messages.commands import Go, RankAddress
from worker_agent.rank.cluster import go_lines, reroute

OWN = RankAddress(rank=0, host="10.0.0.1", probe_port=20000, trainer_ports=(20001, 20002))
PEER = RankAddress(rank=1, host="fd00::2", probe_port=20000, trainer_ports=(20001, 20002))
CLUSTER: dict[str, tuple[str, ...]] = {
    "worker": ("10.0.0.1:20001", "[fd00::2]:20001"),
    "ps": ("10.0.0.1:20002", "[fd00::2]:20002"),
}


def test_a_peer_is_found_where_the_emulator_has_it_and_the_rank_itself_where_it_is() -> None:
    reached = replace(PEER, host="127.0.0.1", trainer_ports=(31001, 31002))

    assert reroute(CLUSTER, peers=(PEER,), reached=(reached,)) == {
        "worker": ("10.0.0.1:20001", "127.0.0.1:31001"),
        "ps": ("10.0.0.1:20002", "127.0.0.1:31002"),
    }


def test_peers_that_are_reached_as_they_are_change_nothing() -> None:
    assert reroute(CLUSTER, peers=(PEER,), reached=(PEER,)) == CLUSTER


def test_a_rank_of_an_ipv6_host_finds_its_own_place() -> None:
    lines = go_lines(
        Go(token=7, cluster=CLUSTER, timeout_s=9.0), roles=("worker", "ps"), address=PEER
    )

    assert [line.task_index for line in lines] == [1, 1]

"""Gangs whose network is emulated by their agents."""

from __future__ import annotations

import os
import signal
import socket
import statistics
from contextlib import ExitStack
from pathlib import Path

import pytest

from farm.configuration.spec import JobSpec, NetworkProfile
from farm.messages.agents import AgentState
from farm.messages.commands import RankAddress
from farm.messages.reports import PeersMeasured, RankEnded, RankStarted, Shaped
from farm.messages.trainer_lines import FailureKind, GoLine, Ready, StepKind
from tests.fakes.server import wait_until
from tests.integration.trainer_process import free_ports, results, started
from tests.machine.agents import AgentFarm
from worker_agent.network.emulators.contracts import Site
from worker_agent.network.emulators.tcp_proxy import TcpProxy
from worker_agent.rank.cluster import reroute
from worker_agent.trainer_process.orphans import find_marked

pytestmark = pytest.mark.alone

DELAY_S = 0.02
DELAYED = NetworkProfile(one_way_delay_s=DELAY_S)
BYTES_PER_S = 2.5e6
LIMITED = NetworkProfile(one_way_delay_s=DELAY_S, bandwidth_bytes_per_s=BYTES_PER_S)


def test_a_gang_without_privileges_is_delayed_by_proxies_which_go_with_it(tmp_path: Path) -> None:
    with AgentFarm(tmp_path) as farm:
        agents = (farm.agent("ports"), farm.agent("ports"))
        gang = farm.gang(3, *agents, network=LIMITED, emulator="tcp_proxy", steps=10)
        gang.lead_to_go()

        before, after = gang.wait_for(PeersMeasured), gang.wait_for(Shaped)
        for untouched, shaped in zip(before, after, strict=True):
            assert shaped.emulator == "tcp_proxy"
            grown_s = shaped.rtts[0].rtt_s - untouched.rtts[0].rtt_s
            assert grown_s == pytest.approx(2 * DELAY_S, abs=0.02)
            # A busy machine may be late; more than the limit may never come through.
            assert shaped.bandwidths, shaped.loaded_rtt_unknown
            [carried] = shaped.bandwidths
            assert 0.5 * BYTES_PER_S < carried.bytes_per_s < 1.05 * BYTES_PER_S
            # Beside a stream a round trip takes longer; where it is unknown, it is said why.
            assert bool(shaped.loaded_rtts) == (shaped.loaded_rtt_unknown is None)
            assert all(loaded.rtt_s >= 2 * DELAY_S for loaded in shaped.loaded_rtts)
        ends = gang.wait_for(RankEnded)
        assert [ended.failure for ended in ends] == [None, None]
        assert any(ended.rtts for ended in ends), "the network is timed again after the end"
        for rtt in (rtt for ended in ends for rtt in ended.rtts):
            assert rtt.rtt_s < DELAY_S
        for agent in agents:
            farm.await_state(agent, AgentState.IDLE)
        folders = [agent.state_dir for agent in agents]
        wait_until(lambda: not any(map(find_marked, folders)), "no process is left")


def test_a_rank_whose_network_was_gone_at_the_end_has_no_result(tmp_path: Path) -> None:
    with AgentFarm(tmp_path) as farm:
        agents = (farm.agent("steps_s:0.1"), farm.agent("steps_s:0.1"))
        gang = farm.gang(3, *agents, network=DELAYED, emulator="tcp_proxy", steps=10)
        gang.lead_to_go()
        gang.wait_for(RankStarted)
        [proxy] = [pid for pid in find_marked(agents[0].state_dir) if is_proxy(pid)]
        os.kill(proxy, signal.SIGKILL)

        lost, kept = gang.wait_for(RankEnded)
        assert lost.failure is not None
        assert lost.failure.kind is FailureKind.NETWORK
        assert lost.failure.message == (
            "the network profile was not there to the end: tcp_proxy has ended with status -9"
        )
        assert kept.failure is None


def is_proxy(pid: int) -> bool:
    return b"worker_agent.network.proxy" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_gang_may_meet_at_addresses_of_ipv6(tmp_path: Path) -> None:
    with AgentFarm(tmp_path) as farm:
        agents = [farm.agent(AGENT_ADVERTISE_ADDRESS="::1") for _ in range(2)]
        gang = farm.gang(3, *agents, network=DELAYED, emulator="tcp_proxy", steps=10)
        gang.lead_to_go()

        for shaped in gang.wait_for(Shaped):
            assert shaped.rtts[0].rtt_s >= 2 * DELAY_S
        assert [ended.failure for ended in gang.wait_for(RankEnded)] == [None, None]


@pytest.mark.tensorflow
def test_training_through_proxies_waits_for_the_delayed_network(tmp_path: Path) -> None:
    job = JobSpec(
        model="mlp",
        dataset="digits",
        strategy="mwms_ring",
        world_size=2,
        global_batch_size=64,
        steps=20,
        warmup_step_count=3,
    )
    ports = free_ports(4)
    addresses = tuple(
        RankAddress(
            rank=rank,
            host="127.0.0.1",
            probe_port=ports[2 * rank],
            trainer_ports=(ports[2 * rank + 1],),
        )
        for rank in range(2)
    )
    cluster = {"worker": tuple(f"{a.host}:{a.trainer_ports[0]}" for a in addresses)}
    with ExitStack() as stack:
        trainers = stack.enter_context(started(job, tmp_path))
        for trainer in trainers:
            trainer.wait_for(Ready)
        for rank, trainer in enumerate(trainers):
            peers = tuple(a for a in addresses if a.rank != rank)
            cpus = tuple(os.sched_getaffinity(0))
            emulator = TcpProxy(
                Site(state_dir=str(tmp_path), interface="lo", cpus=cpus, spared_ports=())
            )
            stack.callback(emulator.clear)
            reached = emulator.apply(DELAYED, peers)
            own_view = reroute(cluster, peers=peers, reached=reached)
            trainer.write(GoLine(cluster=own_view, task_index=rank))
        results(trainers)

    step_times_s = trainers[0].step_times_s(StepKind.TIMED)
    # A synchronous step needs at least one round trip; without the delay it takes 5 ms.
    print(f"{statistics.median(step_times_s) / (2 * DELAY_S):.2f} round trips a step")
    assert statistics.median(step_times_s) > 2 * DELAY_S

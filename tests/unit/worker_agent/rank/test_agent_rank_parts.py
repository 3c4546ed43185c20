"""The pure parts of a rank's life: limits, its place in the cluster, its ports."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from farm.configuration.spec import NetworkProfile
from farm.errors import EmulationFailed, InvalidSpec, TrainerFailed
from farm.messages.commands import Go, RankAddress, StartRank
from farm.messages.reports import StepTimes
from farm.messages.trainer_lines import FailureKind, Progress, StepKind, Steps
from tests.factories import job_spec
from worker_agent.machine.hardware import parse_cpu_model
from worker_agent.network.emulators import capabilities, create_emulators, find_emulator
from worker_agent.network.emulators.contracts import NetworkEmulator, Site
from worker_agent.rank.cluster import go_lines
from worker_agent.rank.ports import PortRange, port_of
from worker_agent.rank.rank import Deadlines, report_of
from worker_agent.rank.resources import cpus_of, title_of
from worker_agent.trainer_process.environment import AGENT_MARK, parse_names, trainer_environment

# Ports of its own for each process of a parallel test run.
FIRST = 22000 + os.getpid() % 100 * 10
ADDRESS = RankAddress(rank=1, host="10.0.0.2", probe_port=20000, trainer_ports=(20001, 20002))


def test_the_limit_that_ran_out_first_is_the_reason() -> None:
    deadlines = Deadlines()
    deadlines.set(FailureKind.TIME_LIMIT, 10.0, "too long")
    deadlines.set(FailureKind.STALLED, 5.0, "silent")
    deadlines.set(FailureKind.STALLED, 8.0, "silent since 3")
    assert deadlines.expired(7.9) is None
    expired = deadlines.expired(11.0)
    assert expired is not None
    assert (expired.kind, expired.message) == (FailureKind.STALLED, "silent since 3")
    deadlines.drop(FailureKind.STALLED)
    expired = deadlines.expired(11.0)
    assert expired is not None
    assert expired.kind is FailureKind.TIME_LIMIT


def test_each_process_finds_its_own_address_in_its_roles_list() -> None:
    cluster = {
        "worker": ("10.0.0.1:20001", "10.0.0.2:20001"),
        "ps": ("10.0.0.2:20002",),
    }
    command = Go(token=7, cluster=cluster, timeout_s=9.0, batch_weights=(0.75, 0.25))
    worker, server = go_lines(command, roles=("worker", "ps"), address=ADDRESS)
    assert worker.batch_weights == server.batch_weights == (0.75, 0.25)
    assert (worker.task_index, server.task_index) == (1, 0)
    assert worker.cluster == cluster


def test_a_cluster_without_this_rank_is_refused() -> None:
    command = Go(token=7, cluster={"worker": ("10.0.0.1:20001",)}, timeout_s=9.0)
    with pytest.raises(InvalidSpec, match=r"10\.0\.0\.2:20001"):
        go_lines(command, roles=("worker",), address=ADDRESS)


def test_instants_of_the_trainer_become_seconds_after_go() -> None:
    steps = Steps(kind=StepKind.TIMED, first_step=5, begun_monotonic_s=107.5, times_s=(0.1,))
    body = report_of(steps, go_s=100.0)
    assert body == StepTimes(kind=StepKind.TIMED, first_step=5, begun_s=7.5, times_s=(0.1,))
    assert report_of(Progress(step_count=3), go_s=100.0) is None


def test_a_trainer_learns_no_secret_and_no_setting_of_the_agent(tmp_path: Path) -> None:
    environment = trainer_environment(
        {
            "PATH": "/bin",
            "HTTPS_PROXY": "http://proxy",
            "HTTP_PROXY": "http://user:secret@proxy",
            "NCCL_DEBUG": "INFO",
            "WHATEVER": "secret",
            "LICENSE_KEY": "of the operator's choice",
            "FARM_DATA_DIR": "/data",
            "FARM_BROKER_URL": "redis://:secret@host",
            "FARM_API_TOKEN": "secret",
            "AGENT_ID": "vm-1",
            "CELERY_BROKER_URL": "redis://:secret@host",
            "DATABASE_URL": "secret",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "db_password": "secret",
            "TF_CONFIG": "{}",
            "TF_NUM_INTEROP_THREADS": "1",
        },
        state_dir=tmp_path,
        also=["LICENSE_KEY"],
    )
    assert environment == {
        "PATH": "/bin",
        "HTTPS_PROXY": "http://proxy",
        "NCCL_DEBUG": "INFO",
        "LICENSE_KEY": "of the operator's choice",
        "FARM_DATA_DIR": "/data",
        "TF_NUM_INTEROP_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        AGENT_MARK: str(tmp_path),
    }


def hold_and_release(ports: PortRange, count: int) -> list[int]:
    held = ports.hold(count)
    numbers = [port_of(one) for one in held]
    for one in held:
        one.close()
    return numbers


def test_a_port_just_released_is_handed_out_last() -> None:
    ports = PortRange(FIRST, FIRST + 3)
    assert hold_and_release(ports, 2) == [FIRST, FIRST + 1]
    assert hold_and_release(ports, 1) == [FIRST + 2]
    assert hold_and_release(ports, 2) == [FIRST + 3, FIRST]


def test_held_ports_are_taken_for_everybody_else() -> None:
    held = PortRange(FIRST + 4, FIRST + 6).hold(2)
    try:
        others = PortRange(FIRST + 4, FIRST + 6)
        with pytest.raises(TrainerFailed, match="expected 2 free ports, got 1"):
            others.hold(2)
        assert hold_and_release(others, 1) == [FIRST + 6]
    finally:
        for one in held:
            one.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_held_port_is_found_at_addresses_of_either_family() -> None:
    [held] = PortRange(FIRST + 7, FIRST + 9).hold(1)
    with held:
        held.listen()
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port_of(held)), timeout=5).close()


SITE = Site(state_dir="/nowhere", interface="lo", cpus=(0,), spared_ports=(6379,))


@pytest.mark.parametrize("emulator", create_emulators(SITE), ids=lambda emulator: emulator.name)
def test_every_emulator_may_be_cleared_without_having_been_applied(
    emulator: NetworkEmulator,
) -> None:
    if emulator.probe() is None:
        emulator.clear()


@pytest.mark.parametrize("emulator", create_emulators(SITE), ids=lambda emulator: emulator.name)
def test_an_emulator_that_has_applied_nothing_misses_nothing(emulator: NetworkEmulator) -> None:
    emulator.check()


def test_the_untouched_network_needs_no_emulator() -> None:
    assert find_emulator(None, SITE).name == "none"
    assert find_emulator(NetworkProfile(), SITE).name == "none"
    # All agents of a machine share the loopback interface.
    assert capabilities(SITE) == ("tcp_proxy",)


def test_a_profile_that_nobody_serves_is_refused_with_the_reasons() -> None:
    with pytest.raises(EmulationFailed, match=r"vde_link: lo is not .*; tc_netem: lo is not"):
        find_emulator(NetworkProfile(packet_loss_ratio=0.001), SITE)
    with pytest.raises(EmulationFailed, match=r"tcp_proxy: cannot do"):
        find_emulator(NetworkProfile(packet_loss_ratio=0.001), SITE, wanted="tcp_proxy")


def test_nobody_is_given_an_approximation_unasked() -> None:
    profile = NetworkProfile(one_way_delay_s=0.02)
    assert find_emulator(profile, SITE, wanted="tcp_proxy").name == "tcp_proxy"
    with pytest.raises(EmulationFailed, match=r"^no network emulator"):
        find_emulator(profile, SITE)


def test_the_cpu_model_is_the_kernels_name_or_missing() -> None:
    assert parse_cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n") == "Some CPU @ 3 GHz"
    assert parse_cpu_model("processor : 0\nBogoMIPS : 50\n") is None


@pytest.mark.parametrize("text", ["FARM_BROKER_URL", "A,AGENT_ID", "1ST", "A B", "A=B"])
def test_an_operator_cannot_hand_on_what_is_the_farms_own(text: str) -> None:
    with pytest.raises(ValueError, match="names of variables"):
        parse_names(text)


@pytest.mark.parametrize(
    ("cpus", "roles", "shares"),
    [
        ((0, 1, 2, 3), ("worker",), [(0, 1, 2, 3)]),
        ((0, 1, 2, 3), ("worker", "worker"), [(0, 1), (2, 3)]),
        ((0, 1, 2, 3, 4), ("worker", "worker"), [(0, 1), (2, 3, 4)]),
        ((4, 6), ("worker", "worker", "ps"), [(4,), (6,), (4, 6)]),
        ((0,), ("worker", "worker"), [(0,), (0,)]),  # its operator lets them share
    ],
)
def test_each_rank_of_an_agent_has_its_share_of_the_cores(
    cpus: tuple[int, ...], roles: tuple[str, ...], shares: list[tuple[int, ...]]
) -> None:
    assert [cpus_of(cpus, process, roles) for process in range(len(roles))] == shares


@pytest.mark.parametrize(
    ("ranks_per_agent", "titles"),
    [(1, ["worker", "ps"]), (2, ["rank 2", "rank 3", "ps"])],
)
def test_each_process_of_an_agent_is_told_apart_in_its_log(
    ranks_per_agent: int, titles: list[str]
) -> None:
    spec = job_spec(
        **{"strategy": "ps_sync", "world_size": 2 * ranks_per_agent, "server_count": 2},
        axes={"ranks_per_agent": ranks_per_agent},
    )
    command = StartRank(
        token=7,
        rank=1,
        agent_count=2,
        roles=spec.roles[1],
        spec=spec,
        prepare_timeout_s=30.0,
    )
    assert [title_of(command, process) for process in range(len(command.roles))] == titles

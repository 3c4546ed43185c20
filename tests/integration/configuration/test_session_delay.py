"""Parameter servers over a way so long that every word of theirs takes part of a second."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from farm.configuration.spec import JobSpec, NetworkProfile, ServerPlacement
from farm.messages.commands import RankAddress
from farm.messages.trainer_lines import Failure, GoLine, Ready, StepKind
from tests.integration.trainer_process import TrainerProcess, free_ports, results, started
from worker_agent.network.emulators.contracts import Site
from worker_agent.network.emulators.tcp_proxy import TcpProxy

pytestmark = [pytest.mark.tensorflow, pytest.mark.alone]

ONE_WAY_DELAY_S = 0.2
SHORT_DELAY_S = 0.05
JOB = JobSpec(
    model="mlp",
    dataset="digits",
    strategy="ps_async",
    world_size=2,
    server_count=1,
    server_placement=ServerPlacement.APART,
    global_batch_size=96,
    steps=1,
    warmup_step_count=0,
)


def test_nobody_takes_a_long_way_for_the_loss_of_a_peer(tmp_path: Path) -> None:
    """The last word of a rank takes longer than a step, and its server waits for it."""
    with delayed_gang(tmp_path) as trainers:
        ended = results(trainers)
        steps_s = [t for trainer in trainers[:2] for t in trainer.step_times_s(StepKind.TIMED)]
    assert not any(isinstance(e, Failure) for t in trainers for _, e in t.events)
    # The weights have to come, and the gradients to go and be confirmed.
    assert len(steps_s) == 2
    assert min(steps_s) >= 4 * ONE_WAY_DELAY_S
    for result in ended[:2]:
        assert result.exchange is not None
        assert result.exchange.push_s == pytest.approx(2 * ONE_WAY_DELAY_S, rel=0.5)
        assert result.exchange.pull_s is not None
        assert result.exchange.pull_s >= 2 * ONE_WAY_DELAY_S


def test_a_followers_round_trip_for_the_parameters_of_a_collective_is_no_computing(
    tmp_path: Path,
) -> None:
    """The name under which TensorFlow traces it is TensorFlow's own, so a real gang is asked."""
    ring = replace(
        JOB, strategy="mwms_ring", server_count=0, server_placement=ServerPlacement.COLLOCATED
    )
    with delayed_gang(tmp_path, ring, one_way_delay_s=SHORT_DELAY_S) as trainers:
        ended = results(trainers)
    # TensorFlow's profiler may crash in a rank now and then (`collective_times`).
    if (profile := ended[1].profile) is None:
        pytest.skip("the profiler of rank 1 crashed")
    assert profile.step_time_s > 4 * SHORT_DELAY_S
    assert profile.compute_s < 2 * SHORT_DELAY_S


@contextlib.contextmanager
def delayed_gang(
    folder: Path, job: JobSpec = JOB, *, one_way_delay_s: float = ONE_WAY_DELAY_S
) -> Iterator[list[TrainerProcess]]:
    """Let a gang begin, of which each reaches the others through a proxy of its own."""
    with contextlib.ExitStack() as stack, started(job, folder) as trainers:
        for trainer in trainers:
            trainer.wait_for(Ready)
        ports = free_ports(len(trainers))
        cpus = sorted(os.sched_getaffinity(0))
        for own, trainer in enumerate(trainers):
            state_dir = folder / f"proxy{own}"
            state_dir.mkdir()
            proxy = TcpProxy(
                Site(
                    state_dir=str(state_dir),
                    interface="lo",
                    cpus=(cpus[own % len(cpus)],),
                    spared_ports=(),
                )
            )
            stack.callback(proxy.clear)
            seen = proxied(proxy, own=own, ports=ports, one_way_delay_s=one_way_delay_s)
            workers, servers = seen[: job.world_size], seen[job.world_size :]
            place = own if trainer.role == "worker" else own - job.world_size
            cluster = {"worker": workers, **({"ps": servers} if servers else {})}
            trainer.write(GoLine(cluster=cluster, task_index=place))
        yield trainers


def proxied(
    proxy: TcpProxy, *, own: int, ports: list[int], one_way_delay_s: float
) -> tuple[str, ...]:
    """Return where one of the gang finds all of it: itself at home, others through its proxy."""
    others = [number for number in range(len(ports)) if number != own]
    reached = proxy.apply(
        NetworkProfile(one_way_delay_s=one_way_delay_s),
        tuple(
            RankAddress(
                rank=number,
                host="127.0.0.1",
                probe_port=ports[number],
                trainer_ports=(ports[number],),
            )
            for number in others
        ),
    )
    found = {own: f"127.0.0.1:{ports[own]}"}
    found |= {peer.rank: f"{peer.host}:{peer.trainer_ports[0]}" for peer in reached}
    return tuple(found[number] for number in range(len(ports)))

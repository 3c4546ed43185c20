"""No GPU is given to two processes of an agent, or to two agents that a farm starts."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from farm.configuration.scripts import LAUNCHERS
from farm.configuration.spec import WORKER
from farm.embedded.sites import local_site
from farm.messages.commands import StartRank
from tests.factories import job_spec
from worker_agent.machine.gpus import GpuShare
from worker_agent.rank.resources import gpus_of
from worker_agent.settings import parse_gpus

GPUS = st.lists(st.uuids().map(lambda uuid: f"GPU-{uuid}"), unique=True, max_size=16).map(tuple)
ROLES = st.permutations([WORKER] * 3 + ["ps"] * 2).flatmap(
    lambda roles: st.integers(0, len(roles)).map(lambda most: (WORKER, *roles[:most]))
)
TORCH, PLAIN = LAUNCHERS["torch"].name, LAUNCHERS["none"].name
Share = tuple[str, ...] | None


def shares_of(
    gpus: Share, roles: tuple[str, ...], *, strategy: str = PLAIN, **axes: object
) -> tuple[list[Share], list[Share]]:
    """Return the GPUs of each rank, and of each server."""
    command = StartRank(
        token=1,
        rank=0,
        agent_count=1,
        roles=roles,
        spec=job_spec(world_size=roles.count(WORKER), strategy=strategy, axes=axes),
        prepare_timeout_s=1.0,
    )
    shares = [gpus_of(gpus, process, command) for process in range(len(roles))]
    by_role = list(zip(shares, roles, strict=True))
    return [s for s, role in by_role if role == WORKER], [s for s, role in by_role if role == "ps"]


@given(GPUS, ROLES, st.sampled_from(["auto", "gpu", "cpu"]), st.integers(1, 4))
def test_no_gpu_is_given_to_two_processes(
    gpus: tuple[str, ...], roles: tuple[str, ...], device: str, each: int
) -> None:
    of_ranks, of_servers = shares_of(gpus, roles, device=device, gpus_per_rank=each)
    taken = [gpu for share in of_ranks for gpu in share or ()]
    assert len(set(taken)) == len(taken)
    assert set(taken) <= set(gpus)
    assert not any(of_servers)
    share_size = {"auto": len(gpus) // len(of_ranks), "gpu": each, "cpu": 0}[device]
    if share_size * len(of_ranks) <= len(gpus):
        assert [len(share or ()) for share in of_ranks] == [share_size] * len(of_ranks)


@given(GPUS, ROLES)
def test_a_script_started_as_torchrun_would_sees_all_and_has_one_by_its_local_rank(
    gpus: tuple[str, ...], roles: tuple[str, ...]
) -> None:
    shown, _ = shares_of(gpus, roles, strategy=TORCH)
    own, _ = shares_of(gpus, roles)
    assert shown == [tuple(gpu for share in own for gpu in share or ())] * len(own)
    assert all(len(shown[rank] or ()) > rank for rank in range(len(own)) if any(own))


@given(ROLES)
def test_where_nobody_knows_the_gpus_only_the_cpu_can_be_asked_for(roles: tuple[str, ...]) -> None:
    assert set(shares_of(None, roles)[0]) == {None}
    assert set(shares_of(None, roles, device="cpu")[0]) == {()}


@given(GPUS, st.integers(1, 20))
def test_agents_of_a_farm_on_one_machine_have_equally_many_gpus_of_their_own(
    gpus: tuple[str, ...], count: int
) -> None:
    sites = [local_site(i, count=count, cpus=(0,), home=Path("/")) for i in range(count)]
    settings = [parse_gpus(site.settings["AGENT_GPUS"]) for site in sites]
    shares = [share.of(gpus) for share in settings if isinstance(share, GpuShare)]
    assert [len(share) for share in shares] == [len(gpus) // count] * count
    taken = [gpu for share in shares for gpu in share]
    assert len(set(taken)) == len(taken)

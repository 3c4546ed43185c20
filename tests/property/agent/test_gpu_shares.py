"""No GPU of an agent is given to two processes, whatever its roles."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from farm.configuration.scripts import LAUNCHERS
from farm.configuration.spec import WORKER
from farm.messages.commands import StartRank
from tests.factories import job_spec
from worker_agent.rank.resources import gpus_of

GPUS = st.lists(st.uuids().map(lambda uuid: f"GPU-{uuid}"), unique=True, max_size=16).map(tuple)
ROLES = st.permutations([WORKER] * 3 + ["ps"] * 2).flatmap(
    lambda roles: st.integers(0, len(roles)).map(lambda most: (WORKER, *roles[:most]))
)


def shares_of(
    gpus: tuple[str, ...], roles: tuple[str, ...], *, strategy: str = "mwms_ring"
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return the GPUs of each rank, and of each server."""
    command = StartRank(
        token=1,
        rank=0,
        rank_count=1,
        roles=roles,
        spec=job_spec(world_size=roles.count(WORKER), strategy=strategy),
        prepare_timeout_s=1.0,
    )
    shares = [gpus_of(gpus, process, command) for process in range(len(roles))]
    by_role = list(zip(shares, roles, strict=True))
    return [s for s, role in by_role if role == WORKER], [s for s, role in by_role if role == "ps"]


@given(GPUS, ROLES)
def test_no_gpu_is_given_to_two_processes(gpus: tuple[str, ...], roles: tuple[str, ...]) -> None:
    of_ranks, of_servers = shares_of(gpus, roles)
    taken = [gpu for share in of_ranks for gpu in share]
    assert len(set(taken)) == len(taken)
    assert set(taken) <= set(gpus)
    assert [len(share) for share in of_ranks] == [len(gpus) // len(of_ranks)] * len(of_ranks)
    assert not any(of_servers)


@given(GPUS, ROLES)
def test_a_script_started_as_torchrun_would_sees_all_and_has_one_by_its_local_rank(
    gpus: tuple[str, ...], roles: tuple[str, ...]
) -> None:
    shown, _ = shares_of(gpus, roles, strategy=LAUNCHERS["torch"].name)
    own, _ = shares_of(gpus, roles)
    assert shown == [tuple(gpu for share in own for gpu in share)] * len(own)
    assert all(len(shown[rank]) > rank for rank in range(len(own)) if any(own))

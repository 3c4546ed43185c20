"""No GPU of an agent is given to two processes, whatever its roles."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from farm.configuration.spec import WORKER
from worker_agent.rank.resources import gpus_of

GPUS = st.lists(st.uuids().map(lambda uuid: f"GPU-{uuid}"), unique=True, max_size=16).map(tuple)
ROLES = st.permutations([WORKER] * 3 + ["ps"] * 2).flatmap(
    lambda roles: st.integers(0, len(roles)).map(lambda most: (WORKER, *roles[:most]))
)


@given(GPUS, ROLES)
def test_no_gpu_is_given_to_two_processes(gpus: tuple[str, ...], roles: tuple[str, ...]) -> None:
    shares = [gpus_of(gpus, process, roles) for process in range(len(roles))]
    taken = [gpu for share in shares for gpu in share]
    assert len(set(taken)) == len(taken)
    assert set(taken) <= set(gpus)
    of_ranks = [len(s) for s, role in zip(shares, roles, strict=True) if role == WORKER]
    assert of_ranks == [len(gpus) // len(of_ranks)] * len(of_ranks)
    assert sum(of_ranks) == len(taken), "a server has none"

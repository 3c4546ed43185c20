"""Connects PyTorch ranks by a store and process groups, and disconnects them.

The store listens on rank 0's trainer port. Gloo and NCCL listen on ports that the kernel chooses,
on the interface towards the peers, and exchange their addresses through the store. So a firewall
between agents must let these ports pass, and an emulator that proxies only the trainer ports would
be bypassed.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import psutil
import torch
import torch.distributed as dist

from farm.messages.trainer_lines import FailureKind
from farm.trainers.contracts import Gang, RankContext, SingleRankGang
from farm.trainers.failures import RankFailed

logger = logging.getLogger(__name__)

EXIT_BARRIER_TIMEOUT_S = 20.0
# The store ends with its leader. Followers have nothing left to ask it by then, but a group that is
# being taken down may.
LEADER_LINGER_S = 0.3
_POLL = timedelta(seconds=1)


class ProcessGroupGang:
    """The gang behind the default process group, with a group of gloo's for its barriers."""

    def __init__(self, barrier_group: Any, *, is_leader: bool) -> None:
        self._barrier_group = barrier_group
        self._is_leader = is_leader

    def wait(self, name: str, *, timeout_s: float) -> None:
        """Wait at a barrier, without the interpreter's lock.

        The death of a peer breaks its connections and ends the wait at once, with an error of
        gloo's. A peer that is stopped is its own agent's affair, which ends it.

        Raises:
            RankFailed: PEER_LOST, the time is over.
        """
        deadline = time.monotonic() + timeout_s
        work = dist.barrier(group=self._barrier_group, async_op=True)
        while True:
            try:
                work.wait(_POLL)
            except RuntimeError:
                # Either the barrier has failed, or this second of waiting is over.
                if work.is_completed():
                    raise
                if time.monotonic() > deadline:
                    problem = f"not every rank was at the barrier '{name}' within {timeout_s:g} s"
                    raise RankFailed(FailureKind.PEER_LOST, problem) from None
            else:
                return

    def leave(self) -> None:
        """Wait until all have come this far; connections that close then alarm nobody."""
        try:
            self.wait("leave", timeout_s=EXIT_BARRIER_TIMEOUT_S)
        except (RuntimeError, RankFailed) as error:
            # The result is out already; a peer that failed after its own is the agents' affair.
            logger.warning("exit barrier failed: %s", error)
            return
        if self._is_leader:
            time.sleep(LEADER_LINGER_S)


def join(rank_context: RankContext, device: torch.device) -> Gang:
    """Connect the default process group, gloo's between CPUs and NCCL's between GPUs.

    A collective that lasts longer than `peer_timeout_s` fails, since PyTorch notices a peer that
    is stopped in no other way.

    Raises:
        RankFailed: this rank's own port is taken, or the ranks' GPUs cannot train together.
    """
    go = rank_context.go
    world_size = len(go.cluster[rank_context.role])
    if world_size == 1:
        return SingleRankGang()
    is_leader = go.task_index == 0
    host, _, port = go.cluster[rank_context.role][0].rpartition(":")
    # Towards the leader, or from the leader towards its first follower.
    interface = interface_towards(go.cluster[rank_context.role][1 if is_leader else 0])
    if interface is not None:
        # Else gloo takes what the host's name stands for, which often is 127.0.1.1.
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface
    timeout = timedelta(seconds=rank_context.peer_timeout_s)
    # A client tries twice, and pauses for as long in between.
    store_timeout = timeout / 3
    store = dist.TCPStore(  # type: ignore[attr-defined] # exported, but not by name
        host.strip("[]"), int(port), world_size, is_leader, store_timeout, wait_for_workers=False
    )
    store.set_timeout(timeout)
    problem = gpu_problem(_exchange(store, go.task_index, world_size, gpu_of(device)))
    if problem is not None:
        raise RankFailed(FailureKind.TRAINER_RAISED, problem)
    dist.init_process_group(
        "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl",
        store=store,
        rank=go.task_index,
        world_size=world_size,
        timeout=timeout,
    )
    # Rank 0 evaluates while the others wait, for longer than any collective may take.
    limit = timedelta(seconds=rank_context.job.time_limit_s)
    barrier_group = dist.new_group(backend="gloo", timeout=limit)
    return ProcessGroupGang(barrier_group, is_leader=is_leader)


def gpu_of(device: torch.device) -> str:
    """Return the GPU's UUID, which no other GPU of any machine has; "" for the processor."""
    return "" if device.type == "cpu" else str(torch.cuda.get_device_properties(device).uuid)


def gpu_problem(gpus: Sequence[str]) -> str | None:
    """Return why ranks with these GPUs cannot train together; None where they can.

    NCCL refuses two ranks on one GPU, and a gang needs one kind of exchange for all its ranks.
    `gpus`: (world_size,), of each rank what `gpu_of` returns.
    """
    on_cpu = [rank for rank, gpu in enumerate(gpus) if not gpu]
    on_gpu = [rank for rank, gpu in enumerate(gpus) if gpu]
    advice = (
        "give each agent a GPU of its own by AGENT_GPUS, "
        'or train on processors with placement = "hard"'
    )
    if on_cpu and on_gpu:
        return f"rank {on_gpu[0]} has a GPU and rank {on_cpu[0]} has none: {advice}"
    for rank in on_gpu:
        first = gpus.index(gpus[rank])
        if first != rank:
            return f"ranks {first} and {rank} share the GPU {gpus[rank]}: {advice}"
    return None


def _exchange(store: Any, rank: int, world_size: int, value: str) -> list[str]:
    """Return the values of all ranks; wait for them as long as the store does."""
    store.set(f"gpu/{rank}", value)
    return [store.get(f"gpu/{other}").decode() for other in range(world_size)]


def interface_towards(peer: str) -> str | None:
    """Return the interface from which the kernel reaches a peer; None where it does not tell."""
    host, _, port = peer.rpartition(":")
    try:
        [(family, kind, _, _, address), *_] = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_DGRAM
        )
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # sends nothing
            own = probe.getsockname()[0]
    except OSError:
        return None
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address.partition("%")[0] == own for address in addresses):
            return name
    return None

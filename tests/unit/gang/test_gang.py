from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from farm.configuration.spec import BatchSplit, ServerPlacement
from farm.errors import InvalidSpec
from farm.gang.barriers import Limits, batch_weights, cluster_spec, commands_for
from farm.gang.lifecycle import AttemptState, RankPhase
from farm.gang.snapshots import AttemptView, RankView
from farm.measuring.control_run import ControlRun
from farm.messages.commands import RankAddress
from tests.factories import job_spec


def address(rank: int, host: str, *ports: int) -> RankAddress:
    return RankAddress(rank=rank, host=host, probe_port=1, trainer_ports=ports)


def test_addresses_are_listed_in_order_of_rank_whatever_order_they_came_in() -> None:
    cluster = cluster_spec(
        [address(1, "10.0.0.2", 21), address(0, "10.0.0.1", 20)], [("worker",), ("worker",)]
    )
    assert cluster == {"worker": ("10.0.0.1:20", "10.0.0.2:21")}


def test_a_rank_of_two_roles_has_an_address_for_each() -> None:
    cluster = cluster_spec(
        [address(0, "10.0.0.1", 20, 30), address(1, "10.0.0.2", 21)],
        [("worker", "ps"), ("worker",)],
    )
    assert cluster == {
        "worker": ("10.0.0.1:20", "10.0.0.2:21"),
        "ps": ("10.0.0.1:30",),
    }


def test_an_ipv6_address_is_bracketed() -> None:
    assert cluster_spec([address(0, "fd00::1", 20)], [("worker",)]) == {"worker": ("[fd00::1]:20",)}


def ranks_that_took(
    times_s: Sequence[float | None], *, core_counts: Sequence[int] = (1, 1, 1), **changes: Any
) -> AttemptView:
    """An attempt whose ranks needed so long for their control run, on so many cores."""
    return AttemptView(
        token=1,
        job_id=1,
        spec=job_spec(**{"world_size": 2, **changes}),
        state=AttemptState.SHAPING,
        state_age_s=0.0,
        ranks=tuple(
            RankView(
                rank=rank,
                agent_id=f"agent-{rank}",
                phase=RankPhase.SHAPED,
                address=address(rank, "10.0.0.1", 20),
                lease_s=10.0,
                command_age_s=0.0,
                control=None
                if time_s is None
                else ControlRun(control_s=time_s, past_s=(), core_count=core_counts[rank]),
            )
            for rank, time_s in enumerate(times_s)
        ),
        cancel_requested=False,
    )


def test_a_batch_is_shared_in_proportion_to_what_the_agents_can_do() -> None:
    by_speed = ranks_that_took([0.1, 0.3], batch_split=BatchSplit.BY_SPEED)
    assert batch_weights(by_speed) == pytest.approx((0.75, 0.25))


def test_servers_apart_take_no_part_of_a_batch() -> None:
    spec: dict[str, Any] = {"server_count": 1, "server_placement": ServerPlacement.APART}
    served = ranks_that_took([0.1, 0.1, 0.9], batch_split=BatchSplit.BY_SPEED, **spec)
    assert batch_weights(served) == pytest.approx((0.5, 0.5))


def test_the_ranks_of_an_agent_share_its_part_of_a_batch() -> None:
    several: dict[str, Any] = {"world_size": 4, "axes": {"ranks_per_agent": 2}}
    by_speed = ranks_that_took([0.1, 0.3], batch_split=BatchSplit.BY_SPEED, **several)
    assert batch_weights(by_speed) == pytest.approx((0.375, 0.375, 0.125, 0.125))


def test_gpus_count_where_all_ranks_have_one_and_else_the_cores() -> None:
    by_speed = ranks_that_took([0.1, 0.3], batch_split=BatchSplit.BY_SPEED)

    def on_gpus(*times_s: float | None) -> AttemptView:
        ranks = [
            dataclasses.replace(rank, device_control_s=time_s)
            for rank, time_s in zip(by_speed.ranks, times_s, strict=True)
        ]
        return dataclasses.replace(by_speed, ranks=tuple(ranks))

    assert batch_weights(on_gpus(0.04, 0.01)) == pytest.approx((0.2, 0.8))
    assert batch_weights(on_gpus(0.04, None)) == pytest.approx((0.75, 0.25))


def test_a_batch_is_shared_evenly_unless_it_is_asked_for_and_every_speed_is_known() -> None:
    assert batch_weights(ranks_that_took([0.1, 0.3])) is None
    unknown = ranks_that_took([0.1, None], batch_split=BatchSplit.BY_SPEED)
    assert batch_weights(unknown) is None


def test_twice_the_cores_are_twice_the_speed() -> None:
    wide = ranks_that_took([0.1, 0.1], core_counts=(4, 2), batch_split=BatchSplit.BY_SPEED)
    assert batch_weights(wide) == pytest.approx((2 / 3, 1 / 3))


def test_a_gang_of_another_width_than_its_job_is_never_started() -> None:
    narrow = dataclasses.replace(ranks_that_took([0.1]), state=AttemptState.PREPARING)
    with pytest.raises(InvalidSpec, match="ranks: expected 2, as the job asks for, got 1"):
        commands_for(narrow, AttemptState.PREPARING, [0], limits=Limits())

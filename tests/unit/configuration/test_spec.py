import dataclasses
import math
from typing import Any, cast

import pytest

from farm.configuration.catalogue import StrategyFacts
from farm.configuration.spec import (
    MAX_STEPS,
    BatchSplit,
    JobSpec,
    NetworkProfile,
    OperatorPlacement,
    ServerPlacement,
    TrainingPass,
)
from farm.errors import InvalidSpec
from farm.values.codec import from_json, to_json


def spec(**changes: Any) -> JobSpec:
    fields: dict[str, Any] = {
        "model": "mlp",
        "dataset": "digits",
        "strategy": "mwms_ring",
        "world_size": 2,
        "global_batch_size": 64,
        "steps": 10,
    }
    return JobSpec(**{**fields, **changes})


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no model": ({"model": ""}, "model: expected a name, got ''"),
    "no ranks": ({"world_size": 0}, "world_size: expected a number from 1 to 4096, got 0"),
    "servers below none": (
        {"server_count": -1},
        "server_count: expected a number from 0 to 4096, got -1",
    ),
    "fewer examples than replicas": (
        {"world_size": 65},
        "global_batch_size: expected at least one example for each of 65 replicas, got 64",
    ),
    "neither steps nor epochs": ({"steps": None}, "steps: expected either steps or epochs, got"),
    "steps and epochs": ({"epochs": 1}, "steps: expected either steps or epochs, got"),
    "no steps": ({"steps": 0}, "steps: expected a number from 1 to 10000000, got 0"),
    "no epochs": (
        {"steps": None, "epochs": 0},
        "epochs: expected a number from 1 to 10000000, got 0",
    ),
    "warm-up below none": (
        {"warmup_step_count": -1},
        f"warmup_step_count: expected a number from 0 to {MAX_STEPS}, got -1",
    ),
    "a seed too large": ({"seed": 2**31}, "seed: expected a number from 0 to 2147483647"),
    "no time": ({"time_limit_s": 0.0}, "time_limit_s: expected a number from 1.0 to 604800.0"),
    "not a time": ({"time_limit_s": math.nan}, "time_limit_s: expected a number from 1.0"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=list(REFUSED))
def test_a_job_out_of_range_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        spec(**changes)
    assert str(refused.value).startswith(message)


PROFILES: dict[str, tuple[dict[str, float], str]] = {
    "negative delay": ({"one_way_delay_s": -0.001}, "one_way_delay_s"),
    "delay of a minute": ({"one_way_delay_s": 60.0}, "one_way_delay_s"),
    "not a delay": ({"one_way_delay_s": math.nan}, "one_way_delay_s"),
    "negative jitter": ({"jitter_s": -1.0}, "jitter_s"),
    "every packet lost": ({"packet_loss_ratio": 1.0}, "packet_loss_ratio"),
    "no bandwidth": ({"bandwidth_bytes_per_s": 0.0}, "bandwidth_bytes_per_s"),
    "endless bandwidth": ({"bandwidth_bytes_per_s": math.inf}, "bandwidth_bytes_per_s"),
    "not a bandwidth": ({"bandwidth_bytes_per_s": math.nan}, "bandwidth_bytes_per_s"),
}


@pytest.mark.parametrize(("changes", "field"), PROFILES.values(), ids=list(PROFILES))
def test_an_impossible_network_is_refused(changes: dict[str, float], field: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        NetworkProfile(**changes)
    assert refused.value.field == field


def test_a_profile_that_asks_for_nothing_is_untouched() -> None:
    assert NetworkProfile().is_untouched
    assert not NetworkProfile(jitter_s=0.001).is_untouched


def test_the_first_replicas_get_the_examples_left_over() -> None:
    job = spec(world_size=3, global_batch_size=8)
    assert [job.per_replica_batch_size(i) for i in range(3)] == [3, 3, 2]


def test_a_partial_batch_is_shared_by_the_same_rule() -> None:
    job = spec(world_size=3, global_batch_size=8)
    assert [job.per_replica_batch_size(i, examples_count=2) for i in range(3)] == [1, 1, 0]


def test_repetitions_share_their_cell_but_not_their_content() -> None:
    first, second = spec(seed=1, repetition=0), spec(seed=2, repetition=1)
    assert first.cell_hash == second.cell_hash
    assert first.content_hash != second.content_hash


@pytest.mark.parametrize(
    "change",
    [
        {"world_size": 3},
        {"network": NetworkProfile(one_way_delay_s=0.01)},
        {"emulator": "tcp_proxy"},
        {"training_pass": TrainingPass.FORWARD},
        {"steps": 11},
        {"labels": {"zone": "1"}},
    ],
)
def test_another_configuration_is_another_cell(change: dict[str, Any]) -> None:
    assert spec(**change).cell_hash != spec().cell_hash


def test_the_hash_survives_the_wire() -> None:
    job = spec(network=NetworkProfile(one_way_delay_s=0.02), labels={"b": "2", "a": "1"})
    assert from_json(JobSpec, to_json(job)).content_hash == job.content_hash


def test_a_job_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec().world_size = 3  # type: ignore[misc] # that it is refused is the point


def test_the_identity_of_a_cell_stays_what_stored_jobs_have() -> None:
    assert spec().cell_hash == "cce13e440576e7e06285e6be0c5867804c5a37b623570150f4db83b87ff4f555"


@pytest.mark.parametrize(
    "change",
    [
        {"server_placement": ServerPlacement.APART},
        {"replicas_per_rank": 2},
        {"steps_between_averages": 2},
        {"placement": OperatorPlacement.HARD},
        {"batch_split": BatchSplit.BY_SPEED},
        {"interface": "infiniband"},
    ],
)
def test_each_setting_makes_another_cell_and_survives_the_way_to_an_agent(
    change: dict[str, Any],
) -> None:
    changed = spec(**change)
    assert changed.cell_hash != spec().cell_hash
    assert from_json(JobSpec, to_json(changed)) == changed


def test_collocated_servers_are_second_processes_of_the_first_ranks() -> None:
    served = spec(server_count=3)
    assert served.agent_count == 2
    assert served.roles == (("worker", "ps", "ps"), ("worker", "ps"))


def test_servers_apart_have_ranks_of_their_own_after_those_that_train() -> None:
    served = spec(server_count=2, server_placement=ServerPlacement.APART)
    assert served.agent_count == 4
    assert served.roles == (("worker",), ("worker",), ("ps",), ("ps",))


def test_ranks_of_one_agent_are_processes_of_it_and_servers_come_after() -> None:
    several = spec(world_size=4, axes={"ranks_per_agent": 2})
    assert (several.agent_count, several.training_agent_count) == (2, 2)
    assert several.roles == (("worker", "worker"),) * 2
    assert [several.rank_of(place, process) for place in (0, 1) for process in (0, 1)] == [
        *range(4)
    ]
    assert "ranks:2" in several.required_capabilities
    apart = spec(
        world_size=4,
        axes={"ranks_per_agent": 4},
        server_count=1,
        server_placement=ServerPlacement.APART,
    )
    assert apart.roles == (("worker",) * 4, ("ps",))
    assert apart.rank_of(1, 0) == 4
    beside = spec(world_size=4, axes={"ranks_per_agent": 2}, server_count=3)
    assert beside.roles == (("worker", "worker", "ps", "ps"), ("worker", "worker", "ps"))


@pytest.mark.parametrize(
    ("fields", "needed"),
    [
        ({}, set()),
        ({"axes": {"device": "cpu"}}, set()),
        ({"axes": {"device": "gpu"}}, {"gpus:1"}),
        ({"axes": {"device": "gpu"}, "replicas_per_rank": 4}, {"gpus:4"}),
        ({"axes": {"device": "gpu", "gpus_per_rank": 2}}, {"gpus:2"}),
        (
            {"axes": {"device": "gpu", "gpus_per_rank": 2, "ranks_per_agent": 2}},
            {"gpus:4", "ranks:2"},
        ),
    ],
)
def test_a_job_on_gpus_needs_agents_with_enough_of_them(
    fields: dict[str, Any], needed: set[str]
) -> None:
    assert spec(world_size=2, **fields).required_capabilities == needed


def test_ranks_that_do_not_fill_their_agents_are_refused() -> None:
    with pytest.raises(InvalidSpec, match="world_size: expected a multiple of ranks_per_agent, 2"):
        spec(world_size=3, axes={"ranks_per_agent": 2})


@pytest.mark.parametrize("each", [0, -2, 17, 1.5, "2", None, True])
def test_odd_numbers_of_ranks_an_agent_are_refused_in_messages_too(each: object) -> None:
    written = {**cast(dict[str, Any], to_json(spec())), "axes": {"ranks_per_agent": each}}
    with pytest.raises(InvalidSpec, match="ranks_per_agent: expected a whole number from 1 to 16"):
        from_json(JobSpec, written)


def test_replicas_within_ranks_need_an_example_each() -> None:
    assert spec(replicas_per_rank=32).replica_count == 64
    with pytest.raises(InvalidSpec, match="one example for each of 66 replicas"):
        spec(replicas_per_rank=33)


def test_a_job_asks_its_agents_for_a_network_by_name_and_for_an_emulator() -> None:
    assert spec().required_capabilities == frozenset()
    job = spec(interface="infiniband", network=NetworkProfile(one_way_delay_s=0.02))
    assert job.required_capabilities == {"network", "network:infiniband"}
    job = dataclasses.replace(job, emulator="tcp_proxy")
    assert job.required_capabilities == {"tcp_proxy", "network:infiniband"}


@pytest.mark.parametrize(("name", "framework"), [("ddp", "torch"), ("torch_mirror", "tensorflow")])
def test_a_strategys_name_tells_whether_it_is_of_pytorch(name: str, framework: str) -> None:
    with pytest.raises(
        ValueError, match=f"strategy {name}: expected a name that begins with torch_"
    ):
        StrategyFacts(name=name, summary="", framework=framework)

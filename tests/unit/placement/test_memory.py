"""What does not fit into any agent's memory is refused before anything is queued."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from farm import registry
from farm.configuration.model_size import Block, ModelSize
from farm.configuration.spec import JobSpec, TrainingPass
from farm.errors import InvalidSpec
from farm.gang.snapshots import LiveAgent
from farm.placement.memory import (
    FRAMEWORK_BYTES,
    least_agent_memory_bytes,
    least_memory_bytes,
    memory_problem,
)
from farm.submission import plan, within_memory
from farm.trainers.strategies.torch.fsdp import TorchFsdp
from farm.trainers.strategies.torch.local_sgd import TorchDiloco
from farm.trainers.strategies.torch.pipeline import TorchPipeline

SIZE = ModelSize(
    parameter_count=1_000_000,
    statistics_count=1000,
    forward_flop_per_example=1,
    activation_bytes_per_example=100,
)
DIGITS = registry.catalogue().datasets["digits"]
IMAGES_BYTES = (1437 + 360) * 64
JOB = JobSpec(
    model="m", dataset="digits", strategy="s", world_size=2, global_batch_size=101, steps=1
)
CASE: dict[str, Any] = {
    **{"model": ["vgg16", "mlp"], "dataset": "synthetic_cifar10", "strategy": "single"},
    **{"world_size": 1, "global_batch_size": 2048},
}
SWEEP = {"name": "n", "repetitions": 2, "case": [CASE]}


def agent(memory_bytes: int | None, **fields: Any) -> LiveAgent:
    return LiveAgent(
        **{
            **{"agent_id": "a", "machine_id": "a", "cpus": frozenset({0})},
            **{"is_idle": True, "is_occupying": False, "memory_bytes": memory_bytes, **fields},
        }
    )


def test_a_rank_needs_weights_gradients_momentum_and_its_share_of_the_batch() -> None:
    # the rank with most of 101 examples has 51
    fixed = FRAMEWORK_BYTES + IMAGES_BYTES
    assert least_memory_bytes(JOB, SIZE, DIGITS) == fixed + 3 * 4_000_000 + 4000 + 51 * 100


@pytest.mark.parametrize(
    ("changes", "training_count", "forward_count"),
    [
        ({}, 3, 2),
        # replicas may share weights and momentum, as those of central_storage do
        ({"replicas_per_rank": 2}, 4, 2),
        ({"replicas_per_rank": 4}, 6, 2),
        ({"server_count": 1}, 2, 1),  # the server has the momentum
        ({"strategy": "torch_ddp"}, 3, 1),  # the first update makes the momentum
    ],
)
def test_weights_momentum_and_gradients_count_where_every_such_rank_has_them(
    changes: dict[str, Any], training_count: int, forward_count: int
) -> None:
    fixed = FRAMEWORK_BYTES + IMAGES_BYTES + 4000
    job = dataclasses.replace(JOB, **changes)
    training = fixed + training_count * 4_000_000 + 51 * 100
    assert least_memory_bytes(job, SIZE, DIGITS) == training
    forward = dataclasses.replace(job, training_pass=TrainingPass.FORWARD)
    assert least_memory_bytes(forward, SIZE, DIGITS) == fixed + forward_count * 4_000_000


@pytest.mark.parametrize(
    ("axes", "activation_bytes"),
    [
        ({"gradient_accumulation_steps": 4}, 13 * 100),  # of 51 examples a part has 13
        ({"precision": "bfloat16"}, 51 * 50),
        ({"activation_checkpointing": "on"}, 0),
        ({"compile": "torch_compile"}, 0),
        ({"compile": "xla"}, 0),
        ({"gradient_accumulation_steps": 51, "precision": "bfloat16"}, 50),
        ({"optimizer": "adamw"}, 4_000_000 + 51 * 100),  # with a second momentum
    ],
)
def test_what_is_kept_of_a_batch_is_less_in_parts_and_in_fewer_bits(
    axes: dict[str, object], activation_bytes: int
) -> None:
    whole = least_memory_bytes(JOB, SIZE, DIGITS)
    job = dataclasses.replace(JOB, axes=axes)
    assert least_memory_bytes(job, SIZE, DIGITS) == whole - 51 * 100 + activation_bytes


@pytest.mark.parametrize(("world_size", "weight_bytes"), [(1, 6_000_000), (3, 3_500_000)])
def test_a_rank_of_a_sharded_model_needs_its_share_and_the_largest_unit(
    world_size: int, weight_bytes: int
) -> None:
    job = dataclasses.replace(JOB, world_size=world_size, global_batch_size=world_size)
    size = dataclasses.replace(
        SIZE, parameter_count=500_000, unit_bytes=(500_000, 1_500_000), statistics_count=0
    )
    needed = least_memory_bytes(job, size, DIGITS, strategy=TorchFsdp.facts)
    assert needed == FRAMEWORK_BYTES + IMAGES_BYTES + weight_bytes + 100


def test_a_model_too_large_for_each_machine_fits_onto_two() -> None:
    case = {**CASE, "model": "vit_b16", "global_batch_size": 2, "world_size": 2}
    names = ("torch_ddp", "torch_fsdp", "torch_pipeline")
    cases = [{**case, "strategy": name, "pipeline_microbatches": 2} for name in names]
    sweep = {**SWEEP, "repetitions": 1, "skip_impossible": True, "case": cases}
    jobs = within_memory(plan(sweep), [agent(1_300_000_000, capabilities={"torch"})]).expansion.jobs
    assert [job.strategy for job in jobs] == ["torch_fsdp", "torch_pipeline"]


def test_a_rank_of_a_pipeline_needs_its_stage_and_the_whole_batch_there() -> None:
    first = Block(
        weight_bytes=1_000_000,
        tables=frozenset({0}),
        flop_per_example=1,
        activation_bytes_per_example=70,
        output_bytes_per_example=8,
    )
    last = dataclasses.replace(first, weight_bytes=2_500_000, activation_bytes_per_example=30)
    size = dataclasses.replace(
        SIZE, parameter_count=1_000_000, blocks=(first, last), table_bytes=(500_000,)
    )
    needed = least_memory_bytes(JOB, size, DIGITS, strategy=TorchPipeline.facts)
    assert needed == FRAMEWORK_BYTES + IMAGES_BYTES + 3 * 3_000_000 + 101 * 30
    alone = dataclasses.replace(JOB, world_size=1)
    whole = least_memory_bytes(alone, size, DIGITS)
    assert least_memory_bytes(alone, size, DIGITS, strategy=TorchPipeline.facts) == whole


def test_the_stages_of_one_agent_are_not_all_as_large_as_the_largest() -> None:
    sizes = (1_000_000, 4_000_000, 2_000_000, 500_000)
    blocks = tuple(
        Block(
            weight_bytes=weight_bytes,
            tables=frozenset(),
            flop_per_example=1,
            activation_bytes_per_example=0,
            output_bytes_per_example=8,
        )
        for weight_bytes in sizes
    )
    size = dataclasses.replace(SIZE, parameter_count=1_875_000, blocks=blocks)
    job = dataclasses.replace(JOB, world_size=4, axes={"ranks_per_agent": 2})
    needed = least_agent_memory_bytes(job, size, DIGITS, strategy=TorchPipeline.facts)
    assert needed == 2 * (FRAMEWORK_BYTES + IMAGES_BYTES) + 3 * 5_000_000
    even = least_agent_memory_bytes(job, size, DIGITS)
    assert even == 2 * least_memory_bytes(job, size, DIGITS)


@pytest.mark.parametrize(
    ("options", "count"), [({}, 6), ({"outer_momentum": 0.0}, 5), ({"optimizer": "adamw"}, 7)]
)
def test_an_outer_optimizer_has_weights_gradients_and_momentum_of_its_own(
    options: dict[str, object], count: int
) -> None:
    job = dataclasses.replace(JOB, strategy="torch_diloco", axes=options)
    needed = least_memory_bytes(job, SIZE, DIGITS, strategy=TorchDiloco.facts)
    fixed = FRAMEWORK_BYTES + IMAGES_BYTES + 4000 + 51 * 100
    assert needed == fixed + count * 4_000_000


def test_the_tokens_of_a_data_set_take_12_bytes_each_with_their_labels() -> None:
    tokens = registry.catalogue().datasets["synthetic_tokens"]
    alone = least_memory_bytes(JOB, SIZE, DIGITS) - IMAGES_BYTES
    assert least_memory_bytes(JOB, SIZE, tokens) == alone + 10_100 * 128 * 12


def test_a_large_model_of_tokens_is_refused_where_no_agent_has_the_memory_for_it() -> None:
    job = dataclasses.replace(JOB, model="gpt2_small", dataset="synthetic_tokens", world_size=1)
    facts = registry.catalogue().datasets[job.dataset]
    size = registry.model_size(job.model, job.dataset)
    assert size is not None
    problem = memory_problem(job, size, facts, [agent(8_000_000_000)])
    assert problem is not None
    # Three times the 498 MB of weights, and 102 MB for each of 101 sequences.
    assert "with 101 examples a rank needs at least 12.2 GB" in problem.expected
    assert memory_problem(job, size, facts, [agent(16_000_000_000)]) is None


def test_what_no_agent_has_the_memory_for_is_named_with_what_it_needs() -> None:
    problem = memory_problem(JOB, SIZE, DIGITS, [agent(300_000_000), agent(400_000_000)])
    assert problem is not None
    assert problem.field == "model"
    assert "fit into 400 MB" in problem.expected
    assert "with 51 examples a rank needs at least 412 MB" in problem.expected
    assert memory_problem(JOB, SIZE, DIGITS, [agent(300_000_000), agent(500_000_000)]) is None


def test_only_agents_that_may_serve_the_job_count() -> None:
    labelled = dataclasses.replace(JOB, labels={"zone": "a"})
    inside = agent(300_000_000, labels=frozenset({("zone", "a")}))
    assert memory_problem(labelled, SIZE, DIGITS, [inside, agent(500_000_000)]) is not None
    assert memory_problem(labelled, SIZE, DIGITS, [agent(1)]) is None  # nobody may serve it


def test_nothing_is_refused_where_memory_is_not_known() -> None:
    assert memory_problem(JOB, SIZE, DIGITS, []) is None
    assert memory_problem(JOB, SIZE, DIGITS, [agent(1), agent(None)]) is None
    planned = plan(SWEEP)
    assert within_memory(planned, []) is planned


def test_a_sweep_with_a_model_too_large_for_the_farm_is_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"at least 3\.60 GB") as refused:
        within_memory(plan(SWEEP), [agent(2_000_000_000)])
    assert refused.value.value == "vgg16"
    assert len(within_memory(plan(SWEEP), [agent(4_000_000_000)]).expansion.jobs) == 4


def test_the_ranks_of_one_agent_have_to_fit_into_it_together() -> None:
    facts = registry.catalogue().datasets[CASE["dataset"]]
    ring = {"model": "mlp", "strategy": "mwms_ring", "world_size": 4, "global_batch_size": 64}
    sweep = {**SWEEP, "repetitions": 1, "case": [{**CASE, **ring, "ranks_per_agent": [1, 2, 4]}]}
    planned = plan({**sweep, "skip_impossible": True})
    size = registry.model_size("mlp", CASE["dataset"])
    assert size is not None
    needed = least_memory_bytes(planned.expansion.jobs[0], size, facts)
    able = {"capabilities": frozenset({"tensorflow", "ranks:2", "ranks:4"})}

    def kept(memory_bytes: int) -> set[int]:
        jobs = within_memory(planned, [agent(memory_bytes, **able)]).expansion.jobs
        return {job.ranks_per_agent for job in jobs}

    assert kept(4 * needed) == {1, 2, 4}
    assert kept(2 * needed) == {1, 2}
    assert kept(needed) == {1}


def test_or_left_out_where_the_sweep_says_so() -> None:
    planned = within_memory(plan({**SWEEP, "skip_impossible": True}), [agent(2_000_000_000)])
    assert [job.model for job in planned.expansion.jobs] == ["mlp", "mlp"]
    assert planned.expansion.max_job_count == 2
    (left_out,) = planned.expansion.impossible
    assert "model=vgg16" in left_out.cell
    assert "at least 3.60 GB" in left_out.reason
    with pytest.raises(InvalidSpec):
        within_memory(plan({**SWEEP, "skip_impossible": True}), [agent(1)])


def test_what_fits_with_a_server_is_kept_though_it_does_not_without() -> None:
    small = {**CASE, "model": "vgg16", "global_batch_size": 2}
    gang = {**small, "world_size": 2}
    cases = [small, {**gang, "strategy": "ps_sync", "server_count": 1}]
    cases.append({**gang, "strategy": "mwms_ring"})
    sweep = {**SWEEP, "repetitions": 1, "skip_impossible": True, "case": cases}
    jobs = plan(sweep).expansion.jobs
    sizes = [registry.model_size(job.model, job.dataset) for job in jobs]
    facts = registry.catalogue().datasets["synthetic_cifar10"]
    needed = {
        job.strategy: least_memory_bytes(job, size, facts)
        for job, size in zip(jobs, sizes, strict=True)
        if size is not None
    }
    assert needed["ps_sync"] < needed["mwms_ring"]
    kept = within_memory(plan(sweep), [agent(needed["ps_sync"])]).expansion.jobs
    assert [job.strategy for job in kept] == ["ps_sync"]


def test_a_script_is_never_too_large() -> None:
    script = {"script": "train.py", "world_size": 1, "global_batch_size": 64}
    sweep = {**SWEEP, "case": [script, CASE]}
    planned = plan(sweep)
    assert within_memory(planned, [agent(4_000_000_000)]).expansion == planned.expansion


def test_a_model_of_a_users_own_is_never_too_large() -> None:
    sweep = {**SWEEP, "case": [{**CASE, "model": "file:mine.py"}]}
    assert len(within_memory(plan(sweep), [agent(1)]).expansion.jobs) == 2

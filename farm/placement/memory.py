"""Least memory of a rank, and whether any agent has it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from farm.configuration.axes import spec_values
from farm.configuration.catalogue import PYTORCH_NAMES, DatasetFacts, StrategyFacts
from farm.configuration.model_size import FLOAT_BYTES, ModelSize, PipelineCut
from farm.configuration.spec import (
    ActivationCheckpointing,
    Compilation,
    ComputePrecision,
    JobSpec,
    Optimizer,
    TrainingPass,
)
from farm.errors import InvalidSpec
from farm.gang.snapshots import LiveAgent
from farm.placement.agent_index import satisfies
from farm.text.display import byte_count

# Resident in a trainer before it has built anything: 0.40 to 0.43 GB with TensorFlow 2.21 on CPU.
FRAMEWORK_BYTES = 400_000_000


def least_memory_bytes(
    job: JobSpec, size: ModelSize, dataset: DatasetFacts, *, strategy: StrategyFacts | None = None
) -> int:
    """Return a lower bound for the memory of a job's largest rank.

    The framework, the data set, weights and momentum and, unless only the forward pass is run,
    each replica's gradients and the activations of the rank's share of the batch. A trainer takes
    more, for what it computes and frees again; docs/models.md says how much.

    `strategy`: of the job. Where it shards weights, a rank has its share of weights, momentum and
    gradients, and the largest unit of weights as a whole; where it splits layers, a stage of them,
    and the activations of the whole batch there.
    """
    of_model = max(_of_parts(job, size, strategy), default=0)
    return _without_model_bytes(dataset) + of_model


def _without_model_bytes(dataset: DatasetFacts) -> int:
    examples_count = dataset.train_examples_count + dataset.test_examples_count
    return FRAMEWORK_BYTES + examples_count * dataset.bytes_per_example


def _of_parts(job: JobSpec, size: ModelSize, strategy: StrategyFacts | None) -> Iterator[int]:
    """Yield what each rank's part of a model takes; once where all ranks have the same."""
    copies = _copies_of_weights(job, strategy)
    if strategy is not None and strategy.splits_layers and job.world_size > 1:
        # Which stage has statistics is not known.
        by = PipelineCut(spec_values(job)["pipeline_cut"])
        for stage in size.stages(job.world_size, by=by) or ():
            weight_bytes = stage.weight_bytes + sum(size.table_bytes[t] for t in stage.tables)
            activation_bytes = share_of(job, strategy) * stage.activation_bytes_per_example
            yield copies * weight_bytes + _kept_bytes(job, activation_bytes)
        return
    weight_bytes = copies * size.gradient_bytes
    if strategy is not None and strategy.shards_weights and job.world_size > 1:
        weight_bytes = weight_bytes // job.world_size + max(size.unit_bytes, default=0)
    parts = cast(int, spec_values(job)["gradient_accumulation_steps"])
    activation_bytes = -(-share_of(job, strategy) // parts) * size.activation_bytes_per_example
    yield weight_bytes + size.statistics_count * FLOAT_BYTES + _kept_bytes(job, activation_bytes)


def least_agent_memory_bytes(
    job: JobSpec, size: ModelSize, dataset: DatasetFacts, *, strategy: StrategyFacts | None = None
) -> int:
    """Return a lower bound for the memory of one agent's ranks, the largest ones."""
    each = job.ranks_per_agent
    parts = list(_of_parts(job, size, strategy))
    if len(parts) == 1:
        parts *= each
    of_agents = (sum(parts[first : first + each]) for first in range(0, len(parts), each))
    return each * _without_model_bytes(dataset) + max(of_agents, default=0)


def memory_problem(
    job: JobSpec,
    size: ModelSize,
    dataset: DatasetFacts,
    agents: Iterable[LiveAgent],
    *,
    strategy: StrategyFacts | None = None,
) -> InvalidSpec | None:
    """Return an error if the job is too large for all agents that may serve it, or None.

    None as well where nobody may serve it, which is another matter, or one does not say what it
    has. `strategy`: see `least_memory_bytes`.
    """
    requirement = (
        job.required_capabilities,
        frozenset(job.labels.items()),
        frozenset[str | None](),
    )
    memories = [agent.memory_bytes for agent in agents if satisfies(agent, requirement)]
    known = [memory for memory in memories if memory is not None]
    needed = least_agent_memory_bytes(job, size, dataset, strategy=strategy)
    if not known or len(known) < len(memories) or needed <= max(known):
        return None
    of_each = "" if job.ranks_per_agent == 1 else f", and {job.ranks_per_agent} are on an agent"
    expected = (
        f"a model and a batch that fit into {byte_count(max(known))}, the most that"
        f" an agent has; with {share_of(job, strategy)} examples a rank needs at least"
        f" {byte_count(needed // job.ranks_per_agent)}{of_each}"
    )
    return InvalidSpec("model", job.model, expected)


def share_of(job: JobSpec, strategy: StrategyFacts | None) -> int:
    """Return the examples of a step that the rank with most of them has, if all are as fast."""
    if strategy is not None and strategy.splits_layers:
        return job.global_batch_size
    return -(-job.global_batch_size // job.world_size)


def _kept_bytes(job: JobSpec, activation_bytes: int) -> int:
    """Return what is kept of these float32 activations until their gradients are there."""
    options = spec_values(job)
    if (
        # In a forward pass an output is freed as soon as the next layer has read it.
        job.training_pass is TrainingPass.FORWARD
        # What is computed again depends on the layers, or on the compiler.
        or options["activation_checkpointing"] == ActivationCheckpointing.ON.value
        or options["compile"] != Compilation.NONE.value
    ):
        return 0
    # Some layers keep float32 all the same, so that half is the least.
    is_half = options["precision"] == ComputePrecision.BFLOAT16.value
    return activation_bytes // 2 if is_half else activation_bytes


def _copies_of_weights(job: JobSpec, strategy: StrategyFacts | None) -> int:
    """Return how many times the weights' size a rank holds: weights, momentum, gradients.

    Replicas may share weights and momentum, but each computes gradients of its own. AdamW has two
    momenta. An outer optimizer has weights, gradients and momentum of its own.
    """
    options = spec_values(job)
    is_forward = job.training_pass is TrainingPass.FORWARD
    # With servers the momentum is theirs; PyTorch makes one in its first update.
    is_without_momentum = job.server_count > 0 or (
        is_forward and job.strategy.startswith(PYTORCH_NAMES)
    )
    momentum_count = 2 if options["optimizer"] == Optimizer.ADAMW.value else 1
    gradient_count = 0 if is_forward else job.replicas_per_rank
    outer_count = 0
    if strategy is not None and "outer_momentum" in strategy.axes:
        outer_count = 1 if is_forward else 2 + bool(options["outer_momentum"])
    return 1 + (0 if is_without_momentum else momentum_count) + gradient_count + outer_count

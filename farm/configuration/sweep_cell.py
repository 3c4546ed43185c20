"""One configuration of a sweep, and the reason if it cannot run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from farm.configuration.axes import AXES, AXES_BY_FIELD, AXES_BY_NAME, job_fields, values_of
from farm.configuration.axis import Value
from farm.configuration.catalogue import Catalogue, DatasetFacts, ModelFacts, StrategyFacts
from farm.configuration.learning_rate import MAX_LEARNING_RATE, scaled_learning_rate
from farm.configuration.model_files import file_of
from farm.configuration.own_data import find_dataset, own_data
from farm.configuration.scripts import PER_RANK, names_per_rank_batch, script_of
from farm.configuration.spec import (
    LEAST_BANDWIDTH_BYTES_PER_S,
    MAX_LAB_BANDWIDTH_BYTES_PER_S,
    MOST_STEPS_BY_EPOCHS,
    MOST_STEPS_READ,
    TCP_PROXY,
    VDE_LINK,
    ActivationCheckpointing,
    Compilation,
    Device,
    InputPipeline,
    NetworkProfile,
    OperatorPlacement,
)
from farm.errors import InvalidSpec
from farm.text.display import exact_milliseconds
from farm.values.fields import did_you_mean

MAX_SERVERS = 1024
_BANDWIDTH = AXES_BY_NAME["bandwidth_mbit_per_s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One point of a case, after the axes that do not apply to it were dropped.

    `values`: of every axis but those of a network profile, by the fields of a job.
    """

    case: int
    values: Mapping[str, Any]
    network: NetworkProfile | None
    emulator: str | None

    def __getitem__(self, field: str) -> Any:
        return self.values[field]

    def __str__(self) -> str:
        network = None if self.network is None else dataclasses.asdict(self.network)
        values = values_of({**job_fields(self.values), "network": network})
        return f"case[{self.case}]: {shown(values)}"


def shown(values: Mapping[str, Value]) -> str:
    """Write a configuration in the words of a sweep file, without usual values.

    `values`: of every axis, by its field.
    """
    return " ".join(
        f"{axis.name}={axis.address(values[axis.field])}"
        for axis in AXES
        if not axis.is_left_out(values[axis.field])
    )


def read_shown(line: str) -> tuple[dict[str, str], str]:
    """Read the line that a sweep keeps of a cell that it left out: what `shown` wrote, and why."""
    begin = line.partition(": ")[2] if line.startswith("case[") else line
    written, _, reason = begin.partition(": ")
    words = (word.partition("=") for word in written.split(" "))
    return {name: value for name, sign, value in words if sign}, reason


def problem_of(cell: Cell, catalogue: Catalogue, *, repeat: bool) -> InvalidSpec | None:
    """Return why a cell cannot run, or None if it can."""
    problem = _problem_of_model(cell, catalogue)
    if problem is not None:
        return problem
    if cell["device"] is Device.GPU and cell["placement"] is OperatorPlacement.HARD:
        expected = "auto or cpu with placement 'hard', which is all on the CPU"
        return InvalidSpec("device", Device.GPU.value, expected)
    launcher = catalogue.launchers.get(cell["strategy"])
    if (launcher is None) is not (script_of(cell["model"]) is None):
        return InvalidSpec("strategy", cell["strategy"], "a launcher for a script, and no other")
    if launcher is not None:
        return (
            _problem_of_width(cell, launcher)
            or _problem_of_network(cell, launcher)
            or _problem_of_script(cell)
        )
    problem = _problem_of_name(cell, catalogue)
    if problem is not None:
        return problem
    dataset = find_dataset(cell["dataset"], catalogue.datasets)
    assert dataset is not None
    problem = _problem_of_examples(cell, catalogue, dataset)
    if problem is not None:
        return problem
    facts = catalogue.strategies[cell["strategy"]]
    problem = (
        _problem_of_strategy(cell, facts, catalogue)
        or _problem_of_width(cell, facts)
        or _problem_of_network(cell, facts)
    )
    if problem is not None:
        return problem
    replica_count = cell["world_size"] * cell["replicas_per_rank"]
    if cell["global_batch_size"] < replica_count:
        expected = f"at least {replica_count}, one example for each replica"
        return InvalidSpec("global_batch_size", cell["global_batch_size"], expected)
    problem = _problem_of_stages(cell, facts, catalogue)
    if problem is not None:
        return problem
    fewest = cell["global_batch_size"] // replica_count
    if cell["gradient_accumulation_steps"] > fewest:
        expected = f"at most {fewest}, the examples of a rank in batch {cell['global_batch_size']}"
        step_count = cell["gradient_accumulation_steps"]
        return InvalidSpec("gradient_accumulation_steps", step_count, expected)
    problem = _problem_of_rate(cell) or _problem_of_layers(cell)
    if problem is not None:
        return problem
    examples_count = dataset.train_examples_count
    if cell["global_batch_size"] > examples_count and not repeat:
        return InvalidSpec(
            "global_batch_size",
            cell["global_batch_size"],
            f"at most {examples_count}, the examples of '{cell['dataset']}', without repeat = true",
        )
    return None


def _problem_of_strategy(
    cell: Cell, facts: StrategyFacts, catalogue: Catalogue
) -> InvalidSpec | None:
    """Say what the strategy cannot do: train this model, be compiled, or read by a loader."""
    if facts.divides_model and cell["model"] not in catalogue.models:
        expected = f"a model of the farm's own for strategy '{facts.name}'"
        return InvalidSpec("model", cell["model"], expected)
    if cell["compile"] is Compilation.XLA and not facts.compiles_by_xla:
        expected = f"'none' for strategy '{facts.name}', which XLA does not compile"
        return InvalidSpec("compile", Compilation.XLA.value, expected)
    if cell["input_pipeline"] is InputPipeline.LOADER and not facts.has_loader:
        expected = f"'memory' for strategy '{facts.name}', which has no loader"
        return InvalidSpec("input_pipeline", InputPipeline.LOADER.value, expected)
    return None


def _problem_of_stages(
    cell: Cell, facts: StrategyFacts, catalogue: Catalogue
) -> InvalidSpec | None:
    """Say that a model cannot be cut into stages, or a batch into microbatches."""
    world_size, batch_size = cell["world_size"], cell["global_batch_size"]
    if not facts.splits_layers or world_size == 1:
        return None
    size = catalogue.size_of(cell["model"], cell["dataset"])
    if size is not None and len(size.blocks) < world_size:
        expected = f"at most {len(size.blocks)}, the blocks into which '{cell['model']}' can be cut"
        return InvalidSpec("world_size", world_size, f"{expected}, for strategy '{facts.name}'")
    count = cell["pipeline_microbatches"]
    if batch_size % count:
        expected = f"a multiple of pipeline_microbatches, {count}, for strategy '{facts.name}'"
        return InvalidSpec("global_batch_size", batch_size, expected)
    if size is not None and size.statistics_count and batch_size < 2 * count:
        expected = f"at most {batch_size // 2}: batch normalisation needs two examples in each"
        return InvalidSpec("pipeline_microbatches", count, expected)
    return None


def _problem_of_rate(cell: Cell) -> InvalidSpec | None:
    """Say that the rate would be too high once it follows the batch."""
    scaling, batch_size = cell["lr_scaling"], cell["global_batch_size"]
    factor = scaled_learning_rate(1.0, scaling, global_batch_size=batch_size)
    if cell["learning_rate"] * factor <= MAX_LEARNING_RATE:
        return None
    expected = (
        f"at most {MAX_LEARNING_RATE / factor:.9g} with lr_scaling '{scaling.value}' at batch"
        f" {batch_size}, which makes it {factor:.9g} times as high"
    )
    return InvalidSpec("learning_rate", cell["learning_rate"], expected)


def _problem_of_name(cell: Cell, catalogue: Catalogue) -> InvalidSpec | None:
    """Say that there is no such data set or strategy."""
    dataset, strategy = cell["dataset"], cell["strategy"]
    try:
        is_own = own_data(dataset) is not None
    except InvalidSpec as error:
        return error
    if not is_own and dataset not in catalogue.datasets:
        return _unknown("dataset", dataset, catalogue.datasets)
    if strategy not in catalogue.strategies:
        return _unknown("strategy", strategy, catalogue.strategies)
    return None


def problem_of_steps(
    cell: Cell, catalogue: Catalogue, *, steps: int | None, epochs: int | None
) -> InvalidSpec | None:
    """Return an error if a cell has too few steps to average its weights, or too many.

    `steps`, `epochs`: timed ones of its job, one of them; neither where a script runs to its end.
    """
    every = cell["steps_between_averages"]
    dataset = find_dataset(cell["dataset"], catalogue.datasets)
    if epochs is not None and dataset is not None:
        steps = epochs * math.ceil(dataset.train_examples_count / cell["global_batch_size"])
    if steps is None:
        return None
    if every > steps:
        expected = f"at most {steps}, the timed steps of the job, or ranks would not average"
        return InvalidSpec("steps_between_averages", every, expected)
    facts = catalogue.strategy(cell["strategy"])
    clock_count = 1 if facts is None or facts.is_synchronous else cell["world_size"]
    most = MOST_STEPS_READ // clock_count
    if epochs is not None:
        most = min(most, MOST_STEPS_BY_EPOCHS)
    if steps <= most:
        return None
    expected = f"at most {most} timed steps"
    if clock_count > 1:
        expected += f", since each of {clock_count} ranks is timed"
    if epochs is None:
        return InvalidSpec("steps", steps, expected)
    return InvalidSpec("epochs", epochs, f"{expected}, of which these have {steps}")


def _problem_of_layers(cell: Cell) -> InvalidSpec | None:
    """Say what needs the layers of a registered model, or does not go together."""
    checkpointing, compiled = cell["activation_checkpointing"], cell["compile"]
    is_checkpointed = checkpointing is ActivationCheckpointing.ON
    is_compiled = compiled is Compilation.TORCH_COMPILE
    if is_checkpointed and is_compiled:
        # It decides by itself what to compute again.
        expected = f"'off' with compile '{compiled.value}'"
        return InvalidSpec("activation_checkpointing", checkpointing.value, expected)
    if file_of(cell["model"]) is None:
        return None
    if is_checkpointed:
        expected = "'off' for a model of your own, whose blocks are not known"
        return InvalidSpec("activation_checkpointing", checkpointing.value, expected)
    if is_compiled:
        expected = "'none' for a model of your own, whose layers are Keras's"
        return InvalidSpec("compile", compiled.value, expected)
    return None


def _unknown(field: str, name: str, entries: Mapping[str, object]) -> InvalidSpec:
    return InvalidSpec(field, name, f"one of {', '.join(entries)}{did_you_mean(name, entries)}")


def _problem_of_script(cell: Cell) -> InvalidSpec | None:
    """Say that the examples of a step cannot be shared evenly, as the command line has it."""
    batch_size, world_size = cell["global_batch_size"], cell["world_size"]
    if batch_size < world_size:
        expected = f"at least {world_size}, one example for each rank"
        return InvalidSpec("global_batch_size", batch_size, expected)
    if names_per_rank_batch(cell["model"]) and batch_size % world_size:
        expected = f"a multiple of world_size {world_size}, since args have {{{PER_RANK}}}"
        return InvalidSpec("global_batch_size", batch_size, expected)
    return None


def _problem_of_model(cell: Cell, catalogue: Catalogue) -> InvalidSpec | None:
    if script_of(cell["model"]) is not None:
        return None
    try:
        is_file = file_of(cell["model"]) is not None
    except InvalidSpec as error:
        return error
    return (
        None
        if is_file or cell["model"] in catalogue.models
        else _unknown("model", cell["model"], catalogue.models)
    )


def _problem_of_examples(
    cell: Cell, catalogue: Catalogue, dataset: DatasetFacts
) -> InvalidSpec | None:
    """Say that a model cannot take a data set's examples; a user's own takes images of any size."""
    own = ModelFacts(name=cell["model"], summary="")
    needed = catalogue.models.get(cell["model"], own).needed_of(dataset)
    return None if needed is None else InvalidSpec("dataset", cell["dataset"], needed)


def _problem_of_width(cell: Cell, facts: StrategyFacts) -> InvalidSpec | None:
    low, high = facts.min_world_size, facts.max_world_size
    if cell["world_size"] < low or (high is not None and cell["world_size"] > high):
        if high is None:
            width = f"at least {low}"
        else:
            width = f"{low}" if low == high else f"{low} to {high}"
        return InvalidSpec("world_size", cell["world_size"], f"{width} for strategy '{facts.name}'")
    ranks_per_agent = cell["ranks_per_agent"]
    if cell["world_size"] % ranks_per_agent:
        expected = f"a multiple of ranks_per_agent, {ranks_per_agent}"
        return InvalidSpec("world_size", cell["world_size"], expected)
    if facts.uses_servers and cell["server_count"] < 1:
        expected = f"at least 1 for strategy '{facts.name}'"
        return InvalidSpec("server_count", cell["server_count"], expected)
    if cell["server_count"] > MAX_SERVERS:
        expected = f"at most {MAX_SERVERS}"
        return InvalidSpec("server_count", cell["server_count"], expected)
    return None


def _problem_of_network(cell: Cell, facts: StrategyFacts) -> InvalidSpec | None:
    """Say what no emulator can do, or not the one that is asked for."""
    network = cell.network
    if network is None:
        return None
    if network.jitter_s > network.one_way_delay_s:
        # A packet cannot arrive before it was sent, so the mean would not be what was asked for.
        expected = f"at most one_way_delay_ms, {exact_milliseconds(network.one_way_delay_s)}"
        return _refusal("jitter_ms", network, expected)
    bandwidth = network.bandwidth_bytes_per_s
    if bandwidth is not None and bandwidth < LEAST_BANDWIDTH_BYTES_PER_S:
        expected = f"at least {_BANDWIDTH.address(LEAST_BANDWIDTH_BYTES_PER_S)}, a packet a second"
        return _refusal("bandwidth_mbit_per_s", network, expected)
    if beyond := network.beyond(cell.emulator):
        axis = AXES_BY_FIELD[beyond[0]]
        by = f"the emulator '{cell.emulator}'" if cell.emulator else "any exact emulator"
        return _refusal(axis.name, network, f"{axis.address(axis.absent)} for {by}")
    most = MAX_LAB_BANDWIDTH_BYTES_PER_S
    if cell.emulator == VDE_LINK and bandwidth is not None and bandwidth > most:
        expected = f"at most {_BANDWIDTH.address(most)} for the emulator '{VDE_LINK}'"
        return _refusal("bandwidth_mbit_per_s", network, expected)
    if cell.emulator != TCP_PROXY:
        return None
    if facts.chooses_ports:
        expected = f"one that shapes every port, for strategy '{facts.name}'"
        return InvalidSpec("emulator", cell.emulator, expected)
    if cell["server_count"]:
        # Servers and ranks of one machine would reach each other without its proxy.
        expected = f"0 for the emulator '{TCP_PROXY}'"
        return InvalidSpec("server_count", cell["server_count"], expected)
    return None


def _refusal(name: str, network: NetworkProfile, expected: str) -> InvalidSpec:
    axis = AXES_BY_NAME[name]
    return InvalidSpec(name, axis.value_at(axis.address(getattr(network, axis.field))), expected)

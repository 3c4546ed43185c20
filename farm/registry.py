"""Looks up models, data sets and strategies by name.

Pure descriptions: importing this loads no framework.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

from farm.configuration.axis import Value
from farm.configuration.catalogue import Catalogue, DatasetFacts, GangShape
from farm.configuration.model_files import file_of
from farm.configuration.model_size import Block, ModelSize, PipelineCut
from farm.configuration.own_data import find_dataset, own_data
from farm.configuration.scripts import LAUNCHERS
from farm.errors import InvalidSpec
from farm.trainers.all_reduce import ring_all_reduce
from farm.trainers.contracts import Dataset, Described, Model, Strategy
from farm.trainers.datasets import DATASETS
from farm.trainers.datasets.own.own_dataset import OwnDataset
from farm.trainers.model_files.model_file import read_model_file
from farm.trainers.models import MODELS
from farm.trainers.script.launchers import SCRIPT_LAUNCHERS, ScriptLauncher
from farm.trainers.strategies import STRATEGIES

_Entry = TypeVar("_Entry", Model, Dataset, Strategy)
_OF_STAGES = frozenset(s.facts.name for s in STRATEGIES if s.facts.splits_layers)


def catalogue() -> Catalogue:
    """Return the facts of every registered model, data set and strategy, by name."""
    return Catalogue(
        models={entry.facts.name: entry.facts for entry in MODELS},
        datasets={entry.facts.name: entry.facts for entry in DATASETS},
        strategies={entry.facts.name: entry.facts for entry in STRATEGIES},
        launchers={facts.name: facts for facts in LAUNCHERS.values()},
        size_of=model_size,
    )


def model(name: str, *, file: Path | None = None) -> Model:
    """Return the model of that name; `file`: where this machine has what `file:...` names.

    Raises:
        InvalidSpec: there is none; it says which there are.
        TrainerFailed: there is no file, or none that may be run.
    """
    file_name = file_of(name)
    if file_name is not None:
        return read_model_file(file_name, file)
    return _find("model", name, MODELS)


@functools.lru_cache(maxsize=1000)
def model_size(name: str, dataset_name: str) -> ModelSize | None:
    """Return how large a model is for a data set's examples; None where that is not known here.

    So it is of users' own models, and of names that are not registered, as imported ones may be.
    """
    architecture = next((m for m in MODELS if m.facts.name == name), None)
    facts = dataset_facts(dataset_name)
    if architecture is None or facts is None:
        return None
    if architecture.facts.needed_of(facts) is not None:
        return None
    return architecture.describe(facts.example_shape, facts.class_count)


def dataset_facts(name: str) -> DatasetFacts | None:
    """Return what is known of a data set; None of a script's own, and of imported names."""
    return find_dataset(name, {entry.facts.name: entry.facts for entry in DATASETS})


def gang_shape(values: Mapping[str, Value]) -> GangShape:
    """Return what decides how much a configuration's strategy sends.

    values: of every axis, by its field. A model whose size is not known here counts as one unit.
    """
    model_name, dataset_name = str(values["model"]), str(values["dataset"])
    size = model_size(model_name, dataset_name)
    counts = (
        *("world_size", "server_count", "steps_between_averages"),
        *("gradient_accumulation_steps", "pipeline_microbatches"),
    )
    shape = GangShape(
        **{name: int(cast(int, values[name])) for name in counts},
        unit_count=len(size.unit_bytes) if size else 1,
    )
    stages = None
    if size is not None and values["strategy"] in _OF_STAGES:
        by = PipelineCut(values["pipeline_cut"])
        stages = _stages(model_name, dataset_name, shape.world_size, by)
    if size is None or stages is None:
        return shape
    handed_on = sum(stage.output_bytes_per_example for stage in stages)
    readers = [sum(table in s.tables for s in stages) for table in range(len(size.table_bytes))]
    sums = [
        (count, ring_all_reduce(count, table_bytes))
        for count, table_bytes in zip(readers, size.table_bytes, strict=True)
    ]
    return dataclasses.replace(
        shape,
        handed_on_bytes=float(cast(int, values["global_batch_size"]) * handed_on),
        table_messages=sum(count * of_one.messages for count, of_one in sums),
        table_bytes=sum(count * of_one.bytes for count, of_one in sums),
    )


@functools.lru_cache(maxsize=1000)
def _stages(
    name: str, dataset_name: str, stage_count: int, by: PipelineCut
) -> tuple[Block, ...] | None:
    size = model_size(name, dataset_name)
    return None if size is None else size.stages(stage_count, by=by)


def dataset(name: str) -> Dataset:
    """Return the data set of that name; it may be a user's own.

    Raises:
        InvalidSpec: there is none; it says which there are.
    """
    own = own_data(name)
    return _find("dataset", name, DATASETS) if own is None else OwnDataset(own)


def strategy_or_launcher(name: str) -> Described:
    """Return the strategy or the launcher of that name.

    Raises:
        InvalidSpec: there is none; it names the known strategies.
    """
    return launcher(name) or strategy(name)


def launcher(name: str) -> ScriptLauncher | None:
    """Return what starts scripts under that strategy; None where it trains the farm's models."""
    return next((entry for entry in SCRIPT_LAUNCHERS if entry.facts.name == name), None)


def strategy(name: str) -> Strategy:
    """Return the strategy of that name. Raises InvalidSpec, which names the known ones."""
    return _find("strategy", name, STRATEGIES)


def _find(field: str, name: str, entries: Sequence[_Entry]) -> _Entry:
    for entry in entries:
        if entry.facts.name == name:
            return entry
    raise InvalidSpec(field, name, f"one of {', '.join(e.facts.name for e in entries)}")

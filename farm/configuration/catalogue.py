"""Facts about models, data sets and strategies that need no framework."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from farm.configuration.model_size import ModelSize

# The framework of strategies whose names begin so, and the capability of agents that have it. A
# job tells only its strategy's name.
TORCH, PYTORCH_NAMES = "torch", "torch_"
# Axes that several strategies have, by name, for `StrategyFacts.axes`.
GANG_AXES = ("ranks_per_agent", "batch_split")
SERVER_AXES = ("server_count", "server_placement")
PYTORCH_AXES = ("optimizer", "learning_rate", "lr_scaling", "lr_warmup_steps", "precision")
WHOLE_MODEL_AXES = ("gradient_accumulation_steps", "activation_checkpointing", "compile")
# Those that mean something for one rank that trains by itself.
TRAINING_AXES = (*PYTORCH_AXES, *WHOLE_MODEL_AXES)


class ExampleKind(Enum):
    """The kind of examples."""

    IMAGES = "images"
    TOKENS = "tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFacts:
    """`example_shape`: height, width and channels of an image, the length of a token sequence.

    `class_count`: of tokens, how many different ones there are.
    """

    name: str
    summary: str
    train_examples_count: int
    test_examples_count: int
    example_shape: tuple[int, ...]
    class_count: int
    is_synthetic: bool
    kind: ExampleKind = ExampleKind.IMAGES

    @property
    def bytes_per_example(self) -> int:
        """The memory of an example.

        A byte for each number of an image, whose label is next to nothing; 4 for each token and 8
        for its label.
        """
        return math.prod(self.example_shape) * (1 if self.kind is ExampleKind.IMAGES else 12)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """`smallest_side`: of the images, in pixels, below which its layers have nothing left.

    `restores_tokens`: it is trained to restore tokens that are hidden from it, and not to predict
    the next ones. `vocabulary_size`: how many different tokens it knows; None: those of the data
    set. `longest_sequence`: None: that of the data set. How large a model is depends on the shape
    of the examples: see `farm.registry.model_size`.
    """

    name: str
    summary: str
    takes: ExampleKind = ExampleKind.IMAGES
    smallest_side: int = 1
    restores_tokens: bool = False
    vocabulary_size: int | None = None
    longest_sequence: int | None = None

    def needed_of(self, dataset: DatasetFacts) -> str | None:
        """Return which examples it needs, if those of the data set do not fit."""
        if self.takes is not dataset.kind:
            return f"{self.takes.value} for model '{self.name}', not {dataset.kind.value}"
        if self.takes is ExampleKind.TOKENS:
            for limit, has, of_what in (
                (self.longest_sequence, dataset.example_shape[0], "tokens in a sequence"),
                # One token more stands for hidden ones.
                (
                    self.vocabulary_size,
                    dataset.class_count + self.restores_tokens,
                    "different tokens",
                ),
            ):
                if limit is not None and has > limit:
                    return f"at most {limit} {of_what} for model '{self.name}', not {has}"
            return None
        side = self.smallest_side
        height, width, _ = dataset.example_shape
        if min(height, width) < side:
            return (
                f"images of at least {side}x{side} for model '{self.name}', not of {height}x{width}"
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class GangShape:
    """What of a configuration decides how much a strategy sends.

    `unit_count`: see `unit_bytes` of `farm.configuration.model_size`. `handed_on_bytes`: what all
    stages of a pipeline hand on in a step; `table_messages` and `table_bytes`: of all ranks, to sum
    the gradients of tables that several stages read.
    """

    world_size: int
    server_count: int = 0
    steps_between_averages: int = 1
    gradient_accumulation_steps: int = 1
    unit_count: int = 1
    pipeline_microbatches: int = 1
    handed_on_bytes: float = 0.0
    table_messages: float = 0.0
    table_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Messages and bytes that a rank sends per step on the critical path; a mean if steps differ.

    `bytes` is also the least that the strategy needs, on average over the ranks and over `period`
    steps in a row: a count below it has missed something. `is_by_examples`: a step of a batch that
    is not full sends less.
    """

    messages: float
    bytes: float
    period: int = 1
    is_by_examples: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyFacts:
    """`max_world_size` None: no limit. A strategy of one rank uses no network at all.

    `axes`: names of those that it has beside the axes of every strategy.
    """

    name: str
    summary: str
    framework: str
    min_world_size: int = 1
    max_world_size: int | None = None
    axes: tuple[str, ...] = ()
    is_synchronous: bool = True
    shards_weights: bool = False  # each rank holds its share
    splits_layers: bool = False  # each rank holds some of them, and gets the whole batch
    compiles_by_xla: bool = False  # the passes through the model, which are of TensorFlow
    has_loader: bool = False  # loads batches ahead of its steps, or can
    chooses_ports: bool = False  # by itself, beside those that an emulator may stand in for

    def __post_init__(self) -> None:
        if (self.framework == TORCH) is not self.name.startswith(PYTORCH_NAMES):
            expected = f"a name that begins with {PYTORCH_NAMES} for PyTorch, and for no other"
            raise ValueError(f"strategy {self.name}: expected {expected}")

    @property
    def uses_servers(self) -> bool:
        """Whether it has parameter servers beside the ranks that train."""
        return "server_count" in self.axes

    @property
    def divides_model(self) -> bool:
        """Whether no rank has the whole model; so it is of the farm's own models alone."""
        return self.shards_weights or self.splits_layers

    @property
    def uses_network(self) -> bool:
        """Whether delay and bandwidth between ranks are axes of it."""
        return self.max_world_size != 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Everything that a sweep may name. `launchers`: of scripts, by the strategy they count as.

    `size_of`: how large a model is for a data set's examples, by their names; None: not known.
    """

    models: Mapping[str, ModelFacts]
    datasets: Mapping[str, DatasetFacts]
    strategies: Mapping[str, StrategyFacts]
    launchers: Mapping[str, StrategyFacts] = field(default_factory=dict)
    size_of: Callable[[str, str], ModelSize | None] = lambda model, dataset: None

    def strategy(self, name: str | None) -> StrategyFacts | None:
        """Return the facts of a strategy or a launcher; None: there is none."""
        return self.strategies.get(name or "") or self.launchers.get(name or "")

"""The interfaces of models, data sets, strategies and engines.

A model, data set or strategy is one file with a pure description (`facts`) and one function, inside
which the framework is imported. To add one, write the file and add its line to the list in the
`__init__` of its package. The contract tests run for every entry of those lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from farm.configuration.catalogue import DatasetFacts, GangShape, ModelFacts, StrategyFacts, Traffic
from farm.configuration.model_size import ModelSize
from farm.configuration.spec import JobSpec
from farm.messages.trainer_lines import DatasetSource, Exchange, GoLine

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    InputArray: TypeAlias = NDArray[np.uint8] | NDArray[np.int32]
    LabelArray: TypeAlias = NDArray[np.int64]
    IndexArray: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """One split of a data set.

    inputs: images in bytes, (n, height, width, channels), or tokens, (n, length). labels: (n,), or
    (n, length) where each token has one; -1 where nothing is predicted. decode: reads an image
    again from its file, and raises OSError or ValueError; None: it has none.
    """

    inputs: InputArray
    labels: LabelArray
    decode: Callable[[int], NDArray[np.uint8]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedDataset:
    """A data set in memory, with its source."""

    train: Examples
    test: Examples
    source: DatasetSource


class Model(Protocol):
    """A neural network, built for the shape of whatever data set it meets."""

    @property
    def facts(self) -> ModelFacts: ...

    def build(self, example_shape: tuple[int, ...], class_count: int) -> Any:
        """Return a new Keras model: images in [0, 1] or tokens in, logits out."""
        ...

    def describe(self, example_shape: tuple[int, ...], class_count: int) -> ModelSize | None:
        """Return the size of what `build` would return, without any framework.

        None: only the built model knows.
        """
        ...


class Dataset(Protocol):
    """A set of labelled images or of token sequences that fits into memory."""

    @property
    def facts(self) -> DatasetFacts: ...

    def load(self, places: Sequence[Path]) -> LoadedDataset:
        """Read it from the first of `places` that has it; download it into the first place.

        Raises:
            DatasetMissing: no place has it and it cannot be had from the internet.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RankContext:
    """Everything that one role process of a rank needs to take its place in the gang."""

    job: JobSpec
    rank: int
    role: str
    go: GoLine
    model: Model
    dataset: DatasetFacts
    data: LoadedDataset
    peer_timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Of the test split: mean loss and top-1 accuracy."""

    val_loss: float
    val_accuracy_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSums:
    """A checksum that survives another order of summation: compare to a tolerance."""

    total: float
    total_of_squares: float

    @classmethod
    def of(cls, weights: Iterable[Any]) -> WeightSums:
        """Add up arrays or tensors of double precision: in less, the order would show."""
        kept = list(weights)
        return cls(
            total=float(sum(w.sum() for w in kept)),
            total_of_squares=float(sum((w * w).sum() for w in kept)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixProduct:
    """`run` computes it that many times and waits for the device; `flop`: of one."""

    run: Callable[[int], None]
    flop: float


class Loader(Protocol):
    """What loads the examples of steps."""

    def begin(self, shares: Iterator[IndexArray]) -> None:
        """Load ahead for these steps, of which each has one share; none of those before."""
        ...

    def take_wait_s(self) -> float:
        """Return for how long steps have waited for examples since the last call."""
        ...

    def cpu_s(self) -> float:
        """Return the processor time of its processes, if it has any."""
        ...


class Engine(Protocol):
    """One connected rank: the model, its data on the device, and the way to its peers."""

    @property
    def loader(self) -> Loader | None:
        """What has to be told of steps before they come; None: all examples are in memory."""
        ...

    @property
    def parameter_count(self) -> int:
        """Trainable parameters."""
        ...

    @property
    def gradient_bytes(self) -> int: ...

    @property
    def settings(self) -> dict[str, object]:
        """Fixed settings that are recorded, such as the learning rate."""
        ...

    def matrix_product(self, side: int) -> MatrixProduct:
        """Return a product of two matrices (side, side), in the precision of steps.

        On all threads or devices of this rank. It leaves generators of random numbers alone.
        """
        ...

    def take_device_memory_bytes(self) -> int | None:
        """Return the most memory that a GPU had in use since the last call; None on CPUs."""
        ...

    def step(self, indices: IndexArray, *, examples_count: int) -> float:
        """Run one step on this rank's `indices` of a global batch of `examples_count`.

        Returns the sum of this rank's per-example losses, after the device has finished.
        """
        ...

    def prepare_evaluation(self) -> None:
        """Make what rank 0 evaluates next the gang's; every rank that trains calls it.

        Where ranks have weights of their own, their mean is evaluated, and training goes on from
        what each had. Where no rank has all weights, all evaluate together here.
        """
        ...

    def evaluate(self, on_batch: Callable[[], None]) -> Evaluation:
        """Evaluate the test split on this rank alone; `on_batch` is called after each part."""
        ...

    def save(self) -> object:
        """Copy the weights and the optimizer's state."""
        ...

    def restore(self, state: object) -> None: ...

    def weight_sums(self) -> WeightSums: ...

    def weights_checksum(self) -> float:
        """Return the checksum of a user's own model: all weights that are a rank's own."""
        ...

    def take_exchange(self) -> Exchange | None:
        """Return the counts since the last call, and reset them."""
        ...

    def trace(self, run_steps: Callable[[], None]) -> tuple[float, ...] | None:
        """Call `run_steps` under the profiler; return the seconds inside each collective.

        In order of time; empty where nothing communicates; None where the profiler gave nothing.
        """
        ...

    def wait_for_peers(self, name: str, *, timeout_s: float) -> None:
        """Wait until every rank has come to the barrier `name`, which is used once."""
        ...

    def leave(self) -> None:
        """Part from the peers such that none of them takes it for a death."""
        ...


class Gang(Protocol):
    """The way from an engine to the other ranks."""

    def wait(self, name: str, *, timeout_s: float) -> None: ...

    def leave(self) -> None: ...


class SingleRankGang:
    """The gang of one rank, which waits for nobody."""

    def wait(self, name: str, *, timeout_s: float) -> None:
        del name, timeout_s

    def leave(self) -> None:
        return


class Described(Protocol):
    """The facts of a distribution strategy that are known without running it."""

    @property
    def facts(self) -> StrategyFacts: ...

    def traffic(self, gang: GangShape, gradient_bytes: float) -> Traffic:
        """Return the traffic of one training rank per step on the critical path.

        What servers send is theirs and not counted here.
        """
        ...


class Strategy(Described, Protocol):
    """A way to distribute the training of the farm's own models over ranks."""

    def prepare(self, job: JobSpec, cpu_count: int) -> str:
        """Import the framework and set up its threads and devices, before anything is connected.

        Returns its name and version, such as "tensorflow 2.21.0".
        """
        ...

    def build(self, rank_context: RankContext) -> Engine:
        """Connect to the peers, build the model, and return the engine for the loop.

        Raises:
            RankFailed: the port of this rank is taken.
        """
        ...


class ServedStrategy(Strategy, Protocol):
    """A strategy whose ranks have server processes, too (`facts.uses_servers`)."""

    def serve(self, rank_context: RankContext, beat: Callable[[], None]) -> None:
        """Be the server of `rank_context` until every rank that trains has left.

        Calls `beat` about once a second, also before anybody has come.

        Raises:
            RankFailed: the port of this process is taken, or all have vanished without leaving.
        """
        ...

"""A registered model: its facts, and its layers, declared once for building and for counting."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from farm.configuration.catalogue import ModelFacts
from farm.configuration.model_size import FLOAT_BYTES, SHARDED_UNIT_BYTES, Block, ModelSize
from farm.trainers.models.layers import Layout, Padding

TensorShape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """`lay_out` makes the same layers of tensors and of shapes, so that the two cannot disagree."""

    facts: ModelFacts
    lay_out: Layout

    def build(self, example_shape: tuple[int, ...], class_count: int) -> Any:
        """Return a new Keras model: images in [0, 1] or tokens in, logits out."""
        import keras

        from farm.trainers.tensorflow.layers import KerasLayers

        layers = KerasLayers()
        x = layers.input(example_shape)
        return keras.Model(x, self.lay_out(layers, x, class_count), name=self.facts.name)

    def describe(self, example_shape: tuple[int, ...], class_count: int) -> ModelSize:
        """Return the size of the model that `build` would return, without any framework."""
        counter = LayerCounter()
        self.lay_out(counter, counter.input(example_shape), class_count)
        return counter.size


class CountedTable(TensorShape):
    """The shape of a table, which is told from others of that shape by its number."""

    number: int


class LayerCounter:
    """Counts what layers hold and compute, on shapes without the batch, such as (28, 28, 1).

    Kept for the backward pass is what the gradient of a layer reads: the input of convolutions,
    dense layers and normalisation, the output of ReLU, both of pooling. So an output that only goes
    into a ReLU or a sum is not counted; a sum that goes into a layer normalisation is counted as
    the output that was added.
    """

    def __init__(self) -> None:
        self._statistics_count = 0
        self._flop = 0
        self._kept_count = 0  # numbers, of one example
        self._unit_bytes: list[int] = [0]  # the last is still open
        self._table_bytes: list[int] = []
        self._tables: set[int] = set()  # that the block reads which is still open
        self._blocks: list[Block] = []

    @property
    def size(self) -> ModelSize:
        """What all layers so far come to."""
        units = tuple(size for size in (*self._unit_bytes, sum(self._table_bytes)) if size)
        return ModelSize(
            parameter_count=sum(units) // FLOAT_BYTES,
            statistics_count=self._statistics_count,
            forward_flop_per_example=self._flop,
            activation_bytes_per_example=self._kept_count * FLOAT_BYTES,
            unit_bytes=units,
            table_bytes=tuple(self._table_bytes),
            blocks=(*self._blocks, self._open_block(output_count=0)),
        )

    def input(self, example_shape: TensorShape) -> TensorShape:
        """Return the input of a model."""
        return self._kept(example_shape)

    def conv(
        self,
        x: TensorShape,
        filters: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: Padding = "same",
        has_bias: bool = True,
        is_rectified: bool = False,
    ) -> TensorShape:
        del is_rectified  # in place: ReLU's gradient needs its output alone
        made = (*_windows(x, kernel, stride, padding), filters)
        self._weigh(kernel * kernel * x[-1], made, has_bias=has_bias)
        return self._kept(made)

    def normalise(self, x: TensorShape) -> TensorShape:
        self._add_weights(2 * x[-1])
        self._statistics_count += 2 * x[-1]
        return x

    def rectify(self, x: TensorShape) -> TensorShape:
        return self._kept(x)

    def max_pool(
        self, x: TensorShape, size: int, *, stride: int, padding: Padding = "same"
    ) -> TensorShape:
        return self._kept((*_windows(x, size, stride, padding), x[-1]))

    def average(self, x: TensorShape) -> TensorShape:
        return self._kept((x[-1],))

    def add(self, x: TensorShape, y: TensorShape) -> TensorShape:
        assert x == y, (x, y)
        return x

    def concatenate(self, parts: list[TensorShape]) -> TensorShape:
        assert len({part[:-1] for part in parts}) == 1, parts
        return self._kept((*parts[0][:-1], sum(part[-1] for part in parts)))

    def flatten(self, x: TensorShape) -> TensorShape:
        return (math.prod(x),)

    def dense(self, x: TensorShape, units: int, *, is_rectified: bool = False) -> TensorShape:
        del is_rectified
        made = (*x[:-1], units)
        self._weigh(x[-1], made, has_bias=True)
        return self._kept(made)

    def to_sequence(self, x: TensorShape) -> TensorShape:
        return (math.prod(x[:-1]), x[-1])

    def prepend_vector(self, x: TensorShape) -> TensorShape:
        self._add_weights(x[1])
        return (x[0] + 1, x[1])

    def first_vector(self, x: TensorShape) -> TensorShape:
        return self._kept(x[1:])

    def table(self, row_count: int, width: int) -> TensorShape:
        made = CountedTable((row_count, width))
        made.number = len(self._table_bytes)
        self._table_bytes.append(row_count * width * FLOAT_BYTES)
        return made

    def look_up(self, table: TensorShape, tokens: TensorShape) -> TensorShape:
        self._read(table)
        return self._kept((*tokens, table[1]))

    def compare(self, x: TensorShape, table: TensorShape, *, has_bias: bool = False) -> TensorShape:
        self._read(table)
        made = (*x[:-1], table[0])
        self._add_weights(has_bias * table[0])
        self._flop += (2 * x[-1] + has_bias) * math.prod(made)
        return self._kept(made)

    def add_positions(self, x: TensorShape, longest: int) -> TensorShape:
        assert x[0] <= longest, (x, longest)
        self._read(self.table(longest, x[-1]))
        return x

    def add_segment(self, x: TensorShape, segment_count: int) -> TensorShape:
        self._read(self.table(segment_count, x[-1]))
        return x

    def layer_norm(self, x: TensorShape, *, epsilon: float) -> TensorShape:
        del epsilon
        self._add_weights(2 * x[-1])
        return self._kept(x)

    def gelu(self, x: TensorShape, *, is_approximate: bool = False) -> TensorShape:
        del is_approximate
        return self._kept(x)

    def attend(self, x: TensorShape, head_count: int, *, is_causal: bool) -> TensorShape:
        """Count products of all pairs, since the frameworks may compute those that they mask.

        How they keep the pairs' weights is their own affair: PyTorch need not.
        """
        del is_causal
        length, width = x[0], x[1] // 3
        assert width % head_count == 0, (x, head_count)
        self._flop += 2 * 2 * length * length * width
        return self._kept((length, width))

    def lstm(self, x: TensorShape, units: int) -> TensorShape:
        """Keep four gates, the state and the output of each position."""
        made = (x[0], units)
        self._weigh(x[-1] + units, (x[0], 4 * units), has_bias=True)
        self._kept((x[0], 5 * units))
        return self._kept(made)

    def end_block(self, x: TensorShape) -> TensorShape:
        self._blocks.append(self._open_block(output_count=math.prod(x)))
        self._tables = set()
        return x

    def channel_count(self, x: TensorShape) -> int:
        return x[-1]

    def length(self, x: TensorShape) -> int:
        return x[0]

    def side(self, x: TensorShape) -> int:
        return min(x[:2])

    def _weigh(self, input_count: int, made: TensorShape, *, has_bias: bool) -> None:
        """Count a layer each of whose outputs is a weighted sum of `input_count` numbers."""
        self._add_weights((input_count + has_bias) * made[-1])
        self._flop += (2 * input_count + has_bias) * math.prod(made)

    def _read(self, table: TensorShape) -> None:
        assert isinstance(table, CountedTable), table
        self._tables.add(table.number)

    def _open_block(self, *, output_count: int) -> Block:
        """Return what there is beyond the last block that has ended."""
        ended = self._blocks
        kept_bytes = self._kept_count * FLOAT_BYTES
        return Block(
            weight_bytes=sum(self._unit_bytes) - sum(b.weight_bytes for b in ended),
            tables=frozenset(self._tables),
            flop_per_example=self._flop - sum(b.flop_per_example for b in ended),
            activation_bytes_per_example=(
                kept_bytes - sum(b.activation_bytes_per_example for b in ended)
            ),
            output_bytes_per_example=output_count * FLOAT_BYTES,
        )

    def _add_weights(self, count: int) -> None:
        """Count a layer's own weights; a unit that has become large enough is closed."""
        self._unit_bytes[-1] += count * FLOAT_BYTES
        if self._unit_bytes[-1] >= SHARDED_UNIT_BYTES:
            self._unit_bytes.append(0)

    def _kept(self, made: TensorShape) -> TensorShape:
        assert all(length >= 1 for length in made), made
        self._kept_count += math.prod(made)
        return made


def _windows(x: TensorShape, size: int, stride: int, padding: Padding) -> TensorShape:
    """Return height and width of what a sliding window of that size makes of an image."""
    if padding == "same":
        return tuple(-(-length // stride) for length in x[:2])
    return tuple((length - size) // stride + 1 for length in x[:2])

"""Builds a model of PyTorch's own layers, from the same layout as Keras's.

Keras also runs on PyTorch, but a step of the small CNN then took 2.0 to 2.6 times as long, since
its poolings copy every image between two memory layouts. A comparison of frameworks should not
include that cost. Initial weights have Keras's distributions (Glorot and Bengio 2010, uniform;
biases 0), from PyTorch's generator, and "same" pads as in TensorFlow, so it is the same network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from farm.trainers.models.layers import EPSILON, MOVING_AVERAGE_MOMENTUM, Layout, Padding
from farm.trainers.torch.checkpointing import recomputed, segment_ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A layer's output.

    `shape`: (channels, height, width), (features,) once it is flat, or (length, width) of a
    sequence.
    """

    number: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A layer, the numbers of its inputs, and the shape of its output, of one example.

    `run`: None of a layer that belongs to another stage.
    """

    run: Callable[..., Any] | None
    inputs: tuple[int, ...]
    shape: tuple[int, ...]


class LayeredModule(nn.Module):
    """Runs the recorded layers, or a stage of them, which begins after layer number `first`.

    Input: images in [0, 1], (n, height, width, channels), or tokens, (n, length); of a stage, what
    the one before it returns, images with their channels last, too. `is_checkpointed`, of a whole
    model: the backward pass computes most of them again, which changes no number; see
    `farm.trainers.torch.checkpointing`.
    """

    def __init__(
        self,
        calls: Sequence[_Call],
        *,
        is_checkpointed: bool,
        first: int = 0,
        last: int | None = None,
    ) -> None:
        super().__init__()
        self._first, self._last = first, len(calls) if last is None else last
        read = {i for call in calls[first:last] for i in call.inputs}
        # Others are let go, with their weights.
        self._calls = tuple(
            c if (first < n <= self._last if c.inputs else n in read) else replace(c, run=None)
            for n, c in enumerate(calls, start=1)
        )
        layers = [c.run for c in self._calls if isinstance(c.run, nn.Module)]
        self._layers = nn.ModuleList(layers)
        # What has no input hands on a parameter, and may do so in every segment that needs it.
        self._tables = {
            n: c.run
            for n, c in enumerate(self._calls, start=1)
            if not c.inputs and c.run is not None
        }
        users = {number: user for user, c in enumerate(calls, start=1) for number in c.inputs}
        # Of each layer the inputs that nothing needs afterwards.
        self._last_uses = [
            tuple(number for number in set(call.inputs) if users[number] == user)
            for user, call in enumerate(calls, start=1)
        ]
        self._ends = [self._last]
        if is_checkpointed:
            sizes = [math.prod(call.shape) if call.inputs else 0 for call in calls]
            self._ends = segment_ends(sizes, self._bottlenecks(users))

    @property
    def tables(self) -> dict[int, nn.Parameter]:
        """The tables that it reads, by their numbers among those of the whole model."""
        numbers = [n for n, call in enumerate(self._calls, start=1) if not call.inputs]
        found = {place: self._tables.get(n) for place, n in enumerate(numbers)}
        return {place: table.rows for place, table in found.items() if isinstance(table, _Table)}

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of what comes from the stage before it and of what it returns, of an example.

        The first is () of a stage that begins the model.
        """
        before = self._calls[self._first - 1].shape if self._first else ()
        return _channels_last(before), _channels_last(self._calls[self._last - 1].shape)

    def forward(self, inputs: Any) -> Any:
        # A view: what lies in memory is in the order that is called "channels last" here.
        x = inputs.permute(0, 3, 1, 2) if inputs.dim() == 4 else inputs
        start = self._first
        for end in self._ends[:-1] if self.training else ():
            layers = [c.run for c in self._calls[start:end] if isinstance(c.run, nn.Module)]
            x = recomputed(partial(self._run, start, end), layers, x)
            start = end
        y = self._run(start, self._last, x)
        return y.permute(0, 2, 3, 1) if y.dim() == 4 else y

    def _run(self, start: int, end: int, x: Any) -> Any:
        """Return the output of layer number `end`, where `x` is that of layer `start`."""
        outputs = {start: x, **{number: table() for number, table in self._tables.items()}}
        for number in range(start + 1, end + 1):
            call = self._calls[number - 1]
            if call.inputs:
                assert call.run is not None
                outputs[number] = call.run(*(outputs[i] for i in call.inputs))
            for i in self._last_uses[number - 1]:
                del outputs[i]
        return outputs[end]

    def _bottlenecks(self, users: Mapping[int, int]) -> list[int]:
        """Return after which layers all that follows needs their output alone, but for tables.

        `users`: the last layer that reads an output, by its number.
        """
        found, furthest = [], users[0]
        for number, call in enumerate(self._calls[:-1], start=1):
            if furthest <= number and call.inputs:
                found.append(number)
            if call.inputs:
                furthest = max(furthest, users[number])
        return found


class TorchLayers:
    """Records layers; see `Layers`.

    `on_layer` is called with each layer that is a module, as soon as its weights are drawn. Tables
    are no such layers, since others read their rows. `blocks`: the only ones whose layers are kept,
    beside tables; of others no weights stay in memory.
    """

    def __init__(
        self,
        example_shape: tuple[int, ...],
        on_layer: Callable[[nn.Module], None] = lambda layer: None,
        blocks: range | None = None,
    ) -> None:
        self._on_layer = on_layer
        self._blocks = blocks
        self._block_ends: list[int] = []  # by the numbers of layers
        # Images come with their channels last.
        *sides, channels = example_shape
        self.input = Output(number=0, shape=(channels, *sides))
        self._calls: list[_Call] = []

    def module(self, *, is_checkpointed: bool) -> LayeredModule:
        """Return a module of all layers so far; the last one's output is the module's."""
        return LayeredModule(self._calls, is_checkpointed=is_checkpointed)

    def stage(self) -> LayeredModule:
        """Return a module of the kept blocks alone, and of the tables that they read."""
        assert self._blocks is not None
        ends = [0, *self._block_ends, len(self._calls)]
        first, last = ends[self._blocks.start], ends[self._blocks.stop]
        return LayeredModule(self._calls, is_checkpointed=False, first=first, last=last)

    def conv(
        self,
        x: Output,
        filters: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: Padding = "same",
        has_bias: bool = True,
        is_rectified: bool = False,
    ) -> Output:
        channels, *sides = x.shape
        pads = _pads(sides, kernel, stride, padding)
        x = self._padded(x, pads, value=0.0)
        layer = nn.Conv2d(channels, filters, kernel, stride, _even(pads), bias=has_bias)
        nn.init.xavier_uniform_(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
        size = _size(sides, kernel, stride, padding)
        y = self._add(layer, (x,), (filters, *size))
        return self.rectify(y) if is_rectified else y

    def normalise(self, x: Output) -> Output:
        momentum = 1.0 - MOVING_AVERAGE_MOMENTUM  # PyTorch's is the weight of what is new
        return self._add(nn.BatchNorm2d(x.shape[0], eps=EPSILON, momentum=momentum), (x,), x.shape)

    def rectify(self, x: Output) -> Output:
        return self._add(functional.relu, (x,), x.shape)

    def max_pool(self, x: Output, size: int, *, stride: int, padding: Padding = "same") -> Output:
        channels, *sides = x.shape
        pads = _pads(sides, size, stride, padding)
        x = self._padded(x, pads, value=float("-inf"))
        layer = nn.MaxPool2d(size, stride, _even(pads))
        return self._add(layer, (x,), (channels, *_size(sides, size, stride, padding)))

    def average(self, x: Output) -> Output:
        return self._add(lambda images: images.mean((2, 3)), (x,), x.shape[:1])

    def add(self, x: Output, y: Output) -> Output:
        return self._add(torch.add, (x, y), x.shape)

    def concatenate(self, parts: list[Output]) -> Output:
        channels = sum(part.shape[0] for part in parts)
        return self._add(lambda *x: torch.cat(x, 1), tuple(parts), (channels, *parts[0].shape[1:]))

    def flatten(self, x: Output) -> Output:
        """Flatten in Keras's order, which is the one in memory, so that nothing is copied."""
        if len(x.shape) == 1:
            return x
        channels, height, width = x.shape
        return self._add(
            lambda images: images.permute(0, 2, 3, 1).flatten(1), (x,), (channels * height * width,)
        )

    def dense(self, x: Output, units: int, *, is_rectified: bool = False) -> Output:
        layer = nn.Linear(x.shape[-1], units)
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
        y = self._add(layer, (x,), (*x.shape[:-1], units))
        return self.rectify(y) if is_rectified else y

    def to_sequence(self, x: Output) -> Output:
        channels, height, width = x.shape
        return self._add(
            lambda image: image.flatten(2).transpose(1, 2), (x,), (height * width, channels)
        )

    def prepend_vector(self, x: Output) -> Output:
        length, width = x.shape
        return self._add(_Prepended(width), (x,), (length + 1, width))

    def first_vector(self, x: Output) -> Output:
        return self._add(lambda x: x[:, 0], (x,), x.shape[1:])

    def table(self, row_count: int, width: int) -> Output:
        return self._add(_Table(row_count, width), (), (row_count, width))

    def look_up(self, table: Output, tokens: Output) -> Output:
        shape = (*tokens.shape, table.shape[1])
        return self._add(functional.embedding, (tokens, table), shape)

    def compare(self, x: Output, table: Output, *, has_bias: bool = False) -> Output:
        shape = (*x.shape[:-1], table.shape[0])
        if not has_bias:
            return self._add(functional.linear, (x, table), shape)
        return self._add(_BiasedComparison(table.shape[0]), (x, table), shape)

    def add_positions(self, x: Output, longest: int) -> Output:
        table = self.table(longest, x.shape[1])
        return self._add(lambda x, rows: x + rows[: x.shape[1]], (x, table), x.shape)

    def add_segment(self, x: Output, segment_count: int) -> Output:
        table = self.table(segment_count, x.shape[1])
        return self._add(lambda x, rows: x + rows[0], (x, table), x.shape)

    def layer_norm(self, x: Output, *, epsilon: float) -> Output:
        return self._add(nn.LayerNorm(x.shape[-1], eps=epsilon), (x,), x.shape)

    def gelu(self, x: Output, *, is_approximate: bool = False) -> Output:
        kind = "tanh" if is_approximate else "none"
        return self._add(lambda x: functional.gelu(x, approximate=kind), (x,), x.shape)

    def attend(self, x: Output, head_count: int, *, is_causal: bool) -> Output:
        length, width = x.shape[0], x.shape[1] // 3

        def attended(x: Any) -> Any:
            # (3, n, heads, length, width of a head)
            parts = x.view(-1, length, 3, head_count, width // head_count).permute(2, 0, 3, 1, 4)
            query, key, value = parts.unbind()
            found = functional.scaled_dot_product_attention(query, key, value, is_causal=is_causal)
            return found.transpose(1, 2).reshape(-1, length, width)

        return self._add(attended, (x,), (length, width))

    def lstm(self, x: Output, units: int) -> Output:
        return self._add(_Lstm(x.shape[1], units), (x,), (x.shape[0], units))

    def end_block(self, x: Output) -> Output:
        assert x.number == len(self._calls), x
        self._block_ends.append(x.number)
        return x

    def channel_count(self, x: Output) -> int:
        return x.shape[0]

    def length(self, x: Output) -> int:
        return x.shape[0]

    def side(self, x: Output) -> int:
        return min(x.shape[1:])

    def _padded(self, x: Output, pads: list[tuple[int, int]], *, value: float) -> Output:
        """Pad in a step of its own where the two ends of a side need unlike pads."""
        if _is_even(pads):
            return x
        channels, *sides = x.shape
        # PyTorch wants the last dimension first.
        flat = [pad for ends in reversed(pads) for pad in ends]
        size = tuple(side + sum(ends) for side, ends in zip(sides, pads, strict=True))
        return self._add(
            lambda images: functional.pad(images, flat, value=value), (x,), (channels, *size)
        )

    def _add(
        self, run: Callable[..., Any], inputs: tuple[Output, ...], shape: tuple[int, ...]
    ) -> Output:
        if isinstance(run, nn.Module) and not isinstance(run, _Table):
            self._on_layer(run)
        is_kept = self._blocks is None or len(self._block_ends) in self._blocks or not inputs
        numbers = tuple(x.number for x in inputs)
        self._calls.append(_Call(run=run if is_kept else None, inputs=numbers, shape=shape))
        return Output(number=len(self._calls), shape=shape)


class _Lstm(nn.Module):
    """Long short-term memory with one bias a gate, drawn as Keras draws it.

    PyTorch has two, of which only the sum counts: the second stays zero.
    """

    def __init__(self, input_width: int, units: int) -> None:
        super().__init__()
        self.layer = nn.LSTM(input_width, units, batch_first=True)
        of_input, of_output, bias, other_bias = self.layer.parameters()
        nn.init.xavier_uniform_(of_input)
        nn.init.orthogonal_(of_output)
        nn.init.zeros_(bias)
        nn.init.ones_(bias[units : 2 * units])  # of the forget gate
        nn.init.zeros_(other_bias)
        other_bias.requires_grad_(False)

    def forward(self, x: Any) -> Any:
        return self.layer(x)[0]


class _Prepended(nn.Module):
    """Puts a trained vector, at first of zeros, before a sequence."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.zeros(width))

    def forward(self, x: Any) -> Any:
        return torch.cat([self.vector.expand(len(x), 1, -1), x], 1)


class _BiasedComparison(nn.Module):
    def __init__(self, row_count: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(row_count))

    def forward(self, x: Any, rows: Any) -> Any:
        return functional.linear(x, rows, self.bias)


class _Table(nn.Module):
    """A trained matrix, drawn as Keras draws embeddings."""

    def __init__(self, row_count: int, width: int) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.empty(row_count, width))
        nn.init.uniform_(self.rows, -0.05, 0.05)

    def forward(self) -> Any:
        return self.rows


def build_module(
    lay_out: Layout,
    example_shape: tuple[int, ...],
    class_count: int,
    *,
    is_checkpointed: bool = False,
    on_layer: Callable[[nn.Module], None] = lambda layer: None,
) -> LayeredModule:
    """Return the module of a layout. Draws its weights from PyTorch's generator.

    `on_layer`: see `TorchLayers`.
    """
    layers = TorchLayers(example_shape, on_layer)
    lay_out(layers, layers.input, class_count)
    return layers.module(is_checkpointed=is_checkpointed)


def build_stage(
    lay_out: Layout, example_shape: tuple[int, ...], class_count: int, *, blocks: range
) -> LayeredModule:
    """Return the module of some blocks of a layout. Draws the weights of all of them."""
    layers = TorchLayers(example_shape, blocks=blocks)
    lay_out(layers, layers.input, class_count)
    return layers.stage()


def _channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[1:], shape[0]) if len(shape) == 3 else shape


def _size(sides: Sequence[int], kernel: int, stride: int, padding: Padding) -> list[int]:
    if padding == "same":
        return [-(-side // stride) for side in sides]
    return [(side - kernel) // stride + 1 for side in sides]


def _pads(
    sides: Sequence[int], kernel: int, stride: int, padding: Padding
) -> list[tuple[int, int]]:
    """Return what is put before and after each side: TensorFlow puts an odd pixel after it."""
    sizes = _size(sides, kernel, stride, padding)
    totals = [
        max(0, (size - 1) * stride + kernel - side) if padding == "same" else 0
        for side, size in zip(sides, sizes, strict=True)
    ]
    return [(total // 2, total - total // 2) for total in totals]


def _is_even(pads: list[tuple[int, int]]) -> bool:
    return all(before == after for before, after in pads)


def _even(pads: list[tuple[int, int]]) -> tuple[int, int]:
    """Return what the layer itself pads: nothing where the ends of a side differ."""
    (above, _), (left, _) = pads
    return (above, left) if _is_even(pads) else (0, 0)

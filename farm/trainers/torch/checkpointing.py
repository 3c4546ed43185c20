"""Activation checkpointing: a module stores the inputs of its segments, and recomputes the rest.

A segment ends where the next layers read only one output, such as between the blocks of a residual
network (Chen et al. 2016, "Training deep nets with sublinear memory cost"). The last segment stores
all its activations, since the backward pass begins with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def segment_ends(sizes: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Choose where the segments of a chain of layers end; the last ends with the last layer.

    `sizes`: how much is kept of each layer; `ends`: after how many layers a segment may end, in
    order. Of equally filled segments as many are chosen as makes their inputs, which are all kept,
    and the largest of them together smallest.
    """
    chosen, least = [len(sizes)], sum(sizes)
    for count in range(2, len(ends) + 2):
        found = _equally_filled(sizes, ends, limit=sum(sizes) / count)
        starts = [0, *found[:-1]]
        inputs = sum(sizes[start - 1] for start in starts[1:])
        largest = max(sum(sizes[a:b]) for a, b in zip(starts, found, strict=True))
        if inputs + largest < least:
            chosen, least = found, inputs + largest
    return chosen


def _equally_filled(sizes: Sequence[int], ends: Sequence[int], *, limit: float) -> list[int]:
    """End a segment where the next possible end would make it larger than `limit`."""
    found: list[int] = []
    start = 0
    for end, following in zip(ends, [*ends[1:], len(sizes)], strict=True):
        if sum(sizes[start:following]) > limit:
            found.append(end)
            start = end
    return [*found, len(sizes)]


def recomputed(run: Callable[..., Any], layers: Sequence[nn.Module], *inputs: Any) -> Any:
    """Return what `run` makes of the inputs; it runs again when the backward pass needs it.

    `layers`: those that it runs. They draw no random numbers.
    """
    return checkpoint(
        run,
        *inputs,
        use_reentrant=False,
        preserve_rng_state=False,
        # PyTorch would update moving statistics in the second computation, too.
        context_fn=lambda: (contextlib.nullcontext(), unchanged_statistics(layers)),
    )


@contextlib.contextmanager
def unchanged_statistics(layers: Iterable[nn.Module]) -> Iterator[None]:
    """Put the layers' moving statistics back after the block."""
    buffers = [buffer for layer in layers for buffer in layer.buffers()]
    before = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(buffers, before, strict=True):
                buffer.copy_(value)

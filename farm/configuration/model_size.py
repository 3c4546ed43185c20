"""The size of a model, computed from its layers: parameters, flop and bytes. Pure."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass

FLOAT_BYTES = 4  # everything is computed in float32
# Of weights that a sharded training gathers at a time. It is the size of the buckets in which
# DistributedDataParallel sums gradients, and a block of gpt2_small has 28 MB.
SHARDED_UNIT_BYTES = 25 * 2**20


class PipelineCut(enum.Enum):
    """Which quantity of a model's largest pipeline stage is minimised."""

    FLOP = "flop"
    WEIGHTS = "weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Some layers in a row, or a stage of several such blocks.

    What follows reads one output of it, of `output_bytes_per_example`, which is 0 of the last, and
    tables, by their numbers; `weight_bytes` are all others. For `flop_per_example` and
    `activation_bytes_per_example` see `ModelSize`.
    """

    weight_bytes: int
    tables: frozenset[int]
    flop_per_example: int
    activation_bytes_per_example: int
    output_bytes_per_example: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """The size of a model, from its layers and the shape of an example.

    `statistics_count`: the moving means and variances of batch normalisation, which no gradient
    changes and no strategy exchanges. `forward_flop_per_example` counts what convolutions, dense
    layers and attention multiply and add (1 MAC = 2 flop); the rest of a model is below a few
    percent of it, and the backward pass takes about twice as many. `activation_bytes_per_example`:
    the outputs that the backward pass reads again, so that all of them are in memory when it
    begins. `unit_bytes`: weights of the units in which `torch_fsdp` shards the model. A unit is as
    many layers in a row as it takes to reach `SHARDED_UNIT_BYTES`; tables, whose rows other layers
    may read, are one more, the last. `blocks`: in order, between which the model may be cut;
    `table_bytes`: of the tables that they read.
    """

    parameter_count: int  # trainable
    statistics_count: int
    forward_flop_per_example: int
    activation_bytes_per_example: int
    unit_bytes: tuple[int, ...] = ()
    table_bytes: tuple[int, ...] = ()
    blocks: tuple[Block, ...] = ()

    @property
    def gradient_bytes(self) -> int:
        """The gradients of one replica."""
        return self.parameter_count * FLOAT_BYTES

    def stage_ends(
        self, stage_count: int, *, by: PipelineCut = PipelineCut.FLOP
    ) -> tuple[int, ...] | None:
        """Return after how many blocks each stage ends; None where the model has too few of them.

        The stage with the most FLOP, or bytes of weights, has as few as possible, and of several
        such cuts the stages hand on as few bytes as possible.
        """
        blocks = self.blocks
        if not 1 <= stage_count <= len(blocks):
            return None

        def load(start: int, end: int) -> int:
            stage = blocks[start:end]
            if by is PipelineCut.FLOP:
                return sum(b.flop_per_example for b in stage)
            tables = frozenset().union(*(b.tables for b in stage))
            return sum(b.weight_bytes for b in stage) + sum(self.table_bytes[t] for t in tables)

        @functools.cache
        def cut(start: int, count: int) -> tuple[int, int, tuple[int, ...]]:
            """Return the load of the largest stage, the bytes between stages, and the ends."""
            if count == 1:
                return load(start, len(blocks)), 0, (len(blocks),)
            found = []
            for end in range(start + 1, len(blocks) - count + 2):
                most, handed_on, ends = cut(end, count - 1)
                handed_on += blocks[end - 1].output_bytes_per_example
                found.append((max(load(start, end), most), handed_on, (end, *ends)))
            return min(found)

        return cut(0, stage_count)[-1]

    def stages(
        self, stage_count: int, *, by: PipelineCut = PipelineCut.FLOP
    ) -> tuple[Block, ...] | None:
        """Return the stages themselves; None: see `stage_ends`."""
        ends = self.stage_ends(stage_count, by=by)
        if ends is None:
            return None
        stages = []
        for start, end in zip((0, *ends), ends, strict=False):
            blocks = self.blocks[start:end]
            stages.append(
                Block(
                    weight_bytes=sum(b.weight_bytes for b in blocks),
                    tables=frozenset().union(*(b.tables for b in blocks)),
                    flop_per_example=sum(b.flop_per_example for b in blocks),
                    activation_bytes_per_example=sum(
                        b.activation_bytes_per_example for b in blocks
                    ),
                    output_bytes_per_example=blocks[-1].output_bytes_per_example,
                )
            )
        return tuple(stages)

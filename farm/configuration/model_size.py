"""The size of a model, computed from its layers: parameters, flop and bytes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

FLOAT_BYTES = 4  # everything is computed in float32
# Of weights that a sharded training gathers at a time. It is the size of the buckets in which
# DistributedDataParallel sums gradients, and a block of gpt2_small has 28 MB.
SHARDED_UNIT_BYTES = 25 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """What follows from a model's layers, for one shape of examples.

    `statistics_count`: the moving means and variances of batch normalisation, which no gradient
    changes and no strategy exchanges. `forward_flop_per_example` counts what convolutions, dense
    layers and attention multiply and add (1 MAC = 2 flop); the rest of a model is below a few
    percent of it, and the backward pass takes about twice as many. `activation_bytes_per_example`:
    the outputs that the backward pass reads again, so that all of them are in memory when it
    begins. `unit_bytes`: weights of the units in which `torch_fsdp` shards the model. A unit is as
    many layers in a row as it takes to reach `SHARDED_UNIT_BYTES`; tables, whose rows other layers
    may read, are one more, the last.
    """

    parameter_count: int  # trainable
    statistics_count: int
    forward_flop_per_example: int
    activation_bytes_per_example: int
    unit_bytes: tuple[int, ...] = ()

    @property
    def gradient_bytes(self) -> int:
        """The gradients of one replica."""
        return self.parameter_count * FLOAT_BYTES

"""A variable of a TensorFlow 1 graph, shared by name between sessions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from numpy.typing import NDArray

v1 = tf.compat.v1

_PART_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphVariable:
    """Without a value until one is loaded, which keeps gigabytes out of the graph's definition."""

    handle: Any
    dtype: Any
    shape: tuple[int, ...]
    device: str

    @classmethod
    def create(cls, name: str, like: NDArray[Any], device: str) -> GraphVariable:
        """Add one of the shape and type of `like`. Processes share it by `name` on its device."""
        dtype = tf.as_dtype(like.dtype)
        with tf.device(device):
            handle = tf.raw_ops.VarHandleOp(dtype=dtype, shape=like.shape, shared_name=name)
        return cls(handle=handle, dtype=dtype, shape=like.shape, device=device)

    def read(self) -> Any:
        with tf.device(self.device):
            return tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=self.dtype)

    def assign(self, value: Any) -> Any:
        with tf.device(self.device):
            return tf.raw_ops.AssignVariableOp(resource=self.handle, value=value)


class Store:
    """The operations that read and load a group of variables together.

    In parts, since all of a large model at once is more than a message may hold (2 GiB).
    """

    def __init__(self, variables: list[GraphVariable]) -> None:
        self._variables = variables
        self._inputs = [v1.placeholder(v.dtype, v.shape) for v in variables]
        self._load = [v.assign(i) for v, i in zip(variables, self._inputs, strict=True)]
        self._values = [v.read() for v in variables]

    def read(self, session: Any) -> list[NDArray[Any]]:
        """Return a copy of each value."""
        values: list[NDArray[Any]] = []
        for part in self._parts():
            values += session.run(self._values[part])
        return values

    def load(self, session: Any, values: list[NDArray[Any]]) -> None:
        assert len(values) == len(self._variables)
        for part in self._parts():
            fed = dict(zip(self._inputs[part], values[part], strict=True))
            session.run(self._load[part], fed)

    def _parts(self) -> Iterator[slice]:
        """Yield runs of variables, of one or as many as stay below the limit."""
        first, size = 0, 0
        for i, variable in enumerate(self._variables):
            own = math.prod(variable.shape) * variable.dtype.size
            if i > first and size + own > _PART_BYTES:
                yield slice(first, i)
                first, size = i, 0
            size += own
        if self._variables:
            yield slice(first, len(self._variables))

"""Builds a model of Keras layers, from the same layout as for PyTorch. Needs only Keras."""

from __future__ import annotations

from typing import Any

from keras import Layer, layers, ops

from farm.trainers.models.layers import EPSILON, MOVING_AVERAGE_MOMENTUM, Padding


class KerasLayers:
    """Layers on Keras tensors; see `Layers`. A table is a layer."""

    def input(self, example_shape: tuple[int, ...]) -> Any:
        """Return the input of a model: an image, or a sequence of tokens."""
        return layers.Input(example_shape, dtype="int32" if len(example_shape) == 1 else None)

    def conv(
        self,
        x: Any,
        filters: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: Padding = "same",
        has_bias: bool = True,
        is_rectified: bool = False,
    ) -> Any:
        return layers.Conv2D(
            filters,
            kernel,
            strides=stride,
            padding=padding,
            use_bias=has_bias,
            activation="relu" if is_rectified else None,
        )(x)

    def normalise(self, x: Any) -> Any:
        return layers.BatchNormalization(momentum=MOVING_AVERAGE_MOMENTUM, epsilon=EPSILON)(x)

    def rectify(self, x: Any) -> Any:
        return layers.ReLU()(x)

    def max_pool(self, x: Any, size: int, *, stride: int, padding: Padding = "same") -> Any:
        return layers.MaxPooling2D(size, strides=stride, padding=padding)(x)

    def average(self, x: Any) -> Any:
        return layers.GlobalAveragePooling2D()(x)

    def add(self, x: Any, y: Any) -> Any:
        return layers.Add()([x, y])

    def concatenate(self, parts: list[Any]) -> Any:
        return layers.Concatenate()(parts)

    def flatten(self, x: Any) -> Any:
        return layers.Flatten()(x)

    def dense(self, x: Any, units: int, *, is_rectified: bool = False) -> Any:
        return layers.Dense(units, activation="relu" if is_rectified else None)(x)

    def end_block(self, x: Any) -> Any:
        return x

    def channel_count(self, x: Any) -> int:
        return int(x.shape[-1])

    def length(self, x: Any) -> int:
        return int(x.shape[1])

    def side(self, x: Any) -> int:
        return int(min(x.shape[1:3]))

    def to_sequence(self, x: Any) -> Any:
        return layers.Reshape((-1, x.shape[-1]))(x)

    def prepend_vector(self, x: Any) -> Any:
        return _KerasPrepended()(x)

    def first_vector(self, x: Any) -> Any:
        return x[:, 0]

    def table(self, row_count: int, width: int) -> Any:
        return _KerasTable(row_count, width)

    def look_up(self, table: Any, tokens: Any) -> Any:
        return table(tokens)

    def compare(self, x: Any, table: Any, *, has_bias: bool = False) -> Any:
        compared = table(x, is_compared=True)
        return _Bias()(compared) if has_bias else compared

    def add_positions(self, x: Any, longest: int) -> Any:
        return _Positions(longest)(x)

    def add_segment(self, x: Any, segment_count: int) -> Any:
        return _KerasSegment(segment_count)(x)

    def layer_norm(self, x: Any, *, epsilon: float) -> Any:
        return layers.LayerNormalization(epsilon=epsilon)(x)

    def gelu(self, x: Any, *, is_approximate: bool = False) -> Any:
        return ops.gelu(x, approximate=is_approximate)

    def attend(self, x: Any, head_count: int, *, is_causal: bool) -> Any:
        length, width = x.shape[1], x.shape[2] // 3
        parts = ops.reshape(x, (-1, length, 3, head_count, width // head_count))
        query, key, value = (parts[:, :, number] for number in range(3))
        attended = ops.dot_product_attention(query, key, value, is_causal=is_causal)
        return ops.reshape(attended, (-1, length, width))

    def lstm(self, x: Any, units: int) -> Any:
        return layers.LSTM(units, return_sequences=True)(x)


class _KerasTable(Layer):  # type: ignore[misc]  # Keras has no types
    def __init__(self, row_count: int, width: int) -> None:
        super().__init__()
        # As those of keras.layers.Embedding are drawn.
        self.rows = self.add_weight(shape=(row_count, width), initializer="uniform", name="rows")
        self.built = True

    def call(self, x: Any, *, is_compared: bool = False) -> Any:
        """Return the rows of tokens; or with `is_compared`, the products of vectors with all."""
        if is_compared:
            return ops.matmul(x, ops.transpose(self.rows))
        return ops.take(self.rows, x, axis=0)


class _KerasPrepended(Layer):  # type: ignore[misc]
    def build(self, shape: tuple[int, ...]) -> None:
        self.vector = self.add_weight(shape=(shape[-1],), initializer="zeros", name="vector")

    def call(self, x: Any) -> Any:
        return ops.concatenate([ops.zeros_like(x[:, :1]) + self.vector, x], axis=1)


class _Bias(Layer):  # type: ignore[misc]
    def build(self, shape: tuple[int, ...]) -> None:
        self.bias = self.add_weight(shape=(shape[-1],), initializer="zeros", name="bias")

    def call(self, x: Any) -> Any:
        return x + self.bias


class _KerasSegment(Layer):  # type: ignore[misc]
    def __init__(self, segment_count: int) -> None:
        super().__init__()
        self._segment_count = segment_count

    def build(self, shape: tuple[int, ...]) -> None:
        self.rows = self.add_weight(
            shape=(self._segment_count, shape[-1]), initializer="uniform", name="rows"
        )

    def call(self, x: Any) -> Any:
        return x + self.rows[0]


class _Positions(Layer):  # type: ignore[misc]
    def __init__(self, longest: int) -> None:
        super().__init__()
        self._longest = longest

    def build(self, shape: tuple[int, ...]) -> None:
        self.rows = self.add_weight(
            shape=(self._longest, shape[-1]), initializer="uniform", name="rows"
        )

    def call(self, x: Any) -> Any:
        return x + self.rows[: x.shape[1]]

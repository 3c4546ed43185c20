"""The layers in which models are defined, to be built or counted."""

from __future__ import annotations

from typing import Literal, Protocol, TypeVar

Padding = Literal["same", "valid"]

T = TypeVar("T")

# Of batch normalisation, as PyTorch has them. With Keras's own 0.99 the moving statistics would
# still be half of what they began with after 70 steps, and short trainings would be evaluated with
# those.
MOVING_AVERAGE_MOMENTUM = 0.9
EPSILON = 1e-5


class Layers(Protocol[T]):
    """Adds layers to a model. `T` is what stands for a layer's output: a tensor, or its shape."""

    def conv(
        self,
        x: T,
        filters: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: Padding = "same",
        has_bias: bool = True,
        is_rectified: bool = False,
    ) -> T:
        """Convolve with square kernels; `is_rectified`: followed by ReLU."""
        ...

    def normalise(self, x: T) -> T:
        """Normalise over the batch that this replica has."""
        ...

    def rectify(self, x: T) -> T: ...

    def max_pool(self, x: T, size: int, *, stride: int, padding: Padding = "same") -> T: ...

    def average(self, x: T) -> T:
        """Average each channel over the whole image: (height, width, channels) to (channels,)."""
        ...

    def add(self, x: T, y: T) -> T: ...

    def concatenate(self, parts: list[T]) -> T:
        """Put the channels of images of one size side by side."""
        ...

    def flatten(self, x: T) -> T: ...

    def dense(self, x: T, units: int, *, is_rectified: bool = False) -> T: ...

    # The following layers are for sequences: tokens, (length,), or vectors, (length, width). They
    # and `dense` treat each position by itself, but for `attend` and `lstm`.

    def to_sequence(self, x: T) -> T:
        """Make a sequence of an image's pixels: (height, width, channels) to (length, channels)."""
        ...

    def prepend_vector(self, x: T) -> T:
        """Put a trained vector before a sequence."""
        ...

    def first_vector(self, x: T) -> T:
        """Take the first vector of a sequence."""
        ...

    def table(self, row_count: int, width: int) -> T:
        """Make a trained matrix, to look up its rows and to compare vectors with them."""
        ...

    def look_up(self, table: T, tokens: T) -> T: ...

    def compare(self, x: T, table: T, *, has_bias: bool = False) -> T:
        """Multiply each vector with each row of the table; `has_bias`: and add a number a row."""
        ...

    def add_positions(self, x: T, longest: int) -> T:
        """Add a trained vector for each position; `longest`: for how many there is one."""
        ...

    def add_segment(self, x: T, segment_count: int) -> T:
        """Add the trained vector of the first of several segments; all positions belong to it."""
        ...

    def layer_norm(self, x: T, *, epsilon: float) -> T:
        """Normalise each vector by itself (Ba et al. 2016)."""
        ...

    def gelu(self, x: T, *, is_approximate: bool = False) -> T:
        """`is_approximate`: by a tanh, as GPT-2 has it."""
        ...

    def attend(self, x: T, head_count: int, *, is_causal: bool) -> T:
        """Attend by scaled dot products.

        x: queries, keys and values side by side, (length, 3 * width). `is_causal`: no position
        sees a later one.
        """
        ...

    def lstm(self, x: T, units: int) -> T:
        """Return the outputs of a long short-term memory, one for each position."""
        ...

    def end_block(self, x: T) -> T:
        """Say that what follows reads `x` alone of what came before, and tables; return `x`.

        A model may be cut into stages there. Each block has weights, or reads a table.
        """
        ...

    def channel_count(self, x: T) -> int: ...

    def length(self, x: T) -> int:
        """How many positions a sequence has."""
        ...

    def side(self, x: T) -> int:
        """The smaller of height and width."""
        ...


class Layout(Protocol):
    """A model's layers, from an image or tokens to the logits, for whatever shape that has."""

    def __call__(self, layers: Layers[T], x: T, class_count: int, /) -> T: ...

"""Inception-v1, also GoogLeNet (Szegedy et al. 2014, "Going deeper with convolutions").

Without the two auxiliary classifiers 6,998,552 parameters at 224x224x3 with 1,000 classes. Left out
are also the paper's local response normalisation, which has no parameters and has gone out of use,
and its dropout, whose random numbers would not be those of one machine.

The stem shrinks large images to an eighth. Images under 64 pixels keep their size in it, and its
first convolution is 3x3 for them.
"""

from __future__ import annotations

from typing import NamedTuple

from farm.configuration.catalogue import ModelFacts
from farm.trainers.models.architecture import Architecture
from farm.trainers.models.layers import Layers, T

SMALLEST_SIDE_OF_LARGE_STEM = 64


class _Widths(NamedTuple):
    """Filters of the branches of one module, by kernel; the reductions come before 3x3 and 5x5."""

    conv1: int
    reduce3: int
    conv3: int
    reduce5: int
    conv5: int
    after_pool: int


# Table 1 of the paper. The image is halved between the groups.
_GROUPS = (
    (_Widths(64, 96, 128, 16, 32, 32), _Widths(128, 128, 192, 32, 96, 64)),
    (
        _Widths(192, 96, 208, 16, 48, 64),
        _Widths(160, 112, 224, 24, 64, 64),
        _Widths(128, 128, 256, 24, 64, 64),
        _Widths(112, 144, 288, 32, 64, 64),
        _Widths(256, 160, 320, 32, 128, 128),
    ),
    (_Widths(256, 160, 320, 32, 128, 128), _Widths(384, 192, 384, 48, 128, 128)),
)


def _lay_out(layers: Layers[T], image: T, class_count: int) -> T:
    is_large = layers.side(image) >= SMALLEST_SIDE_OF_LARGE_STEM
    if is_large:
        x = layers.conv(image, 64, 7, stride=2, is_rectified=True)
        x = layers.max_pool(x, 3, stride=2)
    else:
        x = layers.conv(image, 64, 3, is_rectified=True)
    x = layers.conv(layers.end_block(x), 64, 1, is_rectified=True)
    x = layers.end_block(layers.conv(x, 192, 3, is_rectified=True))
    for number, group in enumerate(_GROUPS):
        if is_large or number > 0:
            x = layers.max_pool(x, 3, stride=2)
        for widths in group:
            x = layers.end_block(_module(layers, x, widths))
    return layers.dense(layers.average(x), class_count)


def _module(layers: Layers[T], x: T, widths: _Widths) -> T:
    def conv(source: T, filters: int, kernel: int) -> T:
        return layers.conv(source, filters, kernel, is_rectified=True)

    return layers.concatenate(
        [
            conv(x, widths.conv1, 1),
            conv(conv(x, widths.reduce3, 1), widths.conv3, 3),
            conv(conv(x, widths.reduce5, 1), widths.conv5, 5),
            conv(layers.max_pool(x, 3, stride=1), widths.after_pool, 1),
        ]
    )


INCEPTION_V1 = Architecture(
    facts=ModelFacts(
        name="inception_v1",
        summary="GoogLeNet: 9 modules of parallel convolutions (1x1, 3x3, 5x5)",
        smallest_side=8,
    ),
    lay_out=_lay_out,
)

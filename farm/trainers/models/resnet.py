"""ResNet-18 and ResNet-50 (He et al. 2015, "Deep residual learning for image recognition").

ResNet-18 is torchvision's, whose convolutions have no bias: 11,689,512 trainable parameters at
224x224x3 with 1,000 classes. ResNet-50 is Keras's, which is what measurements with TensorFlow are
of: its convolutions have one, and the stride is in a block's first. 25,583,592 are trainable,
and with the 53,120 moving statistics of batch normalisation it has the usual 25,636,712.

Images of 64 pixels and more meet the paper's stem, a 7x7 convolution and a pooling of stride 2
each, which would leave of smaller ones a single pixel for half of the layers: there it is one 3x3
convolution, as in the paper's own networks for CIFAR-10.

Batch normalisation has the statistics of the examples that one replica has, and the moving ones
are each replica's own: no strategy exchanges them, and an evaluation uses those of rank 0.
"""

from __future__ import annotations

from farm.configuration.catalogue import ModelFacts
from farm.trainers.models.architecture import Architecture
from farm.trainers.models.layers import Layers, T

SMALLEST_SIDE_OF_LARGE_STEM = 64
_WIDTHS = (64, 128, 256, 512)  # of the four stages; the first keeps the image's size


def _lay_out_18(layers: Layers[T], image: T, class_count: int) -> T:
    x = _stem(layers, image, has_bias=False)
    for stage, width in enumerate(_WIDTHS):
        for block in range(2):
            x = _basic_block(layers, x, width, stride=2 if stage > 0 and block == 0 else 1)
    return layers.dense(layers.average(x), class_count)


def _lay_out_50(layers: Layers[T], image: T, class_count: int) -> T:
    x = _stem(layers, image, has_bias=True)
    for stage, (width, block_count) in enumerate(zip(_WIDTHS, (3, 4, 6, 3), strict=True)):
        for block in range(block_count):
            x = _bottleneck(layers, x, width, stride=2 if stage > 0 and block == 0 else 1)
    return layers.dense(layers.average(x), class_count)


def _stem(layers: Layers[T], image: T, *, has_bias: bool) -> T:
    if layers.side(image) < SMALLEST_SIDE_OF_LARGE_STEM:
        x = layers.conv(image, 64, 3, has_bias=has_bias)
        return layers.end_block(layers.rectify(layers.normalise(x)))
    x = layers.conv(image, 64, 7, stride=2, has_bias=has_bias)
    x = layers.rectify(layers.normalise(x))
    return layers.end_block(layers.max_pool(x, 3, stride=2))


def _basic_block(layers: Layers[T], x: T, width: int, *, stride: int) -> T:
    shortcut = x
    if stride > 1 or layers.channel_count(x) != width:
        shortcut = layers.normalise(layers.conv(x, width, 1, stride=stride, has_bias=False))
    x = layers.normalise(layers.conv(x, width, 3, stride=stride, has_bias=False))
    x = layers.normalise(layers.conv(layers.rectify(x), width, 3, has_bias=False))
    return layers.end_block(layers.rectify(layers.add(x, shortcut)))


def _bottleneck(layers: Layers[T], x: T, width: int, *, stride: int) -> T:
    shortcut = x
    if layers.channel_count(x) != 4 * width:
        shortcut = layers.normalise(layers.conv(x, 4 * width, 1, stride=stride))
    x = layers.rectify(layers.normalise(layers.conv(x, width, 1, stride=stride)))
    x = layers.rectify(layers.normalise(layers.conv(x, width, 3)))
    x = layers.normalise(layers.conv(x, 4 * width, 1))
    return layers.end_block(layers.rectify(layers.add(x, shortcut)))


RESNET18 = Architecture(
    facts=ModelFacts(
        name="resnet18",
        summary="ResNet-18: 17 convolutions with shortcuts and batch normalisation",
        smallest_side=8,
    ),
    lay_out=_lay_out_18,
)
RESNET50 = Architecture(
    facts=ModelFacts(
        name="resnet50",
        summary="ResNet-50: 49 convolutions with shortcuts and batch normalisation",
        smallest_side=8,
    ),
    lay_out=_lay_out_50,
)

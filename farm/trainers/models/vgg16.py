"""VGG16 (Simonyan and Zisserman 2014, configuration D): 13 convolutions of 3x3, two Dense 4096.

138,357,544 parameters at 224x224x3 with 1,000 classes, of which 102,760,448 in the first dense
layer; 33,638,218 at 32x32x3 with ten, where that layer has 512 inputs. Left out is the paper's
dropout, whose random numbers would not be those of one machine.

Five poolings halve the image, rounding up, so that it needs 17 pixels for each to have some left.
"""

from __future__ import annotations

from farm.configuration.catalogue import ModelFacts
from farm.trainers.models.architecture import Architecture
from farm.trainers.models.layers import Layers, T

_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # filters, convolutions


def _lay_out(layers: Layers[T], image: T, class_count: int) -> T:
    x = image
    for filters, conv_count in _STAGES:
        for _ in range(conv_count - 1):
            x = layers.end_block(layers.conv(x, filters, 3, is_rectified=True))
        x = layers.conv(x, filters, 3, is_rectified=True)
        x = layers.end_block(layers.max_pool(x, 2, stride=2))
    x = layers.flatten(x)
    for _ in range(2):
        x = layers.end_block(layers.dense(x, 4096, is_rectified=True))
    return layers.dense(x, class_count)


VGG16 = Architecture(
    facts=ModelFacts(
        name="vgg16",
        summary="VGG16: 13 convolutions of 3x3 and two dense layers of 4096",
        smallest_side=17,
    ),
    lay_out=_lay_out,
)

"""Vision transformers (Dosovitskiy et al. 2020, "An image is worth 16x16 words").

ViT-B/16 is the paper's: 86,567,656 parameters at 224x224x3 with 1,000 classes. The tiny one has the
width of DeiT-Ti (Touvron et al. 2020, "Training data-efficient image transformers"), without
distillation: 5,717,416. Left out is dropout, whose random numbers would not be those of one
machine.

The patches of smaller images are smaller: their side is the largest power of two, of at most 16,
that leaves at least 7 of them along a side. So 28x28 is cut into 7x7 patches of 4 pixels, 32x32
into 8x8 of 4, and 8x8 into single pixels.
"""

from __future__ import annotations

from functools import partial

from farm.configuration.catalogue import ModelFacts
from farm.trainers.models.architecture import Architecture
from farm.trainers.models.layers import Layers, T
from farm.trainers.models.transformer import pre_norm_block

EPSILON = 1e-6
BLOCK_COUNT = 12
LARGEST_PATCH_SIDE = 16
FEWEST_PATCHES = 7  # along a side


def patch_side(image_side: int) -> int:
    """Return the side of the patches, in pixels, into which an image is cut."""
    side = LARGEST_PATCH_SIDE
    while side > 1 and image_side < FEWEST_PATCHES * side:
        side //= 2
    return side


def _lay_out(layers: Layers[T], image: T, class_count: int, *, width: int, head_count: int) -> T:
    side = patch_side(layers.side(image))
    x = layers.to_sequence(layers.conv(image, width, side, stride=side, padding="valid"))
    x = layers.prepend_vector(x)
    x = layers.end_block(layers.add_positions(x, layers.length(x)))
    for _ in range(BLOCK_COUNT):
        x = pre_norm_block(
            layers, x, width=width, head_count=head_count, is_causal=False, epsilon=EPSILON
        )
    return layers.dense(layers.first_vector(layers.layer_norm(x, epsilon=EPSILON)), class_count)


VIT_TINY = Architecture(
    facts=ModelFacts(
        name="vit_tiny", summary="vision transformer: 12 blocks of width 192 and 3 heads"
    ),
    lay_out=partial(_lay_out, width=192, head_count=3),
)
VIT_B16 = Architecture(
    facts=ModelFacts(
        name="vit_b16", summary="ViT-B/16: vision transformer, 12 blocks of width 768 and 12 heads"
    ),
    lay_out=partial(_lay_out, width=768, head_count=12),
)

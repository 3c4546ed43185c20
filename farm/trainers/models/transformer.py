"""The blocks that transformers are made of (Vaswani et al. 2017, "Attention is all you need")."""

from __future__ import annotations

from farm.trainers.models.layers import Layers, T


def pre_norm_block(
    layers: Layers[T],
    x: T,
    *,
    width: int,
    head_count: int,
    is_causal: bool,
    epsilon: float,
    has_approximate_gelu: bool = False,
) -> T:
    """Add attention and then two dense layers, each after a normalisation, as GPT-2 and ViT do."""
    y = layers.dense(layers.layer_norm(x, epsilon=epsilon), 3 * width)
    y = layers.dense(layers.attend(y, head_count, is_causal=is_causal), width)
    x = layers.add(x, y)
    y = layers.dense(layers.layer_norm(x, epsilon=epsilon), 4 * width)
    y = layers.dense(layers.gelu(y, is_approximate=has_approximate_gelu), width)
    return layers.end_block(layers.add(x, y))


def post_norm_block(layers: Layers[T], x: T, *, width: int, head_count: int, epsilon: float) -> T:
    """Add attention and then two dense layers, each before a normalisation, as BERT does."""
    y = layers.attend(layers.dense(x, 3 * width), head_count, is_causal=False)
    x = layers.layer_norm(layers.add(x, layers.dense(y, width)), epsilon=epsilon)
    y = layers.dense(layers.gelu(layers.dense(x, 4 * width)), width)
    return layers.end_block(layers.layer_norm(layers.add(x, y), epsilon=epsilon))

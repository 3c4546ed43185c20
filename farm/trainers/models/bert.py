"""BERT (Devlin et al. 2018, "BERT: Pre-training of deep bidirectional transformers").

An encoder: it restores tokens that were hidden from it, from those on both sides. BERT-base with
the paper's head for hidden tokens has 109,514,298 parameters with its vocabulary of 30,522 and its
512 positions, whatever the data set has. (The usual 110 million have the paper's other head, too,
which compares sentences.) Normalisation comes after each part of a block, and the logits are
products with the table of embeddings, of all tokens and not only of hidden ones. All tokens belong
to the first of two segments. Left out is dropout, whose random numbers would not be those of one
machine.
"""

from __future__ import annotations

from functools import partial

from farm.configuration.catalogue import ExampleKind, ModelFacts
from farm.trainers.models.architecture import Architecture
from farm.trainers.models.layers import Layers, T
from farm.trainers.models.transformer import post_norm_block

EPSILON = 1e-12
VOCABULARY_SIZE = 30_522
LONGEST_SEQUENCE = 512


def lay_out(
    layers: Layers[T],
    tokens: T,
    token_count: int,
    *,
    width: int,
    head_count: int,
    block_count: int,
) -> T:
    """Lay out an encoder of any size; the vocabulary is BERT's whatever `token_count` is."""
    del token_count
    table = layers.table(VOCABULARY_SIZE, width)
    x = layers.add_positions(layers.look_up(table, tokens), LONGEST_SEQUENCE)
    x = layers.end_block(layers.layer_norm(layers.add_segment(x, 2), epsilon=EPSILON))
    for _ in range(block_count):
        x = post_norm_block(layers, x, width=width, head_count=head_count, epsilon=EPSILON)
    x = layers.layer_norm(layers.gelu(layers.dense(x, width)), epsilon=EPSILON)
    return layers.compare(x, table, has_bias=True)


BERT_BASE = Architecture(
    facts=ModelFacts(
        name="bert_base",
        summary="BERT-base: 12 blocks of width 768 and 12 heads, which restore hidden tokens",
        takes=ExampleKind.TOKENS,
        restores_tokens=True,
        vocabulary_size=VOCABULARY_SIZE,
        longest_sequence=LONGEST_SEQUENCE,
    ),
    lay_out=partial(lay_out, width=768, head_count=12, block_count=12),
)

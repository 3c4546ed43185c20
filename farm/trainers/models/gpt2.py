"""GPT-2 (Radford et al. 2019, "Language models are unsupervised multitask learners").

A decoder: each token is predicted from those before it. Normalisation comes before each part of a
block, and the logits are products with the table of embeddings. Left out is dropout, whose random
numbers would not be those of one machine. Initial weights are those of all models here, not the
paper's.

`gpt2_small` is the paper's smallest: 124,439,808 parameters with its vocabulary of 50,257 and its
1,024 positions, whatever the data set has. The farm's sequences are of 128 tokens: of 1,024, an
example's logits alone would take 206 MB, and a step of one example on one core ten seconds.
`gpt2_tiny` has the vocabulary of the data set and a position for each of its tokens.
"""

from __future__ import annotations

from farm.configuration.catalogue import ExampleKind, ModelFacts
from farm.trainers.models.architecture import Architecture
from farm.trainers.models.layers import Layers, T
from farm.trainers.models.transformer import pre_norm_block

EPSILON = 1e-5
VOCABULARY_SIZE = 50_257
LONGEST_SEQUENCE = 1024


def _lay_out_tiny(layers: Layers[T], tokens: T, token_count: int) -> T:
    return _decoder(
        layers,
        tokens,
        token_count=token_count,
        longest=layers.length(tokens),
        width=128,
        head_count=4,
        block_count=2,
    )


def _lay_out_small(layers: Layers[T], tokens: T, token_count: int) -> T:
    del token_count
    return _decoder(
        layers,
        tokens,
        token_count=VOCABULARY_SIZE,
        longest=LONGEST_SEQUENCE,
        width=768,
        head_count=12,
        block_count=12,
    )


def _decoder(
    layers: Layers[T],
    tokens: T,
    *,
    token_count: int,
    longest: int,
    width: int,
    head_count: int,
    block_count: int,
) -> T:
    table = layers.table(token_count, width)
    x = layers.end_block(layers.add_positions(layers.look_up(table, tokens), longest))
    for _ in range(block_count):
        x = pre_norm_block(
            layers,
            x,
            width=width,
            head_count=head_count,
            is_causal=True,
            epsilon=EPSILON,
            has_approximate_gelu=True,
        )
    return layers.compare(layers.layer_norm(x, epsilon=EPSILON), table)


GPT2_TINY = Architecture(
    facts=ModelFacts(
        name="gpt2_tiny",
        summary="GPT-2 with 2 blocks of width 128 and 4 heads",
        takes=ExampleKind.TOKENS,
    ),
    lay_out=_lay_out_tiny,
)
GPT2_SMALL = Architecture(
    facts=ModelFacts(
        name="gpt2_small",
        summary="GPT-2 with 12 blocks of width 768 and 12 heads",
        takes=ExampleKind.TOKENS,
        vocabulary_size=VOCABULARY_SIZE,
        longest_sequence=LONGEST_SEQUENCE,
    ),
    lay_out=_lay_out_small,
)

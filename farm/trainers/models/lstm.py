"""Two layers of long short-term memory that predict the next token (Zaremba et al. 2014).

It is the paper's small model ("Recurrent neural network regularization"): embeddings and both
layers have 200 units, and there is no dropout: 4,651,600 parameters with its vocabulary of 10,000.
A gate has one bias. Initial weights are Keras's: orthogonal between steps, forget gates open.
"""

from __future__ import annotations

from farm.configuration.catalogue import ExampleKind, ModelFacts
from farm.trainers.models.architecture import Architecture
from farm.trainers.models.layers import Layers, T

UNITS = 200


def _lay_out(layers: Layers[T], tokens: T, token_count: int) -> T:
    x = layers.end_block(layers.look_up(layers.table(token_count, UNITS), tokens))
    for _ in range(2):
        x = layers.end_block(layers.lstm(x, UNITS))
    return layers.dense(x, token_count)


LSTM = Architecture(
    facts=ModelFacts(
        name="lstm",
        summary="two LSTM layers of 200 units",
        takes=ExampleKind.TOKENS,
    ),
    lay_out=_lay_out,
)

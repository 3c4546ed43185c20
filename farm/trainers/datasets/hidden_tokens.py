"""Hide tokens of sequences, for models that are trained to restore them (Devlin et al. 2018).

As in the paper, 15 % of the tokens of a sequence are to be restored. Of these 80 % are replaced by
a token that stands for a hidden one, 10 % by any token, and 10 % stay. Each sequence has as many,
and always the same ones, as the paper's data had.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from farm.configuration.catalogue import DatasetFacts
from farm.trainers.contracts import Examples, LoadedDataset

SEED = 0
HIDDEN_PERCENT = 15
NOT_PREDICTED = -1


def with_hidden_tokens(data: LoadedDataset, facts: DatasetFacts) -> LoadedDataset:
    """Return the data set with the hidden tokens as its labels, instead of the next ones.

    The token that stands for a hidden one is the first number that is not one of the data set.
    """
    rng = np.random.default_rng(SEED)
    train, test = (_hidden(rng, split, facts.class_count) for split in (data.train, data.test))
    return dataclasses.replace(data, train=train, test=test)


def _hidden(rng: np.random.Generator, examples: Examples, token_count: int) -> Examples:
    count, length = examples.inputs.shape
    hidden_count = max(1, length * HIDDEN_PERCENT // 100)
    places = rng.random((count, length)).argsort(axis=1)[:, :hidden_count]
    tokens = np.take_along_axis(examples.inputs, places, axis=1)
    fate = rng.integers(0, 10, tokens.shape)
    any_token = rng.integers(0, token_count, tokens.shape, dtype=np.int32)
    shown = np.where(fate < 8, np.int32(token_count), np.where(fate == 8, any_token, tokens))
    inputs = examples.inputs.copy()
    np.put_along_axis(inputs, places, shown, axis=1)
    labels = np.full((count, length), NOT_PREDICTED, dtype=np.int64)
    np.put_along_axis(labels, places, tokens.astype(np.int64), axis=1)
    return Examples(inputs=inputs, labels=labels)

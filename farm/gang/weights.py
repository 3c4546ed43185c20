"""Compares the initial weights of the ranks of a gang. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from farm.messages.trainer_lines import Failure, FailureKind

# Of the checksums of two ranks' weights: other processors may round a last digit otherwise.
_LIKE_WEIGHTS = 1e-8


def unlike_weights(model: str, checksums: Sequence[tuple[str, float]]) -> Failure | None:
    """Return a failure if a user's own model starts with other weights on some ranks.

    `checksums`: of the initial weights, each with a description of its rank.
    """
    for rank, checksum in checksums[1:]:
        first, expected = checksums[0]
        if not math.isclose(checksum, expected, rel_tol=_LIKE_WEIGHTS):
            message = (
                f"model {model}: expected the same weights on every rank before the training, got "
                f"others on {rank} than on {first}: give random generators a seed"
            )
            return Failure(kind=FailureKind.TRAINER_RAISED, message=message)
    return None

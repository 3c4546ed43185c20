"""Compares how many steps the ranks of a gang have made. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from farm.configuration.scripts import script_of
from farm.configuration.spec import JobSpec
from farm.messages.trainer_lines import Failure, FailureKind


def unlike_step_counts(spec: JobSpec, counts: Sequence[tuple[str, int]]) -> Failure | None:
    """Return a failure if a finished script ran different numbers of steps on its ranks.

    `counts`: of timed steps, each with a description of its rank.
    """
    if spec.steps is not None or spec.epochs is not None:
        return None
    for rank, count in counts[1:]:
        first, expected = counts[0]
        if count != expected:
            message = (
                f"script {script_of(spec.model)}: expected as many steps on every rank, got "
                f"{expected} timed ones on {first} and {count} on {rank}"
            )
            return Failure(kind=FailureKind.TRAINER_RAISED, message=message)
    return None

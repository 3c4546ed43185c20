"""Marks the training steps of a user's script for the farm. Needs only Python 3.9."""

from __future__ import annotations

from typing import SupportsFloat, SupportsInt

from benchfarm import marks


def step(
    examples: SupportsInt | None = None,
    loss: SupportsFloat | None = None,
    accuracy: SupportsFloat | None = None,
) -> None:
    """Mark the end of a training step. Outside the farm this does nothing.

    From the first call on, only these calls count: optimizers and Keras are no longer watched.
    A tensor of one value is a number too; reading it may wait for the device. A value that is not
    a number is left out.

    Raises:
        marks.TrainingOver: the farm has seen enough steps. It is a SystemExit with status 0.
    """
    if marks.of_this_process is not None:
        marks.of_this_process.step(examples=examples, loss=loss, accuracy=accuracy)

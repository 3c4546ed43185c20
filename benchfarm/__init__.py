"""The package for users: `step` marks the steps of a script, `connect` connects to a running farm.

`step` needs only Python 3.9; `connect` loads `benchfarm.client`, and what the package requires.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsInt

from benchfarm import marks

if TYPE_CHECKING:
    from benchfarm.client.connect import connect as connect

__all__ = ["connect", "step"]


def __getattr__(name: str) -> Any:
    # A training script, which only marks its steps, must not wait for what the client loads.
    if name == "connect":
        from benchfarm.client.connect import connect

        return connect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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

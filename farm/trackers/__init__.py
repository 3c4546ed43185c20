"""Experiment trackers that a sweep can be sent to. To add one: its file, and its line in TRACKERS.

A tracker's own library is imported when it is opened, and no earlier.
"""

from farm.trackers.contracts import Tracker
from farm.trackers.mlflow import MlflowTracker
from farm.trackers.tensorboard import TensorBoardTracker
from farm.trackers.wandb import WandbTracker

TRACKERS: tuple[type[Tracker], ...] = (
    MlflowTracker,
    TensorBoardTracker,
    WandbTracker,
)


def find_tracker(text: str) -> tuple[type[Tracker], str]:
    """Return the tracker and the destination of a text such as `mlflow http://127.0.0.1:5000`.

    Raises:
        ValueError: it is none; says what is expected.
    """
    name, _, destination = text.strip().partition(" ")
    for tracker in TRACKERS:
        if tracker.name == name and destination.strip():
            return tracker, destination.strip()
    names = ", ".join(tracker.name for tracker in TRACKERS)
    raise ValueError(f"one of {names}, a space, and the address or folder")

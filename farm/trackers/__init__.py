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

"""The caches of a process that answers questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from farm.processes.subprocess_call import in_subprocess
from farm.recommend.cache.fits import Fits
from farm.recommend.cache.knowledge import KnowledgeCache
from farm.recommend.configuration import Observation
from farm.recommend.prediction import StepTimeModel

FITS_FOLDER = "fits"  # in FARM_HOME


@dataclass(frozen=True, slots=True)
class Memory:
    """Measurements as they were read, and the models fitted to them. Threads share it."""

    fits: Fits
    knowledge: KnowledgeCache = field(default_factory=KnowledgeCache)

    @classmethod
    def of_server(cls, home: Path) -> Memory:
        """Return one that fits in another process and shares its models with commands."""
        return cls(Fits(in_subprocess(fit_default), folder=home / FITS_FOLDER, in_background=True))


def fit_default(observations: Sequence[Observation]) -> StepTimeModel:
    """Fit the model of step times that answers unless somebody compares predictors."""
    # Imported here: what it needs costs a command's start, and models from disk need less of it.
    from farm.recommend.calibrated.step_time_model import fit_step_time_model

    return fit_step_time_model(observations)

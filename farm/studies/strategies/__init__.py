"""The strategies study: all strategies side by side, with page and figure."""

from __future__ import annotations

from farm.studies.contracts import LabHosts, Study
from farm.studies.strategies.page import strategies_page

STRATEGIES_STUDY = Study(
    name="strategies",
    summary="every strategy with the same model, data, batch and seed, on up to 3 machines",
    place=LabHosts(3),
    page_file="strategies.md",
    page=strategies_page,
    modules=("torch",),
)

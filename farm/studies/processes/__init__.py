"""The processes study: one process on one core against several, by batch size."""

from __future__ import annotations

from farm.studies.contracts import LoopbackAgents, Study
from farm.studies.processes.page import processes_page

PROCESSES = Study(
    name="processes",
    summary="one process against two by batch size: time, loss and accuracy, without root",
    place=LoopbackAgents(2),
    page_file="studies/processes.md",
    page=processes_page,
)

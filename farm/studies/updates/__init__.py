"""Throughput, bytes and memory of update strategies by number of nodes."""

from __future__ import annotations

from farm.studies.contracts import LabHosts, Study
from farm.studies.updates.page import updates_page

UPDATES_STUDY = Study(
    name="updates",
    summary="throughput, bytes and memory of strategies of update on up to 3 machines",
    place=LabHosts(3),
    page_file="studies/updates.md",
    page=updates_page,
    modules=("torch",),
)

"""The machines study: time per epoch by batch size, machines and delay."""

from __future__ import annotations

from farm.studies.contracts import LabHosts, Study
from farm.studies.machines.page import machines_page

MACHINES = Study(
    name="machines",
    summary="time per epoch against batch size and machines, with and without a delay",
    place=LabHosts(3),
    page_file="studies/machines.md",
    page=machines_page,
)

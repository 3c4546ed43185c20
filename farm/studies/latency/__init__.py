"""The latency study: time of a synchronous step by network delay."""

from __future__ import annotations

from farm.studies.contracts import LabHosts, Study
from farm.studies.latency.page import latency_page

LATENCY = Study(
    name="latency",
    summary="time per epoch against the delay between 1, 2 and 3 machines",
    place=LabHosts(3),
    page_file="latency-study.md",
    page=latency_page,
)

"""What a delay between machines costs a synchronous step: sweep, data, page and figures."""

from __future__ import annotations

from farm.studies.contracts import Study
from farm.studies.latency_page import latency_page

LATENCY = Study(
    name="latency",
    summary="time per epoch against the delay between 1, 2 and 3 machines",
    host_count=3,
    page_file="latency-study.md",
    page=latency_page,
)

"""The slow-networks study: what averaging weights saves under a delay, and costs in accuracy."""

from __future__ import annotations

from farm.studies.contracts import LabHosts, Study
from farm.studies.slow_networks.page import slow_networks_page

SLOW_NETWORKS = Study(
    name="slow_networks",
    summary="PyTorch ranks that exchange in every step, or every 8 or 32, at up to 100 ms",
    place=LabHosts(2),
    page_file="studies/slow_networks.md",
    page=slow_networks_page,
    modules=("torch",),
)

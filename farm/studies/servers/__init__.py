"""Synchronous against asynchronous parameter servers over growing network delays."""

from __future__ import annotations

from farm.studies.contracts import LabHosts, Study
from farm.studies.servers.page import servers_page

SERVERS = Study(
    name="servers",
    summary="parameter servers that wait for the slowest rank, and that do not, at up to 200 ms",
    place=LabHosts(3),
    page_file="studies/servers.md",
    page=servers_page,
)

"""Reads an agent's spool from its disk, as a witness of all that it ever had to report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from farm.messages.reports import Report
from farm.values.codec import from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolOnDisk:
    """`reports`: all of its segments; those confirmed stay until a whole segment of 1 MB is."""

    agent_id: str
    generation: str
    reports: tuple[Report, ...]


def read_spool(folder: Path, agent_id: str) -> SpoolOnDisk:
    """Read what is there; a line that is being written is not there yet."""
    generation = folder / "generation"
    reports: list[Report] = []
    for segment in sorted(folder.glob("*.jsonl")):
        for line in segment.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                reports.append(from_json(Report, json.loads(line)))
    return SpoolOnDisk(
        agent_id=agent_id,
        generation=generation.read_text().strip() if generation.exists() else "",
        reports=tuple(reports),
    )

"""/metrics: the farm in numbers, in the text format of Prometheus."""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from flask import Blueprint, Response
from flask.typing import ResponseReturnValue

from farm import __version__
from farm.store.agents import list_agents
from farm.store.dashboard import job_counts, late_report_count
from web.agent_status import AgentStatus, agent_status
from web.backend import backend, now, read_session

bp = Blueprint("metrics", __name__)

_MOST_AGENTS = 10_000
_begun_unix_s = time.time()

Labels = Mapping[str, str]


@bp.get("/metrics")
def get_metrics() -> ResponseReturnValue:
    """Count jobs by state, agents by status and late reports, and say what this process uses."""
    instant, lease_s = now(), backend().settings.lease_s
    with read_session() as session:
        jobs = job_counts(session)
        agents = list_agents(session, limit=_MOST_AGENTS)
        late_count = late_report_count(session)
    statuses = Counter(agent_status(a, now=instant, lease_s=lease_s) for a in agents)
    live_count = statuses.total() - statuses[AgentStatus.LOST]
    blocks = [
        family("farm_build_info", "gauge", "What runs here.", [({"version": __version__}, 1)]),
        family(
            "farm_jobs",
            "gauge",
            "Jobs by state.",
            [({"state": state.value}, count) for state, count in jobs.items()],
        ),
        family(
            "farm_agents",
            "gauge",
            "Agents ever seen, by status.",
            [({"status": status.value}, statuses[status]) for status in AgentStatus],
        ),
        family("farm_agents_live", "gauge", "Agents whose heartbeats arrive.", [({}, live_count)]),
        family(
            "farm_late_reports",
            "gauge",
            "Reports that came too late or from somebody else, and were kept aside.",
            [({}, late_count)],
        ),
        *_process(),
    ]
    return Response("".join(blocks), content_type="text/plain; version=0.0.4; charset=utf-8")


def _process() -> list[str]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return [
        family(
            "process_cpu_seconds_total",
            "counter",
            "User and system CPU time of this process.",
            [({}, used.ru_utime + used.ru_stime)],
        ),
        family(
            "process_resident_memory_bytes",
            "gauge",
            "Resident memory of this process.",
            [({}, _resident_bytes())],
        ),
        family(
            "process_start_time_seconds",
            "gauge",
            "Start of this process, in seconds since 1970.",
            [({}, _begun_unix_s)],
        ),
    ]


def family(name: str, kind: str, meaning: str, values: Sequence[tuple[Labels, float]]) -> str:
    """Write one metric with its help, its type and a line for each set of labels."""
    escaped = meaning.replace("\\", r"\\").replace("\n", r"\n")
    lines = [f"# HELP {name} {escaped}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{_labels(labels)} {value:.17g}" for labels, value in values]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")

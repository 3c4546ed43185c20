"""/metrics: metrics of the farm in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flask import Blueprint, Response
from flask.typing import ResponseReturnValue

from farm.store.agents.agent_keys import keyed_agents
from web.backend import backend, now, read_session
from web.overview.metrics import METRICS, look_at_broker, look_at_store

bp = Blueprint("metrics", __name__)

Labels = Mapping[str, str]


@bp.get("/metrics")
def get_metrics() -> ResponseReturnValue:
    """Return the metrics of the farm and of this process for Prometheus."""
    settings = backend().settings
    with read_session() as session:
        agents = keyed_agents(session)
    queues, records = look_at_broker(settings.broker_url, agents=agents)
    with read_session() as session:
        seen = look_at_store(
            session, now=now(), lease_s=settings.lease_s, queues=queues, records=records
        )
    blocks = [family(m.name, m.kind, m.meaning, m.read(seen)) for m in METRICS]
    return Response("".join(blocks), content_type="text/plain; version=0.0.4; charset=utf-8")


def family(name: str, kind: str, meaning: str, values: Iterable[tuple[Labels, float]]) -> str:
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

"""Agents: list, drain and resume them."""

from __future__ import annotations

from apiflask import APIBlueprint
from flask import jsonify
from flask.typing import ResponseReturnValue
from pydantic import Field

from farm.keys.api_tokens import Scope
from farm.store.agents.agents import list_agents, set_drained
from farm.store.dashboard import served_ranks
from web import parameters, request_body
from web.access.scopes import needs
from web.api.schema import answers, bodies, shapes
from web.api.schema.openapi import Body, described
from web.backend import backend, now, read_session, wake_after, write_session
from web.parameters import LimitParameters, QueryText

bp = APIBlueprint("api_agents", __name__, url_prefix="/api/v1", tag="Agents")

_NOTHING = Body(bodies.Nothing, is_required=False)


class AgentsParameters(LimitParameters):
    """Which page of the agents, whose ids are names."""

    cursor: QueryText | None = Field(
        None, description="Where the page begins: `next` of the page before it."
    )


@bp.get("/agents")
@described(bp, answers.AgentList, query=AgentsParameters)
def get_agents() -> ResponseReturnValue:
    """List agents by id, including those that no longer run."""
    query = parameters.read(AgentsParameters)
    limit = query.limit
    instant, lease_s = now(), backend().settings.lease_s
    with read_session() as session:
        found = list_agents(session, after_id=query.cursor, limit=limit + 1)
        served = served_ranks(session, [a.id for a in found])
    items = [shapes.agent(a, served.get(a.id), now=instant, lease_s=lease_s) for a in found]
    return jsonify(shapes.listed(items, page_size=limit))


@bp.post("/agents/<agent_id>/drain")
@needs(Scope.ADMIN)
@described(bp, answers.AgentDrained, body=_NOTHING)
def post_drain(agent_id: str) -> ResponseReturnValue:
    """Give the agent no further rank; it finishes its present one."""
    return _set_drained(agent_id, is_drained=True)


@bp.post("/agents/<agent_id>/resume")
@needs(Scope.ADMIN)
@described(bp, answers.AgentDrained, body=_NOTHING)
def post_resume(agent_id: str) -> ResponseReturnValue:
    """Let a drained agent take ranks again."""
    return _set_drained(agent_id, is_drained=False)


def _set_drained(agent_id: str, *, is_drained: bool) -> ResponseReturnValue:
    request_body.posted(bodies.Nothing)
    name = request_body.agent_name(agent_id)
    with write_session() as session:
        set_drained(session, name, is_drained=is_drained)
    answer: answers.AgentDrained = {"id": name, "is_drained": is_drained}
    return wake_after(jsonify(answer))

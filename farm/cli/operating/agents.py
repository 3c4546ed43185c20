"""`farm agents` lists the agents; `farm drain` gives one of them no further job."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import click

from farm.cli.output import json_option, print_json, print_table
from farm.cli.session import settings, stopped_farm, store, wake_scheduler
from farm.cli.sweeps.jobs import row_json
from farm.store.agents.agent_status import AgentStatus, agent_status, is_alive, is_live
from farm.store.agents.agents import frameworks_text, has_tensorflow, list_agents, set_drained
from farm.store.engine import reading, writing
from farm.store.tables import AgentRow
from farm.text import display
from farm.text.columns import Column
from farm.text.log_text import one_line

_COLUMNS = (
    Column("agent"),
    Column("state"),
    Column("attempt", is_right=True),
    Column("heartbeat"),
    Column("address"),
    Column("cores", is_right=True),
    Column("memory", is_right=True),
    Column("frameworks"),
    Column("template", is_right=True),
    Column("labels"),
    Column("CPU model"),
)


@click.command()
@json_option
def agents(*, as_json: bool) -> None:
    """List all agents ever seen, with what they are doing.

    template: the memory of the process that an agent forks warm trainers from.
    --json prints a list with the columns of the store, and status and is_live as the API has them.
    """
    loaded = settings()
    with store(loaded) as engine, reading(engine) as session:
        found = list_agents(session, limit=None)
    now = dt.datetime.now(dt.UTC)
    lease_s = 0.0 if stopped_farm(loaded) else loaded.lease_s
    if as_json:
        print_json([_as_json(agent, now=now, lease_s=lease_s) for agent in found])
        return
    print_table(_COLUMNS, [_agent_cells(agent, now=now, lease_s=lease_s) for agent in found])
    for line in troubles(found, now=now, lease_s=lease_s):
        click.echo(one_line(line))


def troubles(found: Sequence[AgentRow], *, now: dt.datetime, lease_s: float) -> list[str]:
    """Return what to repair on each live agent that takes no rank, or not all ranks."""
    live = [agent for agent in found if is_alive(agent, now=now, lease_s=lease_s)]
    stuck = [
        f"{agent.id} takes no rank: {trouble}"
        for agent in live
        if (trouble := agent.facts.get("trouble"))
    ]
    lacking = [
        f"{agent.id} has no TensorFlow, and is given "
        + ("jobs of PyTorch alone" if frameworks_text(agent.facts) else "no jobs")
        for agent in live
        if not has_tensorflow(agent.facts)
    ]
    return stuck + lacking


@click.command()
@click.argument("agent")
@click.option("--resume", is_flag=True, help="Let it take jobs again.")
def drain(agent: str, *, resume: bool) -> None:
    """Give AGENT no more jobs; its running job continues."""
    loaded = settings()
    with store(loaded) as engine, writing(engine) as session:
        set_drained(session, agent, is_drained=not resume)
    wake_scheduler(loaded)
    click.echo(f"{agent} {'takes jobs again' if resume else 'takes no more jobs'}")


def _as_json(agent: AgentRow, *, now: dt.datetime, lease_s: float) -> dict[str, object]:
    return {
        **row_json(agent),
        "status": agent_status(agent, now=now, lease_s=lease_s).value,
        "is_live": is_live(agent, now=now, lease_s=lease_s),
        # Without agents that were told to stop; until 0.2.0.
        "is_alive": is_alive(agent, now=now, lease_s=lease_s),
    }


def _agent_cells(agent: AgentRow, *, now: dt.datetime, lease_s: float) -> list[str]:
    hardware = agent.facts["hardware"]
    status = agent_status(agent, now=now, lease_s=lease_s)
    is_drained = agent.is_drained and status not in (AgentStatus.DRAINED, AgentStatus.REMOVED)
    template_bytes = agent.template_bytes if is_live(agent, now=now, lease_s=lease_s) else None
    labels = ",".join(f"{key}={value}" for key, value in sorted(agent.facts["labels"].items()))
    return [
        agent.id,
        f"{status.value}, drained" if is_drained else status.value,
        display.text(agent.attempt_id),
        display.ago(agent.heartbeat_at, now),
        agent.facts["address"],
        f"{hardware['core_count']:g}",
        display.byte_count(hardware["memory_bytes"]),
        frameworks_text(agent.facts) or "none",
        display.byte_count(template_bytes),
        labels or display.MISSING,
        hardware["cpu_model"],
    ]

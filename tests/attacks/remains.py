"""Attacks of who reads what a farm leaves behind: its store, its logs, its pages."""

from __future__ import annotations

import json

import sqlalchemy as sa

from farm.store.base import Table
from farm.store.engine import reading
from tests.attacks.contract import Attack, Position, Succeeded
from tests.attacks.pages import ask
from tests.e2e.security.strict_farm import StrictFarm

_MARKUP = "<script>alert(1)</script>"


def _secrets(farm: StrictFarm) -> list[str]:
    """All that proves somebody's identity, but for private keys of certificates."""
    of_agents = [one.key for one in farm.secrets.values()]
    passwords = [sa.make_url(one.broker_url).password or "" for one in farm.secrets.values()]
    own = ["CHANGE-ME", farm.store.PASSWORD, (farm.home / "signing.key").read_text().strip()]
    return [*of_agents, *passwords, *farm.tokens.values(), *own]


def _without(farm: StrictFarm, text: str, *, where: str) -> str:
    found = [secret for secret in _secrets(farm) if not secret or secret in text]
    if found:
        raise Succeeded(f"{where}: {len(found)} secrets are there")
    return f"no token, key or password is in {where}"


def _store(farm: StrictFarm) -> str:
    with reading(farm.engine) as session:
        rows = [
            tuple(row)
            for table in Table.metadata.sorted_tables
            for row in session.execute(table.select())
        ]
    if not rows:
        raise Succeeded("an empty store tells nothing")
    return _without(farm, repr(rows), where="any row of the store")


def _logs(farm: StrictFarm) -> str:
    logs = [farm.log(name) for name in farm.processes]
    if not all(logs):
        raise Succeeded("an empty log tells nothing")
    return _without(farm, "\n".join(logs), where="the log of any process")


def _pages(farm: StrictFarm) -> str:
    paths = ("/", "/sweeps", "/agents/agent-1", "/metrics", "/api/v1/agents", "/jobs/x")
    answers = [ask(farm, "GET", path, token=farm.tokens["read"]) for path in paths]
    if [answer.status for answer in answers] != [200, 200, 200, 200, 200, 404]:
        raise Succeeded(f"answered {answers}")
    return _without(farm, "\n".join(answer.text for answer in answers), where="any page")


def _processes(farm: StrictFarm) -> str:
    """What every user of a machine can read of its processes."""
    shown = [" ".join(map(str, process.args)) for process in farm.processes.values()]  # type: ignore[arg-type] # all are lists
    return _without(farm, "\n".join(shown), where="the arguments of any process")


def _markup(farm: StrictFarm) -> str:
    """Call a sweep so that a browser would run its name, and look at its page."""
    case = {"model": "mlp", "dataset": "digits", "strategy": "single"}
    sizes = {"world_size": 1, "global_batch_size": 32, "steps": 10}
    sweep = json.dumps({"name": _MARKUP, "case": [{**case, **sizes}]}).encode()
    token, headers = farm.tokens["submit"], {"Content-Type": "application/json"}
    made = ask(farm, "POST", "/api/v1/sweeps", token=token, body=sweep, headers=headers)
    if made.status != 201:
        raise Succeeded(f"answered {made.status}: {made.text[:300]}")
    page = ask(farm, "GET", f"/sweeps/{json.loads(made.text)['id']}", token=token)
    if page.status != 200 or _MARKUP in page.text or "&lt;script&gt;" not in page.text:
        raise Succeeded(f"answered {page.status}: {page.text[:300]}")
    return "shown as &amp;lt;script&amp;gt;, which no browser runs"


_READS = "who reads pages, logs or errors"
REMAINS = (
    Attack(
        Position.READER,
        "look for tokens, keys and passwords in the store",
        "who has the store, or a copy of it",
        _store,
    ),
    Attack(Position.READER, "look for them in pages", _READS, _pages),
    Attack(Position.READER, "look for them in the logs", _READS, _logs),
    Attack(Position.READER, "look for them in the list of processes", _READS, _processes),
    Attack(
        Position.FILE,
        "give a sweep a script for its name",
        "who names a thing, or writes into a trainer's log",
        _markup,
    ),
)

"""Attacks on the web server, of who has no token or one to read; and by files handed in."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.attacks.contract import Attack, Position, Succeeded
from tests.e2e.security.strict_farm import StrictFarm

_TIMEOUT_S = 60.0
_SWEEP = {
    "name": "attack",
    "case": [
        {
            "model": "mlp",
            "dataset": "digits",
            "strategy": "single",
            "world_size": 1,
            "global_batch_size": 32,
        }
    ],
}
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    text: str


def ask(
    farm: StrictFarm,
    method: str,
    path: str,
    *,
    token: str | None = None,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Send one request by TLS and return what is answered."""
    trusting = ssl.create_default_context(cafile=str(farm.authority.file))
    connection = http.client.HTTPSConnection(
        farm.address, farm.web_port, timeout=_TIMEOUT_S, context=trusting
    )
    bearer = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        connection.request(method, path, body, {**bearer, **(headers or {})})
        answer = connection.getresponse()
        return Answer(answer.status, answer.read().decode(errors="replace"))
    finally:
        connection.close()


def _refused(answer: Answer, *statuses: int) -> str:
    if answer.status not in statuses:
        raise Succeeded(f"answered {answer.status}: {answer.text[:300]}")
    try:
        detail = json.loads(answer.text)["detail"]
    except ValueError:
        detail = answer.text[:60]
    return f"{answer.status}: {detail}"


def _request(
    method: str,
    path: str,
    *statuses: int,
    scope: str | None = None,
    sweep: object = None,
    body: bytes | None = None,
    claimed_bytes: int | None = None,
    origin: str | None = None,
) -> Callable[[StrictFarm], str]:
    sent = json.dumps(sweep).encode() if sweep is not None else body

    def act(farm: StrictFarm) -> str:
        token = farm.tokens[scope] if scope else None
        headers = _JSON if sent is not None else {}
        if claimed_bytes is not None:  # what is not read may as well not be sent
            headers = {**headers, "Content-Length": str(claimed_bytes)}
        if origin is not None:
            headers = {**headers, "Origin": origin}
        answer = ask(farm, method, path, token=token, body=sent, headers=headers)
        return _refused(answer, *statuses)

    return act


def _guessing(farm: StrictFarm) -> str:
    """Guess tokens until no guess is looked at any more; whoever has a token is let in still."""
    for number in range(30):
        answer = ask(farm, "GET", "/api/v1/jobs", token=f"guess {number}")
        if answer.status == 429:
            return _refused(answer, 429)
        _refused(answer, 401)
    raise Succeeded("30 guesses were looked at")


def _file_refused(content: bytes) -> Callable[[StrictFarm], str]:
    def act(farm: StrictFarm) -> str:
        table = farm.home / "hostile.csv"
        table.write_bytes(content)
        ended = farm.tried("import", "table", str(table), "--origin", "hostile-too")
        if ended.exit_code == 0 or ended.stderr.count("\n") != 1:
            raise Succeeded(f"status {ended.exit_code}: {ended.output}")
        if "hostile" in farm.command("origins").output:
            raise Succeeded("some of it was taken")
        return ended.stderr.removeprefix("farm: ").strip()

    return act


def _case(**changes: object) -> dict[str, object]:
    return {**_SWEEP, "case": [{**_SWEEP["case"][0], **changes}]}  # type: ignore[dict-item] # a list


_STRANGER, _READER = "who has no token", "who has a read token"
_SWEEP_FILE, _TABLE_FILE = "who hands in a sweep", "who hands in a table"
_POST = "/api/v1/sweeps"
PAGES = (
    Attack(
        Position.NETWORK,
        "read jobs without a token",
        _STRANGER,
        _request("GET", "/api/v1/jobs", 401),
    ),
    Attack(
        Position.NETWORK,
        "submit a sweep without a token",
        _STRANGER,
        _request("POST", _POST, 401, sweep=_SWEEP),
    ),
    Attack(
        Position.TOKEN,
        "submit a sweep",
        _READER,
        _request("POST", _POST, 403, scope="read", sweep=_SWEEP),
    ),
    Attack(
        Position.TOKEN,
        "cancel a job",
        _READER,
        _request("POST", "/api/v1/jobs/1/cancel", 403, scope="read"),
    ),
    Attack(
        Position.TOKEN,
        "drain an agent",
        _READER,
        _request("POST", "/api/v1/agents/agent-1/drain", 403, scope="read"),
    ),
    Attack(
        Position.BROWSER,
        "have a visitor's browser submit a sweep",
        "a page of another site",
        _request("POST", _POST, 403, sweep=_SWEEP, origin="https://elsewhere.example"),
    ),
    Attack(
        Position.FILE,
        "have a model loaded by its path",
        _SWEEP_FILE,
        _request("POST", _POST, 422, scope="submit", sweep=_case(model="../../etc/passwd")),
    ),
    Attack(
        Position.FILE,
        "submit a billion jobs",
        _SWEEP_FILE,
        _request("POST", _POST, 422, scope="submit", sweep={**_SWEEP, "repetitions": 10**9}),
    ),
    Attack(
        Position.FILE,
        "submit ten megabytes",
        _SWEEP_FILE,
        _request("POST", _POST, 413, scope="submit", body=b"x", claimed_bytes=10_000_000),
    ),
    Attack(
        Position.FILE,
        "submit brackets without end",
        _SWEEP_FILE,
        _request("POST", _POST, 400, scope="submit", body=b"[" * 100_000),
    ),
    Attack(
        Position.FILE,
        "import half of a table, whose second row cannot be",
        _TABLE_FILE,
        _file_refused(b"world_size,global_batch_size,step_time_s\n1,32,0.1\n1,32,-1\n"),
    ),
    Attack(
        Position.FILE,
        "import bytes that are no text",
        _TABLE_FILE,
        _file_refused(b"world_size\n\xff\xfe\x00"),
    ),
)
# To be tried after all others: no guess of that address is looked at for a minute then.
LAST = (Attack(Position.NETWORK, "guess tokens", _STRANGER, _guessing),)

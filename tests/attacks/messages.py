"""Attacks of who may write into the broker, and of who has taken over an agent's machine."""

from __future__ import annotations

from collections.abc import Callable

import redis

from farm.broker.celery_app import (
    HEARTBEAT_TASK,
    HEARTBEATS_QUEUE,
    REPORTS_QUEUE,
    REPORTS_TASK,
    agent_queue,
    command_task,
    own_queue,
)
from farm.broker.sending import Sender
from farm.broker.task_message import task_text
from farm.messages.agent_keys import read_key
from farm.messages.commands import Go, StopAttempt
from farm.messages.envelope import WIRE_VERSION, seal
from farm.messages.signing import MessageDirection, sign
from tests.attacks.contract import Attack, Position, Succeeded, refusal_of
from tests.attacks.network import ping
from tests.e2e.live_farm import wait_until
from tests.e2e.security.strict_farm import SERVER, AgentSecrets, StrictFarm

# A machine that tests may stand still for seconds.
_LOGGED_S = 240.0


def _logged(farm: StrictFarm, process: str, *words: str) -> str:
    """Wait until a process says in one line of its log what it refused, and return that."""

    def found() -> str | None:
        lines = farm.log(process).splitlines()
        return next((line for line in lines if all(word in line for word in words)), None)

    try:
        line = wait_until(found, f"{process} refuses {words}", within_s=_LOGGED_S)
    except AssertionError as error:
        raise Succeeded(f"{error}\n{farm.log(process)[-2000:]}") from None
    assert line is not None
    return f"{process}: " + line.split(": ", 1)[1].partition(" [")[0]


def _publish(
    farm: StrictFarm,
    url: str,
    envelope: dict[str, object],
    *,
    queue: str = REPORTS_QUEUE,
    task: str = REPORTS_TASK,
) -> None:
    farm.let_keys_be_known()
    with redis.Redis.from_url(url, socket_timeout=30) as client:
        client.lpush(queue, task_text(queue, task, envelope))


def _signed(
    by: AgentSecrets,
    message: object,
    *,
    name: str | None = None,
    direction: MessageDirection = MessageDirection.TO_SERVER,
    kind: str = REPORTS_TASK,
) -> dict[str, object]:
    """What somebody can sign with an agent's key, in its name or in another's."""
    envelope = {"version": WIRE_VERSION, "message": message}
    keys = [read_key(by.key)]
    return sign(envelope, keys, agent_id=name or by.name, direction=direction, kind=kind)


def _report(farm: StrictFarm, by: AgentSecrets, envelope: dict[str, object]) -> None:
    _publish(farm, by.broker_url, envelope, queue=own_queue(REPORTS_QUEUE, by.name))


def _unsigned_command(farm: StrictFarm) -> str:
    sender = Sender(farm.broker.url_of(SERVER))
    sender.send([("agent-1", StopAttempt(token=1, reason="because I say so"))])
    sender.close()
    return _logged(farm, "agent-1", "refused", "expected a signed message")


def _command_by_anothers_key(farm: StrictFarm) -> str:
    stolen = farm.add_agent("stolen-commander")
    task = command_task("stop_attempt")
    message = seal(StopAttempt(token=1, reason="because I say so"))["message"]
    to_agent = MessageDirection.TO_AGENT
    forged = _signed(stolen, message, name="agent-2", direction=to_agent, kind=task)
    sender = Sender(farm.broker.url_of(SERVER))
    stop = StopAttempt(token=1, reason="because I say so")
    sender.send([("agent-2", stop)], signer=lambda *_: forged)
    sender.close()
    return _logged(farm, "agent-2", "refused", "expected one by the agent's key")


def _repeated_command(farm: StrictFarm) -> str:
    """Send what the server may have signed once, for an attempt that is over."""
    go = Go(token=0, cluster={}, timeout_s=60.0)
    task, to_agent = command_task("go"), MessageDirection.TO_AGENT
    once = _signed(farm.secrets["agent-1"], seal(go)["message"], direction=to_agent, kind=task)
    sender = Sender(farm.broker.url_of(SERVER))
    sender.send([("agent-1", go)], signer=lambda *_: once)
    sender.close()
    return _logged(farm, "agent-1", "go is not for this rank")


def _unsigned_heartbeat(farm: StrictFarm) -> str:
    beat: dict[str, object] = {"version": WIRE_VERSION, "message": {"agent_id": "agent-2"}}
    server = farm.broker.url_of(SERVER)
    _publish(farm, server, beat, queue=HEARTBEATS_QUEUE, task=HEARTBEAT_TASK)
    return _logged(farm, "collector", "agent_id=agent-2", "expected a signed message")


def _changed_message(farm: StrictFarm) -> str:
    stolen = farm.add_agent("stolen-changed")
    envelope = _signed(stolen, {"agent_id": stolen.name, "generation": "a"})
    _report(farm, stolen, {**envelope, "signed": str(envelope["signed"]).replace('"a"', '"b"')})
    return _logged(farm, "collector", stolen.name, "expected one by the agent's key 1")


def _message_elsewhere(farm: StrictFarm) -> str:
    stolen = farm.add_agent("stolen-elsewhere")
    _report(farm, stolen, _signed(stolen, {"agent_id": stolen.name}, kind=HEARTBEAT_TASK))
    return _logged(farm, "collector", stolen.name, "expected one by the agent's key 1")


def _nonsense(farm: StrictFarm) -> str:
    with redis.Redis.from_url(farm.secrets["agent-2"].broker_url, socket_timeout=30) as client:
        client.lpush(own_queue(REPORTS_QUEUE, "agent-2"), "{" * 10_000)
    return _logged(farm, "collector", "from somebody else was dropped")


def _old_version(farm: StrictFarm) -> str:
    old: dict[str, object] = {"version": 7, "message": {"agent_id": "old-agent"}}
    _publish(farm, farm.broker.url_of(SERVER), old)
    return _logged(farm, "collector", "old-agent", "speaks wire version 7")


def _for_another(farm: StrictFarm) -> str:
    stolen = farm.add_agent("stolen-liar")
    _report(farm, stolen, _signed(stolen, {"agent_id": "agent-1"}))
    return _logged(farm, "collector", stolen.name, "who has signed")


def _in_anothers_name(farm: StrictFarm) -> str:
    stolen = farm.add_agent("stolen-mask")
    _report(farm, stolen, _signed(stolen, {"agent_id": "agent-1"}, name="agent-1"))
    return _logged(farm, "collector", "agent_id=agent-1", "expected one by the agent's key")


def _signed_nonsense(farm: StrictFarm) -> str:
    stolen = farm.add_agent("stolen-nonsense")
    _report(farm, stolen, _signed(stolen, ["no", "report"]))
    return _logged(farm, "collector", stolen.name, "agent_id: expected")


def _command(*words: str) -> Callable[[StrictFarm], str]:
    """Run a command of Redis's with an agent's account."""

    def act(farm: StrictFarm) -> str:
        url = farm.secrets["agent-2"].broker_url
        with redis.Redis.from_url(url, socket_timeout=30) as client:
            return refusal_of(
                lambda: client.execute_command(*words),
                redis.exceptions.NoPermissionError,
            )

    return act


def _after_removal(farm: StrictFarm) -> str:
    stolen = farm.add_agent("stolen-removed")
    with redis.Redis.from_url(stolen.broker_url, socket_timeout=30) as client:
        client.ping()
        farm.remove_agent(stolen.name)
        # The client connects anew by itself, so this is also what it is told then.
        return refusal_of(
            client.ping, redis.RedisError, says="invalid username-password|closed|reset"
        )


def _report_after_removal(farm: StrictFarm) -> str:
    stolen = farm.add_agent("stolen-ghost")
    farm.remove_agent(stolen.name)
    envelope = _signed(stolen, {"agent_id": stolen.name})
    _publish(farm, farm.broker.url_of(SERVER), envelope)
    return _logged(farm, "collector", stolen.name, "none, since none counts")


def _old_password(farm: StrictFarm) -> str:
    stolen = farm.add_agent("stolen-rotated")
    farm.command("agent", "rotate", stolen.name, "--grace-hours", "0")
    return refusal_of(
        lambda: ping(stolen.broker_url), redis.RedisError, says="invalid username-password"
    )


def _old_key(farm: StrictFarm) -> str:
    stolen = farm.add_agent("stolen-returned")
    farm.remove_agent(stolen.name)
    farm.add_agent(stolen.name)
    envelope = _signed(stolen, {"agent_id": stolen.name})
    _publish(farm, farm.broker.url_of(SERVER), envelope)
    return _logged(farm, "collector", stolen.name, "expected one by the agent's key 2")


def _of_agent(tried: str, line: str, act: Callable[[StrictFarm], str]) -> Attack:
    return Attack(Position.AGENT, tried, line, act)


_COMMANDS = "a stranger commands an agent"
_REPORTS = "a stranger reports"
_ACCOUNT = "it uses its account at the broker"
_VERSION = "an agent that was never given a key, or an old version"
_OTHER = agent_queue("agent-1")
MESSAGES = (
    Attack(Position.BROKER, "stop an agent's rank", _COMMANDS, _unsigned_command),
    Attack(Position.BROKER, "keep an agent alive by a heartbeat", _REPORTS, _unsigned_heartbeat),
    Attack(
        Position.BROKER,
        "repeat a command of an attempt that is over",
        "who repeats or delays messages",
        _repeated_command,
    ),
    Attack(
        Position.BROKER,
        "change a character of a report",
        "who changes a message on its way",
        _changed_message,
    ),
    Attack(
        Position.BROKER,
        "hand a heartbeat in as a report",
        "who sends a message elsewhere",
        _message_elsewhere,
    ),
    Attack(Position.BROKER, "speak an old version of the wire", _VERSION, _old_version),
    _of_agent("write nonsense into the reports", "who writes nonsense into a queue", _nonsense),
    _of_agent("stop another agent's rank", _COMMANDS, _command_by_anothers_key),
    _of_agent("report for another agent", "it lies", _for_another),
    _of_agent("report in another agent's name", "it wants other keys", _in_anothers_name),
    _of_agent("sign what is no report", "it signs nonsense", _signed_nonsense),
    _of_agent("read what others report", _ACCOUNT, _command("LRANGE", REPORTS_QUEUE, "0", "-1")),
    _of_agent("take others' reports away", _ACCOUNT, _command("BRPOP", REPORTS_QUEUE, "1")),
    _of_agent("take another agent's commands", _ACCOUNT, _command("BRPOP", _OTHER, "1")),
    _of_agent("write into another agent's queue", _ACCOUNT, _command("LPUSH", _OTHER, "x")),
    _of_agent(
        "fill the queue of another agent's reports",
        _ACCOUNT,
        _command("LPUSH", own_queue(REPORTS_QUEUE, "agent-1"), "x"),
    ),
    _of_agent(
        "fill the queue that all reports come to",
        _ACCOUNT,
        _command("LPUSH", REPORTS_QUEUE, "x"),
    ),
    _of_agent("wake the scheduler", _ACCOUNT, _command("LPUSH", "farm.wake", "1")),
    _of_agent("run a script", _ACCOUNT, _command("EVAL", "return 1", "0")),
    _of_agent("empty the broker", _ACCOUNT, _command("FLUSHALL")),
    _of_agent("list its keys", _ACCOUNT, _command("KEYS", "*")),
    _of_agent("listen to everybody", _ACCOUNT, _command("MONITOR")),
    _of_agent("change its settings", _ACCOUNT, _command("CONFIG", "SET", "maxmemory", "1")),
    _of_agent(
        "give itself every right",
        _ACCOUNT,
        _command("ACL", "SETUSER", "agent.agent-2", "allkeys", "+@all"),
    ),
    _of_agent("end the broker", _ACCOUNT, _command("SHUTDOWN", "NOSAVE")),
    _of_agent(
        "go on while its account is removed",
        "its account is removed while it is connected",
        _after_removal,
    ),
    _of_agent(
        "report after `farm agent remove`",
        "it stays after `farm agent remove`",
        _report_after_removal,
    ),
    _of_agent(
        "sign in with a password from before `farm agent rotate`",
        "it comes back with a key from before",
        _old_password,
    ),
    _of_agent(
        "report with a key from before its removal",
        "it comes back with a key from before",
        _old_key,
    ),
)

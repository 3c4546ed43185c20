"""A farm whose messages are signed: it works, and who is not let in changes nothing."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from farm.broker.sending import Sender
from farm.gang.lifecycle import JobState
from farm.keys.signing_key import make_signing_key, read_signing_key
from farm.messages.agent_keys import derive_key, key_text
from farm.messages.commands import StopAttempt
from farm.messages.envelope import WIRE_VERSION
from farm.store.agents.agent_keys import add_agent_key, remove_agent, rotate_agent_key
from farm.store.engine import reading, writing
from farm.store.schema import upgrade
from farm.store.tables import AgentRow
from tests.e2e.live_farm import LiveFarm, wait_until
from tests.fakes.former_agent import FORMER_WIRE_VERSION

NAMES = ("agent-1", "agent-2")
TRAINING = {"FAKE_TRAINER": "steps_s:0.1"}


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def signed_farm(home: Path) -> LiveFarm:
    """A farm of two agents with keys, not started yet."""
    farm_key = make_signing_key(home / "signing.key")
    farm = LiveFarm(
        home,
        server={"FARM_SIGNING_KEY_FILE": str(home / "signing.key")},
        agents={
            name: {"AGENT_KEY": key_text(derive_key(farm_key, name, 1)), **TRAINING}
            for name in NAMES
        },
    )
    upgrade(farm.engine)
    with writing(farm.engine) as session:
        for name in NAMES:
            add_agent_key(session, name, now=now())
    return farm


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[LiveFarm]:
    farm = signed_farm(tmp_path)
    try:
        farm.start(agent_count=2)
        yield farm
    finally:
        farm.stop()


def log_of(farm: LiveFarm, name: str) -> str:
    return (farm.home / "logs" / f"{name}.log").read_text()


def test_jobs_run_while_strangers_talk_and_a_key_is_replaced(farm: LiveFarm) -> None:
    # An agent of an older version, with a key that counts.
    with writing(farm.engine) as session:
        number = add_agent_key(session, "former", now=now()).number
    key = derive_key(read_signing_key(farm.home / "signing.key"), "former", number)
    begun_s = time.monotonic()
    farm.start_former_agent(AGENT_KEY=key_text(key))
    sweep_id = farm.submit(steps=30)
    token = farm.wait_for_state(sweep_id, JobState.RUNNING).attempt_id
    assert token is not None
    # Somebody with access to the broker, who knows every name and number.
    sender = Sender(farm.redis.url)
    sender.send([("agent-1", StopAttempt(token=token, reason="because I say so"))])
    sender.publish_heartbeat({"version": WIRE_VERSION, "message": {"agent_id": "agent-2"}})
    sender.close()
    with writing(farm.engine) as session:
        rotate_agent_key(session, "agent-2", now=now(), grace=dt.timedelta(hours=1))
    [job] = farm.wait_for_end(sweep_id)
    assert job.state is JobState.SUCCEEDED, farm.story(sweep_id)
    assert len(farm.attempts(job.id)) == 1, farm.story(sweep_id)
    wait_until(lambda: "expected a signed message" in log_of(farm, "collector"), "a refusal")
    assert "agent.stop_attempt: signature: expected a signed message" in log_of(farm, "agent-1")
    assert_refused_in_one_line(farm, within_s=time.monotonic() - begun_s)


def assert_refused_in_one_line(farm: LiveFarm, *, within_s: float) -> None:
    """Of the agent `former`, on both sides; one line a minute, however many messages there are."""

    def lines(name: str) -> list[str]:
        return [line for line in log_of(farm, name).splitlines() if "wire version" in line]

    wait_until(lambda: lines("former"), "the agent says what is wrong")
    assert (
        f"expected wire version {FORMER_WIRE_VERSION}: server and agents need the same benchfarm, "
        f"got {WIRE_VERSION}"
    ) in lines("former")[0]
    assert (
        f"agent speaks wire version {FORMER_WIRE_VERSION}, and this server {WIRE_VERSION}: install "
    ) in lines("collector")[0]
    most = 1 + within_s // 60
    assert len(lines("former")) <= most
    assert len(lines("collector")) <= most
    with reading(farm.engine) as session:
        assert session.get(AgentRow, "former") is None


def test_a_removed_agent_is_cut_off_and_its_gang_is_free(farm: LiveFarm) -> None:
    sweep_id = farm.submit(steps=600)
    token = farm.wait_for_state(sweep_id, JobState.RUNNING).attempt_id
    assert token is not None
    with writing(farm.engine) as session:
        remove_agent(session, "agent-2", now=now())

    def is_free() -> bool:
        with reading(farm.engine) as session:
            return session.get_one(AgentRow, "agent-1").attempt_id is None

    wait_until(is_free, "the other member of the gang is free", within_s=15)
    wait_until(lambda: not farm.trainers_of("agent-2"), "the removed agent has ended its rank")
    wait_until(lambda: "none, since none counts" in log_of(farm, "collector"), "a refusal")
    [job] = farm.jobs(sweep_id)
    assert job.state is JobState.WAITING

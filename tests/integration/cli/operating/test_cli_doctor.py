"""`farm doctor` against a real Redis and a real store: in order, half down, frozen, and down."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import pytest
import redis
import sqlalchemy as sa

import farm.broker.health_records
import farm.diagnosis.broker
import farm.diagnosis.server
from farm import __version__
from farm.broker.celery_app import HEARTBEATS_QUEUE, REPORTS_QUEUE, open_client, own_queue
from farm.broker.health_records import COLLECTOR, SCHEDULER, HealthReporter, read_health_records
from farm.cli.sweeps.watch import SweepWatch
from farm.configuration.spec import TENSORFLOW
from farm.embedded.redis import free_port
from farm.gang.lifecycle import AttemptState
from farm.messages.agents import CLOSES_PORTS, AgentState, Hardware
from farm.messages.envelope import WIRE_VERSION, UnknownVersion
from farm.messages.trainer_lines import FailureKind
from farm.settings.server import load_settings
from farm.store.agents.agent_keys import add_agent_key
from farm.store.engine import writing
from farm.store.maintenance.partitions import make_partitions
from farm.store.tables import AgentRow, AttemptRow, JobRow
from tests import factories
from tests.commands.farm_command import FarmCommand
from tests.facts import lacking
from tests.fakes.former_agent import FORMER_WIRE_VERSION
from tests.fakes.server import wait_until
from tests.services.redis_server import RedisServer
from tests.web.web_client import client_of

HARDWARE = Hardware(
    cpu_model="A CPU",
    core_count=1,
    memory_bytes=8 * 2**30,
    kernel="6.1.0",
    tensorflow_version="2.21.0",
    python_version="3.11.7",
    benchfarm_version=__version__,
)


class Doctor:
    """The command, what it found by check, and its exit status."""

    def __init__(self, command: FarmCommand) -> None:
        self._command = command

    def ask(self, *options: str) -> tuple[int, dict[str, Any]]:
        result = self._command.run("doctor", "--json", *options)
        answer = json.loads(result.stdout)
        assert answer["is_well"] is (result.exit_code == 0)
        return result.exit_code, {check["name"]: check for check in answer["checks"]}

    def levels(self, *options: str) -> dict[str, str]:
        return {name: check["level"] for name, check in self.ask(*options)[1].items()}

    def words(self, check: str) -> str:
        found = self.ask()[1][check]["findings"]
        return "\n".join(f"{f['what']} -> {f['remedy']}" for f in found)


# A machine that is busy with other tests may do nothing for seconds: nobody is silent, slow or idle
# for that.
LEASE_S = 3600.0
PATIENCE_S = 600.0
# This machine by a name that does not tell so.
ELSEWHERE = "127.1"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARM_LEASE_S", f"{LEASE_S:g}")
    monkeypatch.setattr(farm.broker.health_records, "KEPT_S", PATIENCE_S)
    monkeypatch.setattr(farm.diagnosis.server, "IDLE_LIMIT_S", PATIENCE_S)
    for judge in (farm.diagnosis.broker, farm.diagnosis.server):
        monkeypatch.setattr(judge, "SLOW_S", PATIENCE_S)


@pytest.fixture
def command(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    make_partitions(engine, today=dt.datetime.now(dt.UTC).date())  # as `farm db upgrade` does
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


@pytest.fixture
def doctor(command: FarmCommand, broker: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """A farm whose store and broker are there, and nobody else."""
    monkeypatch.setenv("FARM_BROKER_URL", broker.url)
    return Doctor(command)


class Clock:
    """The monotonic clock, set ahead as if time had passed."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def running(broker: RedisServer, clock: Clock) -> Iterator[dict[str, HealthReporter]]:
    """The records of a scheduler and a collector that work."""
    records = {
        name: HealthReporter(name, broker.url, clock=clock) for name in (SCHEDULER, COLLECTOR)
    }
    for record in records.values():
        record.worked()
        record.start()
    wait_until(lambda: len(records_in(broker)) == 2, "both records are there")
    yield records
    for record in records.values():
        record.stop()


@pytest.fixture
def alive(engine: sa.Engine) -> str:
    """An agent with a fresh heartbeat and everything that one may wish for."""
    facts = factories.agent_facts(
        hardware=HARDWARE, capabilities=("network", CLOSES_PORTS, TENSORFLOW)
    )
    with writing(engine) as session:
        return factories.add_agent(
            session, "a1", facts=facts, heartbeat_at=dt.datetime.now(dt.UTC), clock_offset_s=0.01
        )


def test_a_job_that_could_start_says_that_no_scheduler_works(
    doctor: Doctor, command: FarmCommand, engine: sa.Engine, broker: RedisServer, alive: str
) -> None:
    with writing(engine) as session:
        job_id = factories.add_job(session)
        sweep_id = session.get_one(JobRow, job_id).sweep_id
    watch = SweepWatch(engine, sweep_id, settings=load_settings(os.environ))

    def waits() -> str | None:
        because = command.json("job", str(job_id))["waits_because"]
        groups = command.json("status")["waiting_reasons"]
        assert [group["reason"] for group in groups] == [because]
        assert watch.look().reason == because
        return str(because)

    assert "no scheduler runs" in str(waits())
    health = HealthReporter(SCHEDULER, broker.url)
    health.failed("the store is away")
    health.start()
    try:
        wait_until(lambda: len(records_in(broker)) == 1, "the record is there")
        assert waits() == "the scheduler cannot do its work: `farm doctor` says more"
    finally:
        health.stop()
    broker.kill()
    assert "does not answer" in str(waits())


def test_a_clock_that_was_set_is_told_of(doctor: Doctor, broker: RedisServer) -> None:
    health = HealthReporter(SCHEDULER, broker.url)
    health.worked()
    health.clock_stepped(-3600.0)
    health.start()
    try:
        wait_until(lambda: len(records_in(broker)) == 1, "the record is there")
        assert "was set back by 1 h" in doctor.words("scheduler")
    finally:
        health.stop()


def records_in(broker: RedisServer) -> list[Any]:
    with open_client(broker.url, timeout_s=5) as client:
        return read_health_records(client)


@pytest.mark.usefixtures("running", "alive")
def test_a_farm_in_order_is_well(doctor: Doctor, broker: RedisServer) -> None:
    with broker.client() as client:
        client.config_set("appendonly", "yes")
    status, checks = doctor.ask()
    assert {name: check["level"] for name, check in checks.items() if check["level"] != "well"} in (
        {},
        {"disks": "doubt"},  # of the machine that runs this test
    )
    assert status == 0


@pytest.mark.usefixtures("alive")
def test_it_is_read_line_by_line(doctor: Doctor, command: FarmCommand) -> None:
    result = command.run("doctor")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    [scheduler] = [n for n, line in enumerate(lines) if line.split()[:2] == ["wrong", "scheduler"]]
    remedy = lines[scheduler + 1].split()
    assert remedy[0] == "->"
    assert "`systemctl start farm-scheduler`" in " ".join(remedy)
    [heartbeats] = [line for line in lines if line.split()[:2] == ["well", "heartbeats"]]
    assert lacking(heartbeats, "1 agent", "0 of them") == []
    assert lacking(lines[-1], "2 things wrong", "1 to look at") == []  # and Redis keeps nothing


def test_with_everything_away_it_says_that_and_no_more(
    command: FarmCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARM_DATABASE_URL", f"sqlite:///{tmp_path}/no.db")
    levels = Doctor(command).levels()
    assert levels.pop("certificates") == "well"  # a farm without TLS has none
    assert {name for name, level in levels.items() if level == "wrong"} == {"broker", "database"}
    assert set(levels.values()) == {"wrong", "unknown"}
    assert not (tmp_path / "no.db").exists()


@pytest.mark.usefixtures("alive")
def test_without_a_broker_the_rest_is_still_examined(command: FarmCommand) -> None:
    levels = Doctor(command).levels()
    assert (levels["broker"], levels["scheduler"], levels["collector"]) == (
        "wrong",
        "unknown",
        "unknown",
    )
    assert (levels["database"], levels["heartbeats"], levels["queue"]) == ("well",) * 3


@pytest.mark.usefixtures("alive")
def test_a_frozen_broker_does_not_keep_it_from_answering(
    doctor: Doctor, broker: RedisServer
) -> None:
    broker.freeze()
    levels = doctor.levels()
    assert (levels["broker"], levels["scheduler"]) == ("wrong", "unknown")
    assert (levels["database"], levels["heartbeats"], levels["versions"]) == ("well",) * 3


@pytest.mark.usefixtures("alive")
def test_what_does_not_answer_in_time_is_left_behind(doctor: Doctor, broker: RedisServer) -> None:
    broker.freeze()
    _, checks = doctor.ask("--limit-s", "1")
    [finding] = checks["broker"]["findings"]
    assert (finding["level"], finding["what"]) == ("wrong", "there was no answer within 1 s")


def test_a_store_from_before_the_first_release_asks_for_a_conversion(
    doctor: Doctor, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        session.execute(sa.text("UPDATE alembic_version SET version_num = 'first_release'"))
    assert "has schema first_release" in doctor.words("database")
    assert "-> run `farm db convert`" in doctor.words("database")
    assert doctor.words("queue") == "is not known: see database -> None"


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_a_store_that_takes_no_writes_is_wrong(
    doctor: Doctor, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = f"reader_{uuid.uuid4().hex}"
    with engine.begin() as connection:
        connection.execute(sa.text(f"CREATE ROLE {reader} LOGIN PASSWORD 'hush'"))
        connection.execute(sa.text(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {reader}"))
    url = engine.url.set(username=reader, password="hush").render_as_string(hide_password=False)
    monkeypatch.setenv("FARM_DATABASE_URL", url)
    try:
        words = doctor.words("database")
    finally:
        with engine.begin() as connection:
            connection.execute(sa.text(f"DROP OWNED BY {reader}"))
            connection.execute(sa.text(f"DROP ROLE {reader}"))
    assert "permission denied for table spool_positions" in words
    assert "hush" not in words


def test_looking_leaves_nothing_in_the_store(doctor: Doctor, engine: sa.Engine) -> None:
    doctor.ask()
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM spool_positions")) == 0


def test_a_scheduler_that_cannot_work_says_why(
    doctor: Doctor, running: dict[str, HealthReporter], broker: RedisServer
) -> None:
    running[SCHEDULER].failed("database is away")
    running[SCHEDULER].write()
    assert "cannot do its work: database is away" in doctor.words("scheduler")
    running[SCHEDULER].worked()
    running[SCHEDULER].write()
    assert doctor.levels()["scheduler"] == "well"
    running[SCHEDULER].stop()
    assert [record.process for record in records_in(broker)] == [COLLECTOR]
    assert "no scheduler runs" in doctor.words("scheduler")


@pytest.mark.usefixtures("running")
def test_a_sign_ends_by_itself(broker: RedisServer) -> None:
    [one, _] = records_in(broker)
    assert 0 <= one.age_s < PATIENCE_S
    with broker.client() as client:
        for key in client.scan_iter("farm.alive.*"):
            assert 0 < client.pttl(key) <= PATIENCE_S * 1000


RECORD = {
    "process": COLLECTOR,
    "host": "h",
    "pid": 1,
    "benchfarm_version": "1",
    "wire_version": WIRE_VERSION,
    "up_s": 1.0,
    "worked_s": 1.0,
}
OWN_KEY = "farm.alive.collector.h.1"


@pytest.mark.parametrize(
    ("key", "text", "kept_ms"),
    [
        ("farm.alive.scheduler.stranger.1", "no record at all", 5000),
        ("farm.alive.\udcff", "[" * 100_000, 5000),
        (OWN_KEY, "[" * 100_000 + "]" * 100_000, 5000),
        (OWN_KEY, '{"strangers": ' * 5000 + "1" + "}" * 5000, 5000),
        (OWN_KEY, json.dumps({**RECORD, "host": "h\ud800"}), 5000),
        ("farm.alive.collector.h\udcff.1", json.dumps({**RECORD, "host": "h\udcff"}), 5000),
        (OWN_KEY, json.dumps({**RECORD, "worked_s": float("nan")}), 5000),
        (OWN_KEY, json.dumps({**RECORD, "up_s": 10**400}), 5000),
        (OWN_KEY, json.dumps({**RECORD, "pid": 10**30}), 5000),
        ("farm.alive.collector.h.1.again", json.dumps(RECORD), 5000),  # as one that is there
        ("farm.alive.spy.h.1", json.dumps({**RECORD, "process": "spy"}), 5000),
        (OWN_KEY, json.dumps(RECORD), None),  # it would never end
        (OWN_KEY, json.dumps(RECORD), 10**9),
        (OWN_KEY, None, 5000),  # no text
    ],
)
def test_what_is_no_sign_is_passed_over(
    engine: sa.Engine, broker: RedisServer, key: str, text: str | None, kept_ms: int | None
) -> None:
    with redis.Redis(port=broker.port) as client:
        name = key.encode(errors="surrogateescape")
        if text is None:
            client.rpush(name, "a list")
        else:
            client.set(name, text.encode(errors="surrogateescape"), px=kept_ms)
    assert records_in(broker) == []
    metrics_text = metrics(engine, broker)
    assert "\nfarm_broker_up 1\n" in metrics_text
    assert '\nfarm_processes{process="collector"} 0\n' in metrics_text


def test_no_text_of_a_sign_breaks_what_shows_it(engine: sa.Engine, broker: RedisServer) -> None:
    record = {**RECORD, "trouble": "half \ud800", "strangers": {"a\ud800": 1}, "host": 'h"\n'}
    with broker.client() as client:
        client.set('farm.alive.collector.h"\n.1', json.dumps(record), px=5000)
    [read] = records_in(broker)
    read.trouble.encode()
    lines = [x for x in metrics(engine, broker).splitlines() if "worked_ago_seconds{" in x]
    assert [line.partition(" ")[0] for line in lines] == [
        r'farm_process_worked_ago_seconds{process="collector",host="h\"\n",pid="1"}'
    ]


@pytest.mark.usefixtures("alive")
def test_a_backlog_is_told(
    doctor: Doctor, running: dict[str, HealthReporter], broker: RedisServer, engine: sa.Engine
) -> None:
    with broker.client() as client:
        client.rpush(HEARTBEATS_QUEUE, *["beat"] * 60)
    with writing(engine) as session:
        agent = session.get_one(AgentRow, "a1")
        agent.backlog_count, agent.backlog_bytes, agent.report_lag_s = 12, 3400, 45.0
    assert lacking(doctor.words("collector"), "60 heartbeats", "0 batches") == []
    assert lacking(doctor.words("reports"), "a1", "12 reports", "3.40 kB", "45.0 s") == []


def add_keys(engine: sa.Engine, *names: str) -> None:
    with writing(engine) as session:
        for name in names:
            add_agent_key(session, name, now=dt.datetime.now(dt.UTC))


@pytest.mark.usefixtures("alive", "running")
def test_a_backlog_in_queues_of_the_agents_own_is_told(
    doctor: Doctor, broker: RedisServer, engine: sa.Engine
) -> None:
    add_keys(engine, "a1", "a2")
    with broker.client() as client:
        client.rpush(HEARTBEATS_QUEUE, *["beat"] * 5)
        client.rpush(own_queue(HEARTBEATS_QUEUE, "a1"), "beat")
        client.rpush(own_queue(HEARTBEATS_QUEUE, "a2"), *["beat"] * 60)
        client.rpush(own_queue(REPORTS_QUEUE, "a2"), *["batch"] * 20)
    words = doctor.words("collector")
    assert "66 heartbeats and 20 batches of reports wait" in words
    assert "most of what waits is from a2: 80 messages" in words
    metrics_text = metrics(engine, broker)
    assert '\nfarm_queue_messages{queue="heartbeats"} 66\n' in metrics_text
    assert '\nfarm_queue_messages{queue="reports"} 20\n' in metrics_text


@pytest.mark.usefixtures("alive", "running")
def test_an_own_queue_of_another_type_is_named_and_the_others_are_counted(
    doctor: Doctor, broker: RedisServer, engine: sa.Engine
) -> None:
    add_keys(engine, "a1", "a2")
    odd = own_queue(REPORTS_QUEUE, "a1")
    with broker.client() as client:
        client.set(odd, "of another program")
        client.rpush(own_queue(HEARTBEATS_QUEUE, "a2"), *["beat"] * 60)
    words = doctor.words("collector")
    assert lacking(words, odd, "60 heartbeats", "0 batches") == []


@pytest.mark.usefixtures("running")
def test_the_shared_queues_are_counted_while_the_store_is_away(
    doctor: Doctor, broker: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARM_DATABASE_URL", "sqlite:////nowhere/farm.db")
    with broker.client() as client:
        client.rpush(HEARTBEATS_QUEUE, *["beat"] * 60)
    words = doctor.words("collector")
    assert lacking(words, "60 heartbeats", "0 batches", "see database") == []


def test_a_collector_that_lives_and_takes_nothing_is_wrong(
    doctor: Doctor, running: dict[str, HealthReporter], broker: RedisServer, clock: Clock
) -> None:
    clock.ahead_s = 2 * PATIENCE_S
    running[COLLECTOR].write()
    assert doctor.levels()["collector"] == "well"  # for nothing waits
    with broker.client() as client:
        client.rpush(HEARTBEATS_QUEUE, "beat")
    words = doctor.words("collector")
    assert lacking(words, "20 min", "1 heartbeat", "0 batches") == []


def test_a_collector_whose_first_work_comes_just_now_is_well(
    doctor: Doctor, running: dict[str, HealthReporter], broker: RedisServer, clock: Clock
) -> None:
    """Its record says that it was idle for long, and is some seconds old."""
    clock.ahead_s = 2 * PATIENCE_S
    running[COLLECTOR].write()
    with broker.client() as client:
        client.rpush(HEARTBEATS_QUEUE, "beat")
    running[COLLECTOR].worked()
    assert doctor.levels()["collector"] == "well"


@pytest.mark.usefixtures("alive")
def test_agents_are_examined_one_by_one(
    doctor: Doctor, running: dict[str, HealthReporter], engine: sa.Engine
) -> None:
    now = dt.datetime.now(dt.UTC)
    running[COLLECTOR].note_unknown_version(UnknownVersion("old-one", FORMER_WIRE_VERSION))
    running[COLLECTOR].write()
    stuck = factories.agent_facts(trouble="tc: not permitted")
    with writing(engine) as session:
        factories.add_agent(session, "a2", heartbeat_at=now, facts=stuck, clock_offset_s=3600.0)
        factories.add_agent(session, "a3", heartbeat_at=now - dt.timedelta(hours=2))
        factories.add_agent(
            session, "a4", heartbeat_at=now, state=AgentState.SPOOL_FULL, disk_free_bytes=1000
        )
        token = factories.add_attempt(session, factories.add_job(session), ["a3"])
        session.get_one(AgentRow, "a3").lease_expires_at = now - dt.timedelta(minutes=4)
        lost = factories.add_attempt(session, factories.add_job(session), state=AttemptState.LOST)
        attempt = session.get_one(AttemptRow, lost)
        attempt.failure_kind, attempt.ended_at = FailureKind.AGENT_LOST.value, now
        attempt.reason = "no fresh heartbeat within the lease from a3"
        for state, kind in ((AttemptState.VOID, "disturbed"), (AttemptState.SUCCEEDED, None)):
            ended = factories.add_attempt(session, factories.add_job(session), state=state)
            attempt = session.get_one(AttemptRow, ended)
            attempt.failure_kind, attempt.ended_at = kind, now
            attempt.reason = "others took 40 % of the cores" if kind else None
        factories.add_job(session, factories.job_spec(labels={"kind": "rare"}))
    assert "1 of 2 attempts of the last hour were void" in doctor.words("noise")
    assert "(others took 40 % of the cores)" in doctor.words("noise")
    assert "a2 takes no rank: tc: not permitted" in doctor.words("heartbeats")
    assert "silent: a3 for 2 h" in doctor.words("heartbeats")
    assert f"old-one speaks wire version {FORMER_WIRE_VERSION}" in doctor.words("versions")
    assert "a2's clock is 1 h ahead" in doctor.words("clocks")
    assert "a4 takes no rank: its spool is full" in doctor.words("reports")
    assert f"the lease of a3 for attempt {token} ran out 4 min" in doctor.words("leases")
    assert lacking(doctor.words("leases"), "agent was lost", "from a3") == []
    assert "a4's disk has only 1.00 kB left" in doctor.words("disks")
    assert "labels kind=rare: no agent" in doctor.words("queue")


def test_a_broker_whose_settings_lose_messages_is_wrong(
    doctor: Doctor, broker: RedisServer
) -> None:
    with broker.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    assert "(maxmemory-policy allkeys-lru)" in doctor.words("broker")
    assert "appendonly is off; it keeps nothing at all" in doctor.words("broker")


def test_a_broker_with_a_password_asks_for_it(
    doctor: Doctor, broker: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with broker.client() as client:
        client.config_set("requirepass", "hush")
    words = doctor.words("broker")
    assert "refused the account or its password" in words
    assert "check FARM_BROKER_URL" in words
    monkeypatch.setenv("FARM_BROKER_URL", broker.url.replace("//", "//:hush@"))
    words = doctor.words("broker")
    assert "Redis" in words
    assert "hush" not in words
    with redis.Redis.from_url(f"redis://:hush@127.0.0.1:{broker.port}/0") as client:
        client.config_set("requirepass", "")


def test_a_broker_whose_account_may_not_all_says_what_is_lacking(
    doctor: Doctor,
    broker: RedisServer,
    running: dict[str, HealthReporter],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FARM_BROKER_URL", account(broker, "+@all", "-info", "-client", "-config"))
    words = doctor.words("broker")
    assert lacking(words, "'limited'", "INFO", "CONFIG GET") == []
    assert "`ACL SETUSER limited +info`" in words
    assert "bug" not in words
    assert (doctor.levels()["scheduler"], doctor.levels()["collector"]) == ("well", "well")


@pytest.mark.parametrize(
    ("rules", "check", "message", "remedy"),
    [
        (["+@all", "-scan"], "scheduler", "may not run SCAN", "+scan"),
        (["+@all", "-ping"], "broker", "may not run PING", "+ping"),
        (["+@all", "resetkeys", "~other"], "collector", "may not read the farm's keys", "~farm.*"),
    ],
)
def test_what_the_broker_forbids_is_told_by_who_needs_it(
    doctor: Doctor,
    broker: RedisServer,
    running: dict[str, HealthReporter],
    monkeypatch: pytest.MonkeyPatch,
    rules: list[str],
    check: str,
    message: str,
    remedy: str,
) -> None:
    monkeypatch.setenv("FARM_BROKER_URL", account(broker, *rules))
    _, checks = doctor.ask()
    [finding] = checks[check]["findings"]
    assert (finding["level"], message in finding["what"]) == ("doubt", True)
    assert f"grant it that right (`ACL SETUSER limited {remedy}`)" in finding["remedy"]
    assert checks["database"]["level"] == "well"


def account(broker: RedisServer, *rules: str) -> str:
    """Make a broker's account and return its URL."""
    with broker.client() as client:
        client.execute_command("ACL", "SETUSER", "limited", "on", ">hush", "~*", "&*", *rules)
    return broker.url.replace("//", "//limited:hush@")


@pytest.mark.parametrize("default", ["off", "on nopass -@all", "on nopass +@all"])
@pytest.mark.parametrize("place", ["//limited:hush@{}", "//{}?username=limited&password=hush"])
def test_who_proves_nothing_is_refused_or_that_is_wrong(
    doctor: Doctor,
    broker: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    default: str,
    place: str,
) -> None:
    account(broker, "+@all")
    monkeypatch.setenv("FARM_PLAINTEXT", "broker")
    with broker.client() as client:
        client.execute_command("ACL", "SETUSER", "default", *default.split())
    rest = broker.url.partition("//")[2].replace("127.0.0.1", ELSEWHERE)
    monkeypatch.setenv("FARM_BROKER_URL", f"redis:{place.format(rest)}")
    words = doctor.words("broker")
    assert ("it requires no password" in words) is (default == "on nopass +@all")
    assert "hush" not in words


@pytest.mark.parametrize("asks_certificate", [True, False])
def test_a_certificate_is_as_good_as_a_password(
    doctor: Doctor,
    broker: RedisServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asks_certificate: bool,
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=farm", "-addext", f"subjectAltName=DNS:{ELSEWHERE}"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, stderr=DEVNULL)
    port = free_port()
    files = {"tls-cert-file": certificate, "tls-key-file": key, "tls-ca-cert-file": certificate}
    settings = [f"{text}" for pair in files.items() for text in pair]
    with broker.client() as client:
        try:
            client.execute_command("CONFIG", "SET", *settings, "tls-port", port)
        except redis.ResponseError as error:
            pytest.skip(f"this Redis has no TLS: {error}")
        client.config_set("tls-auth-clients", "yes" if asks_certificate else "no")
    query = f"ssl_ca_certs={certificate}&ssl_certfile={certificate}&ssl_keyfile={key}"
    monkeypatch.setenv("FARM_BROKER_URL", f"rediss://{ELSEWHERE}:{port}/0?{query}")
    words = doctor.words("broker")
    assert f"at rediss://{ELSEWHERE}:{port}/0 answers" in words
    assert ("it requires no password" in words) is not asks_certificate


@pytest.mark.parametrize("options", [["--limit-s", "0"], ["now"], ["--loud"]])
def test_wrong_usage_ends_with_status_2(command: FarmCommand, options: list[str]) -> None:
    assert command.run("doctor", *options).exit_code == 2


def metrics(engine: sa.Engine, broker: RedisServer) -> str:
    settings = {"FARM_BROKER_URL": broker.url, "FARM_LEASE_S": f"{LEASE_S:g}"}
    return client_of(engine, **settings).get("/metrics").get_data(as_text=True)


@pytest.mark.usefixtures("alive")
def test_metrics_tell_the_same(
    engine: sa.Engine, broker: RedisServer, running: dict[str, HealthReporter]
) -> None:
    with writing(engine) as session:
        agent = session.get_one(AgentRow, "a1")
        agent.backlog_count, agent.backlog_bytes, agent.report_lag_s = 12, 3400, 45.0
        agent.disk_free_bytes = 10**10
        lost = factories.add_attempt(session, factories.add_job(session), state=AttemptState.LOST)
        session.get_one(AttemptRow, lost).failure_kind = FailureKind.AGENT_LOST.value
        old = dt.datetime.now(dt.UTC) - dt.timedelta(days=2)
        factories.add_agent(session, "gone", heartbeat_at=old, clock_offset_s=1.0)
    with broker.client() as client:
        client.rpush(HEARTBEATS_QUEUE, "beat", "beat")
    text = metrics(engine, broker)
    for line in (
        "farm_broker_up 1",
        'farm_queue_messages{queue="heartbeats"} 2',
        'farm_queue_messages{queue="reports"} 0',
        'farm_processes{process="scheduler"} 1',
        "farm_lease_expiries_total 1",
        'farm_attempt_failures_total{kind="agent_lost"} 1',
        'farm_attempt_failures_total{kind="stalled"} 0',
        'farm_agent_heartbeats_total{agent="a1"} 1',
        'farm_agent_clock_offset_seconds{agent="a1"} 0.01',
        'farm_agent_spool_reports{agent="a1"} 12',
        'farm_agent_spool_bytes{agent="a1"} 3400',
        'farm_agent_report_lag_seconds{agent="a1"} 45',
        'farm_agent_disk_free_bytes{agent="a1"} 10000000000',
    ):
        assert f"\n{line}" in text, line
    assert "farm_process_worked_ago_seconds{process=" in text
    assert 'farm_agent_heartbeat_age_seconds{agent="a1"}' in text
    assert "gone" not in text


def test_what_a_silent_agent_holds_back_is_told_until_it_is_drained(
    engine: sa.Engine, broker: RedisServer
) -> None:
    now = dt.datetime.now(dt.UTC)
    held: dict[str, Any] = {"backlog_count": 12, "backlog_bytes": 3400, "report_lag_s": 45.0}
    ages = {"lately": dt.timedelta(hours=2), "long": dt.timedelta(days=3)}
    with writing(engine) as session:
        for name, age in ages.items():
            factories.add_agent(session, name, heartbeat_at=now - age, **held)
        factories.add_agent(
            session, "given-up", heartbeat_at=now - ages["long"], is_drained=True, **held
        )
        factories.add_agent(session, "empty", heartbeat_at=now - ages["long"], backlog_count=0)
    text = metrics(engine, broker)
    for name in ages:
        assert f'\nfarm_agent_spool_reports{{agent="{name}"}} 12\n' in text
        assert f'\nfarm_agent_spool_bytes{{agent="{name}"}} 3400\n' in text
        assert f'\nfarm_agent_report_lag_seconds{{agent="{name}"}} 45\n' in text
    [age] = re.findall(r'heartbeat_age_seconds{agent="long"} ([0-9]+)', text)
    assert int(age) >= ages["long"].total_seconds() - 1
    assert "given-up" not in text
    assert "empty" not in text


def test_metrics_say_that_the_broker_is_away(engine: sa.Engine) -> None:
    text = client_of(engine).get("/metrics").get_data(as_text=True)
    assert "\nfarm_broker_up 0\n" in text
    assert "farm_queue_messages{" not in text
    assert "farm_processes{" not in text

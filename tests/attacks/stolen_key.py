"""A stolen agent's key in the hands of a program that does its worst, beside a farm at work.

`python -m tests.attacks.stolen_key` lets it work for ten minutes on the signed wire, and
`--strict` on a farm in its strictest setting, with TLS. Both have an account at the broker for each
agent. Quiet times and attacks take turns, so that what else the machine does meets both: measured
are the others' heartbeats, from the broker to the confirmation, and their jobs, from the order to
the end; and how much store and broker have grown. Status 1: a limit is exceeded.
"""

from __future__ import annotations

import argparse
import base64
import datetime as dt
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psutil
import sqlalchemy as sa

from farm.broker.accounts import BrokerAccounts, agent_url
from farm.broker.celery_app import HEARTBEAT_TASK, agent_queue, open_client
from farm.broker.sending import Sender
from farm.gang.lifecycle import FINAL_JOB_STATES, JobState
from farm.keys.signing_key import make_signing_key
from farm.messages.agent_keys import derive_key, key_text, read_key
from farm.messages.agents import AgentState
from farm.messages.envelope import seal
from farm.messages.signing import MessageDirection, sign
from farm.store.agents.agent_keys import add_agent_key
from farm.store.engine import reading, writing
from tests.attacks.liar import READY
from tests.e2e.live_farm import REPOSITORY, LiveFarm, wait_until
from tests.e2e.security.strict_farm import AgentSecrets, strict_farm
from tests.factories import agent_facts, heartbeat
from tests.services.postgres_server import PostgresServer

LENGTH_S = 600.0
TIMES_SLOWER = 2.0
MOST_STORE_BYTES = 50 * 2**20
# Shorter ones are taken for so long: an agent beats each 5 s, and no lease notices a second.
LEAST_BEAT_S, LEAST_JOB_S = 0.5, 2.0
_QUIET_S, _ATTACK_S = 12.0, 48.0  # take turns
_BEAT_EVERY_S = 0.5
_BEAT_WITHIN_S = 60.0
_HONEST, _LIAR, _PROBE = "honest", "liar", "probe"
# Other programs of a machine may empty its firewall, which voids what is measured meanwhile.
_SETTINGS = {"AGENT_LABELS": f"kind={_HONEST}", "AGENT_CLOSES_PORTS": "never"}
_LEASE_S = "60"  # as in the strictest farm
_TRAINING = {"FAKE_TRAINER": "steps_s:0.01"}
_AGENT_COUNT = 2
_NICE = 10  # the program runs on another machine; here it shares the farm's cores


class Farm(Protocol):
    """What an attack needs of a `LiveFarm`."""

    engine: sa.Engine
    processes: dict[str, subprocess.Popen[bytes]]
    secrets: dict[str, AgentSecrets]
    redis: Any

    def submit(self, **axes: object) -> int: ...

    def jobs(self, sweep_id: int) -> list[Any]: ...

    def story(self, sweep_id: int) -> str: ...


@dataclass(slots=True)
class Delays:
    """Of heartbeats and jobs, in seconds."""

    beats_s: list[float] = field(default_factory=list)
    jobs_s: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """`lost_beats`: not confirmed within a minute. The store's growth has that of all jobs."""

    quiet: Delays = field(default_factory=Delays)
    attacked: Delays = field(default_factory=Delays)
    attack_s: float = 0.0
    lost_beats: int = 0
    failed_jobs: int = 0
    liars_jobs: int = 0
    store_bytes: int = 0
    broker_peak_bytes: int = 0
    collector_peak_bytes: int = 0

    def excesses(self) -> list[str]:
        """Say which limits are exceeded."""
        found = []
        for what, quiet, attacked, least_s in (
            ("heartbeats", self.quiet.beats_s, self.attacked.beats_s, LEAST_BEAT_S),
            ("jobs", self.quiet.jobs_s, self.attacked.jobs_s, LEAST_JOB_S),
        ):
            for name, share in (("p50", 0.5), ("p95", 0.95)):
                most_s = TIMES_SLOWER * max(least_s, quantile(quiet, share))
                if quantile(attacked, share) > most_s:
                    found.append(
                        f"{what}, {name}: {quantile(attacked, share):.3f} s, at most {most_s:.3f}"
                    )
        if self.store_bytes > MOST_STORE_BYTES:
            found.append(f"the store grew by {self.store_bytes / 2**20:.1f} MiB")
        if self.lost_beats or self.failed_jobs:
            found.append(f"{self.lost_beats} heartbeats lost, {self.failed_jobs} jobs failed")
        return found

    def lines(self) -> list[str]:
        """Return a table of what was measured."""
        rows = ["| | quiet, p50 | p95 | attacked, p50 | p95 |", "|---|---|---|---|---|"]
        for what, quiet, attacked in (
            ("heartbeat until confirmed", self.quiet.beats_s, self.attacked.beats_s),
            ("job until its end", self.quiet.jobs_s, self.attacked.jobs_s),
        ):
            cells = [f"{quantile(t, q):.3f} s" for t in (quiet, attacked) for q in (0.5, 0.95)]
            count = f" ({len(quiet)}, {len(attacked)})"
            rows.append(f"| {what}{count} | {' | '.join(cells)} |")
        return [
            *rows,
            "",
            f"In {self.attack_s:.0f} s of attack: the store grew by"
            f" {self.store_bytes / 2**20:.1f} MiB, of all jobs together; the attacker had"
            f" {self.liars_jobs} attempts; Redis held {self.broker_peak_bytes / 2**20:.0f} MiB at"
            f" most, and the collector {self.collector_peak_bytes / 2**20:.0f} MiB.",
        ]


def quantile(times_s: Sequence[float], share: float) -> float:
    if len(times_s) < 2:
        return max(times_s, default=float("inf"))
    return statistics.quantiles(times_s, n=100, method="inclusive")[round(100 * share) - 1]


class Probe:
    """An honest account that beats, and times how long each confirmation takes."""

    def __init__(self, secrets: AgentSecrets) -> None:
        self._secrets = secrets
        self._key = read_key(secrets.key)
        self._sender = Sender(secrets.broker_url)
        self._boot_id = uuid.uuid4().hex
        self._counter = 0

    def close(self) -> None:
        self._sender.close()

    def round_trip_s(self) -> float | None:
        """Beat once; None if no confirmation came within a minute."""
        self._counter += 1
        beat = heartbeat(
            agent_id=self._secrets.name,
            boot_id=self._boot_id,
            counter=self._counter,
            state=AgentState.BUSY,
            agent_time_s=time.time(),
            facts=agent_facts(machine_id="the probe's machine", labels={"kind": _PROBE}),
        )
        signed = sign(
            seal(beat),
            [self._key],
            agent_id=self._secrets.name,
            direction=MessageDirection.TO_SERVER,
            kind=HEARTBEAT_TASK,
        )
        begun_s = time.monotonic()
        self._sender.publish_heartbeat(signed)
        with open_client(self._secrets.broker_url, timeout_s=5) as client:
            while time.monotonic() - begun_s < _BEAT_WITHIN_S:
                taken = client.brpop([agent_queue(self._secrets.name)], timeout=1)
                if taken is not None and self._is_confirmed(taken[1]):
                    return time.monotonic() - begun_s
        return None

    def _is_confirmed(self, text: bytes | str) -> bool:
        body = json.loads(base64.b64decode(json.loads(text)["body"]))
        signed = json.loads(body[0][0]["signed"])
        return (signed.get("boot_id"), signed.get("counter")) == (self._boot_id, self._counter)


class Attack:
    """Measures a farm in turns, with and without the program at work."""

    def __init__(self, farm: Farm, *, liar: subprocess.Popen[bytes]) -> None:
        self._farm = farm
        self._liar = liar
        self._probe = Probe(farm.secrets[_PROBE])
        self._stopping = threading.Event()
        self.outcome = Outcome()
        self._delays = self.outcome.quiet
        self._threads = [
            threading.Thread(target=work, daemon=True)
            for work in (self._beat, self._watch, *[self._work] * _AGENT_COUNT)
        ]

    def run(self, length_s: float) -> Outcome:
        """Attack for so long, and be quiet for a quarter of that, in turns."""
        before_bytes = self._store_bytes()
        self._keep_liar_at_work()
        for thread in self._threads:
            thread.start()
        while self.outcome.attack_s < length_s:
            self._turn(_QUIET_S, self.outcome.quiet, signal.SIGSTOP)
            self._turn(_ATTACK_S, self.outcome.attacked, signal.SIGCONT)
            self.outcome.attack_s += _ATTACK_S
            self._keep_liar_at_work()
        self._stopping.set()
        for thread in self._threads:
            thread.join(timeout=120)
        assert self._liar.poll() is None, "the attacker has ended by itself"
        self.outcome.store_bytes = self._store_bytes() - before_bytes
        self.outcome.liars_jobs = self._liars_attempts()
        self._probe.close()
        return self.outcome

    def _turn(self, lasts_s: float, delays: Delays, order: signal.Signals) -> None:
        self._liar.send_signal(order)
        self._delays = delays
        self._stopping.wait(lasts_s)

    def _beat(self) -> None:
        while not self._stopping.wait(_BEAT_EVERY_S):
            delays = self._delays
            took_s = self._probe.round_trip_s()
            if took_s is None:
                self.outcome.lost_beats += 1
            delays.beats_s.append(_BEAT_WITHIN_S if took_s is None else took_s)

    def _work(self) -> None:
        while not self._stopping.is_set():
            delays, begun_s = self._delays, time.monotonic()
            sweep_id = self._farm.submit(
                strategy="single", world_size=1, steps=50, labels={"kind": _HONEST}
            )
            [job] = wait_until(
                lambda: [j for j in self._farm.jobs(sweep_id) if j.state in FINAL_JOB_STATES],  # noqa: B023 (called at once)
                "the job is over",
            )
            delays.jobs_s.append(time.monotonic() - begun_s)
            if job.state is not JobState.SUCCEEDED:
                self.outcome.failed_jobs += 1

    def _watch(self) -> None:
        collector = psutil.Process(self._farm.processes["collector"].pid)
        with self._farm.redis.client() as client:
            while not self._stopping.wait(0.2):
                used = int(client.info("memory")["used_memory"])
                self.outcome.broker_peak_bytes = max(self.outcome.broker_peak_bytes, used)
                held = collector.memory_info().rss
                self.outcome.collector_peak_bytes = max(self.outcome.collector_peak_bytes, held)

    def _keep_liar_at_work(self) -> None:
        self._farm.submit(
            strategy="single",
            world_size=1,
            steps=50,
            labels={"kind": _LIAR},
            repetitions=5,
        )

    def _liars_attempts(self) -> int:
        query = sa.text("SELECT count(*) FROM ranks WHERE agent_id = :name")
        with reading(self._farm.engine) as session:
            return int(session.scalar(query, {"name": _LIAR}) or 0)

    def _store_bytes(self) -> int:
        with reading(self._farm.engine) as session:
            return int(session.scalar(sa.text("SELECT pg_database_size(current_database())")) or 0)


class SignedFarm(LiveFarm):
    """A farm on loopback whose agents have keys, and accounts at the broker."""

    def __init__(self, home: Path, *, url: str) -> None:
        self._url = url
        self.secrets: dict[str, AgentSecrets] = {}
        self.settings: dict[str, dict[str, str]] = {
            f"agent-{n}": {**_SETTINGS, **_TRAINING, "FARM_LEASE_S": _LEASE_S}
            for n in range(1, _AGENT_COUNT + 1)
        }
        server = {
            "FARM_SIGNING_KEY_FILE": str(home / "signing.key"),
            "FARM_LEASE_S": _LEASE_S,
            "FARM_PREPARE_TIMEOUT_S": "120",
            "FARM_START_TIMEOUT_S": "120",
        }
        super().__init__(home, server=server, agents=self.settings)

    @property
    def database_url(self) -> str:
        return self._url

    def begin(self) -> None:
        """Start everything; wait until all agents may be leased."""
        self.redis.start()
        farm_key = make_signing_key(self.home / "signing.key")
        for name in (*self.settings, _LIAR, _PROBE):
            with writing(self.engine) as session:
                record = add_agent_key(session, name, now=dt.datetime.now(dt.UTC))
            BrokerAccounts(self.redis.url).put(name, [name])
            key = key_text(derive_key(farm_key, name, record.number))
            url = agent_url(self.redis.url, name, name)
            self.secrets[name] = AgentSecrets(name, key, url)
            if name in self.settings:
                self.settings[name] |= {"AGENT_KEY": key, "FARM_BROKER_URL": url}
        for name in ("scheduler", "collector"):
            self.start_server(name)
        for number in range(1, _AGENT_COUNT + 1):
            self.start_agent(number)
        self.wait_for_idle_agents(_AGENT_COUNT)


@contextmanager
def signed_farm(home: Path) -> Iterator[Farm]:
    """Run such a farm on PostgreSQL for the length of a block."""
    server = PostgresServer()
    try:
        with server.database(is_migrated=True) as url:
            farm = SignedFarm(home, url=url)
            try:
                farm.begin()
                yield farm
            finally:
                farm.stop()
    finally:
        server.stop()


@contextmanager
def strictest_farm(home: Path) -> Iterator[Farm]:
    """Run a strict farm whose agents are honest ones."""
    with strict_farm(home, agents=_SETTINGS) as farm:
        for name in (_LIAR, _PROBE):
            farm.add_agent(name)
        farm.let_keys_be_known()
        yield farm


@contextmanager
def lying(secrets: AgentSecrets, *, mbit_per_s: float | None) -> Iterator[subprocess.Popen[bytes]]:
    """Have the program at work for the length of a block; it is stopped at first."""
    environment = {
        **os.environ,
        "LIAR_BROKER_URL": secrets.broker_url,
        "LIAR_NAME": secrets.name,
        "LIAR_KEY": secrets.key,
        "LIAR_SERVES": "1",
        **({} if mbit_per_s is None else {"LIAR_BYTES_PER_S": str(mbit_per_s * 125_000)}),
    }
    process = subprocess.Popen(
        ["nice", "-n", str(_NICE), sys.executable, "-m", "tests.attacks.liar"],
        env=environment,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().decode().strip() == READY
        process.send_signal(signal.SIGSTOP)
        yield process
    finally:
        process.kill()
        process.wait(timeout=60)
        if process.stdout is not None:
            process.stdout.close()


def attack(
    home: Path, *, is_strict: bool, length_s: float, mbit_per_s: float | None = None
) -> Outcome:
    """Run a farm, attack it for so long and return what that came to."""
    with ExitStack() as stack:
        farm = stack.enter_context((strictest_farm if is_strict else signed_farm)(home))
        liar = stack.enter_context(lying(farm.secrets[_LIAR], mbit_per_s=mbit_per_s))
        return Attack(farm, liar=liar).run(length_s)


def main(argv: Sequence[str] | None = None) -> int:
    """Return 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.stolen_key", description=__doc__)
    parser.add_argument("--strict", action="store_true", help="on a farm with TLS everywhere")
    parser.add_argument("--seconds", type=float, default=LENGTH_S, help="how long it attacks")
    parser.add_argument("--mbit-per-s", type=float, help="what the attacker's link carries")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the logs stay")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(given.keep or folder).absolute()
        home.mkdir(parents=True, exist_ok=True)
        outcome = attack(
            home, is_strict=given.strict, length_s=given.seconds, mbit_per_s=given.mbit_per_s
        )
    print("\n".join(outcome.lines()))
    for text in outcome.excesses():
        print(f"exceeded: {text}")
    return int(bool(outcome.excesses()))


if __name__ == "__main__":
    sys.exit(main())

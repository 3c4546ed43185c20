"""A program with a stolen agent's key that does its worst: `python -m tests.attacks.liar`.

It adds to its two queues as fast as it can: heartbeats of ever new lives, small and large; reports
that are late, foreign, absurd, enormous or nonsense; and what nobody has signed. It takes no rank
unless LIAR_SERVES is set: then it says that it is idle, goes through the barriers as an honest
agent does, and reports all that its attempt can have. LIAR_BROKER_URL, LIAR_NAME and LIAR_KEY say
who it is; it ends with SIGTERM. With LIAR_BYTES_PER_S each of its two floods keeps to half of
that, as on a machine of its own whose link carries no more.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import itertools
import json
import os
import random
import sys
import threading
import time
import uuid
from typing import Any

import redis

from farm.broker.celery_app import (
    HEARTBEAT_TASK,
    HEARTBEATS_QUEUE,
    OWN_QUEUES_WAKE_KEY,
    REPORTS_QUEUE,
    REPORTS_TASK,
    agent_queue,
    open_client,
    own_queue,
)
from farm.broker.task_message import task_text
from farm.messages.agent_keys import read_key
from farm.messages.agents import AgentState, BeatEcho, Heartbeat
from farm.messages.envelope import WIRE_VERSION
from farm.messages.signing import MessageDirection, sign
from farm.values.codec import to_json
from tests.factories import agent_facts

_NUMBERS = (1.7e308, -1.7e308, 5e-324, -1.0, 0.0, 1e300, 2**63, -(2**63), 1e-300)
_KINDS = ("prepared", "peers", "shaped", "started", "samples", "steps", "epoch", "log", "ended")
_AT_ONCE = 20  # messages in one exchange, of some kilobytes
_OTHERS = ("agent-1", "agent-2", "agent-3")
_PAUSE_S = 0.2
_DIFFERENT = 60  # messages of a flood, which are sent again and again
READY = "at work"  # is printed once the floods begin


class Liar:
    """Its threads share nothing but the counters, of which each number is given out once."""

    def __init__(
        self, url: str, *, name: str, key: str, serves: bool, bytes_per_s: float | None = None
    ) -> None:
        self._url = url
        self._name = name
        self._keys = [read_key(key)]
        self._serves = serves
        self._bytes_per_s = None if bytes_per_s is None else bytes_per_s / 2
        self._counter = itertools.count(1)
        self._number = itertools.count(1)
        self._boot_id = uuid.uuid4().hex
        self._echo: tuple[float, float] | None = None
        self._token = 0
        self._serving: int | None = None
        self._generation = uuid.uuid4().hex

    def run(self) -> None:
        """Lie until this process is ended."""
        rng = random.Random(1)
        beats = [self._beat_text(rng) for _ in range(_DIFFERENT)]
        reports = [self._reports_text(rng, number) for number in range(_DIFFERENT)]
        floods = ((HEARTBEATS_QUEUE, beats), (REPORTS_QUEUE, reports))
        works = [
            functools.partial(
                _push,
                queue=own_queue(queue, self._name),
                texts=texts,
                bytes_per_s=self._bytes_per_s,
            )
            for queue, texts in floods
        ]
        for work in (*works, self._live):
            threading.Thread(target=self._again, args=(work,), daemon=True).start()
        print(READY, flush=True)
        threading.Event().wait()

    def _again(self, work: Any) -> None:
        while True:
            try:
                with open_client(self._url, timeout_s=30) as client:
                    work(client)
            except (redis.RedisError, OSError):  # also of a full broker
                time.sleep(_PAUSE_S)

    # -- floods

    def _beat_text(self, rng: random.Random) -> str:
        labels = {_noise(rng, 64): _noise(rng, 300) for _ in range(rng.choice([0, 1, 100]))}
        beat = self._beat(boot_id=uuid.uuid4().hex, labels=labels, state=AgentState.BUSY)
        body = to_json(dataclasses.replace(beat, counter=1))
        assert isinstance(body, dict)
        lie = rng.randrange(4)
        if lie == 0:  # unsigned, for another
            message = {**body, "agent_id": rng.choice(_OTHERS)}
            return task_text(HEARTBEATS_QUEUE, HEARTBEAT_TASK, _envelope(message))
        if lie == 1:
            body = _with_absurd_numbers(rng, body)
        return self._signed_text(HEARTBEATS_QUEUE, HEARTBEAT_TASK, body)

    def _reports_text(self, rng: random.Random, number: int) -> str:
        lie = number % 10
        if lie == 0:
            return "[" * 100_000
        if lie == 1:
            return task_text(
                REPORTS_QUEUE, REPORTS_TASK, _envelope({"agent_id": rng.choice(_OTHERS)})
            )
        count = rng.choice([1, 10, 100])
        length = 10**6 if lie == 2 else 1000
        reports = [
            {
                "number": first + 1,
                "token": rng.choice([rng.randrange(1, 200), rng.randrange(10**9)]),
                "rank": rng.randrange(3),
                "kind": rng.choice([*_KINDS, _noise(rng, 60)]),
                "body": {"text": _noise(rng, length // count), "x": rng.choice(_NUMBERS)},
            }
            for first in range(count)
        ]
        body = {"agent_id": self._name, "generation": _noise(rng, 60), "reports": reports}
        return self._signed_text(REPORTS_QUEUE, REPORTS_TASK, body)

    # -- a life of its own

    def _live(self, client: redis.Redis) -> None:
        """Send heartbeats, receive commands, and send the reports of a rank, as an agent does."""
        begun: dict[int, float] = {}
        self._say_alive(client)
        while True:
            taken = client.brpop([agent_queue(self._name)], timeout=1)
            if taken is not None:
                self._obey(client, taken[1], begun)
            else:
                self._say_alive(client)
            for token, since in list(begun.items()):
                self._report_all(client, token)
                if time.monotonic() - since > 20.0:
                    del begun[token]
                    self._fail(client, token)

    def _obey(self, client: redis.Redis, text: bytes | str, begun: dict[int, float]) -> None:
        message = json.loads(text)
        task = message["headers"]["task"].removeprefix("agent.")
        envelope = json.loads(base64.b64decode(message["body"]))[0][0]
        message_body = (
            json.loads(envelope["signed"]) if "signed" in envelope else envelope["message"]
        )
        token = message_body.get("token", 0)
        if task == "beat_confirmed" and message_body["boot_id"] == self._boot_id:
            self._echo = message_body["server_time_s"], time.monotonic()
        elif task == "start_rank":
            self._token = max(self._token, token)
            self._serving = token
            address = {"rank": 0, "host": "127.0.0.1", "probe_port": 1, "trainer_ports": [1]}
            dataset = {"name": "digits", "origin": "x", "sha256": "x", "is_synthetic": False}
            dataset |= {"train_examples_count": 1, "test_examples_count": 1}
            prepared = {"address": address, "framework": "2.21.0", "dataset": dataset}
            self._report(client, token, "prepared", {**prepared, "prepare_s": 0.1})
        elif task == "peers":
            self._report(client, token, "peers", {"rtts": []})
        elif task == "shape":
            self._report(client, token, "shaped", {"emulator": "none", "rtts": []})
        elif task == "go":
            started = {"parameter_count": 1, "gradient_bytes": 4}
            self._report(client, token, "started", {**started, "connect_s": 0, "first_step_s": 0.1})
            begun[token] = time.monotonic()
        elif task == "stop_attempt":
            begun.pop(token, None)
            self._serving, self._token = None, max(self._token, token)
        else:
            return
        self._say_alive(client)

    def _report_all(self, client: redis.Redis, token: int) -> None:
        """Report what an attempt may have: samples with a hundred names each, logs, steps."""
        rng = random.Random(next(self._counter))
        extra = {_noise(rng, 60): rng.random() for _ in range(100)}
        samples = [{"tick": rng.randrange(900), "extra": extra} for _ in range(20)]
        self._report(client, token, "samples", {"samples": samples})
        self._report(client, token, "samples", {"samples": [{"tick": t} for t in range(900)]})
        at = rng.randrange(8 * 2**20 - 40_000)
        self._report(client, token, "log", {"first_character": at, "text": _noise(rng, 36_000)})
        steps = {"kind": "timed", "first_step": rng.randrange(50), "begun_s": 1.0}
        self._report(client, token, "steps", {**steps, "times_s": [rng.random()] * 50})

    def _fail(self, client: redis.Redis, token: int) -> None:
        failure = {"kind": "killed", "message": _noise(random.Random(token), 8000)}
        body: dict[str, object] = {"result": None, "failure": failure}
        body |= {"timed_begun_s": None, "log_tail": ""}
        self._report(client, token, "ended", body)
        self._serving = None

    def _report(self, client: redis.Redis, token: int, kind: str, body: dict[str, object]) -> None:
        report = {"number": next(self._number), "token": token, "rank": 0}
        batch = {
            "agent_id": self._name,
            "generation": self._generation,
            "reports": [{**report, "kind": kind, "body": body}],
        }
        self._send(client, REPORTS_QUEUE, REPORTS_TASK, batch)

    def _say_alive(self, client: redis.Redis) -> None:
        is_idle = self._serves and self._serving is None
        state = AgentState.IDLE if is_idle else AgentState.BUSY
        beat = to_json(self._beat(boot_id=self._boot_id, labels={"kind": "liar"}, state=state))
        assert isinstance(beat, dict)
        self._send(client, HEARTBEATS_QUEUE, HEARTBEAT_TASK, beat)

    def _send(self, client: redis.Redis, queue: str, task: str, message: object) -> None:
        client.lpush(own_queue(queue, self._name), self._signed_text(queue, task, message))
        client.lpush(OWN_QUEUES_WAKE_KEY, "1")

    def _beat(self, *, boot_id: str, labels: dict[str, str], state: AgentState) -> Heartbeat:
        echo = None
        if self._echo is not None:
            server_time_s, heard_s = self._echo
            elapsed_s = time.monotonic() - heard_s
            echo = BeatEcho(server_time_s=server_time_s, elapsed_s=elapsed_s)
        return Heartbeat(
            agent_id=self._name,
            boot_id=boot_id,
            counter=next(self._counter),
            state=state,
            serving_token=self._serving,
            highest_token=self._token,
            agent_time_s=time.time(),
            echo=echo,
            facts=agent_facts(machine_id="liar's machine", labels=labels),
        )

    def _signed_text(self, queue: str, task: str, message: object) -> str:
        signed = sign(
            _envelope(message),
            self._keys,
            agent_id=self._name,
            direction=MessageDirection.TO_SERVER,
            kind=task,
        )
        return task_text(queue, task, signed)


def _envelope(message: object) -> dict[str, object]:
    return {"version": WIRE_VERSION, "message": message}


def _push(client: redis.Redis, *, queue: str, texts: list[str], bytes_per_s: float | None) -> None:
    rng = random.Random(2)
    while True:
        begun_s, sent = time.monotonic(), 0
        pipe = client.pipeline(transaction=False)
        for text in rng.choices(texts, k=_AT_ONCE):
            sent += len(text)
            pipe.lpush(queue, text)
            pipe.lpush(OWN_QUEUES_WAKE_KEY, "1")
        pipe.execute(raise_on_error=False)
        if bytes_per_s is not None:
            time.sleep(max(0.0, sent / bytes_per_s - (time.monotonic() - begun_s)))


def _noise(rng: random.Random, length: int) -> str:
    """Return text that no database compresses."""
    return base64.b64encode(rng.randbytes(length)).decode()[:length]


def _with_absurd_numbers(rng: random.Random, body: dict[str, object]) -> dict[str, object]:
    return {
        name: rng.choice(_NUMBERS) if isinstance(value, int | float) else value
        for name, value in body.items()
    }


def main() -> int:
    environ = os.environ
    url, name, key = (environ[f"LIAR_{what}"] for what in ("BROKER_URL", "NAME", "KEY"))
    with contextlib.suppress(KeyboardInterrupt):
        most = environ.get("LIAR_BYTES_PER_S")
        Liar(
            url,
            name=name,
            key=key,
            serves="LIAR_SERVES" in environ,
            bytes_per_s=None if most is None else float(most),
        ).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Times signing and checking a message, against the same message unsigned.

A heartbeat, and a batch of samples as full as agents send them. The sender makes the message into
the text that goes to the broker; the receiver parses and checks that text into the message. Ours
is with a signature, the baseline without, in turns in one process; each figure is a median.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence

from benchmarks.figures import BenchmarkFigure, run_benchmark
from farm.broker.celery_app import HEARTBEAT_TASK, REPORTS_TASK
from farm.messages.agent_keys import derive_key
from farm.messages.agents import AgentState, BeatEcho, Heartbeat
from farm.messages.envelope import seal, unseal
from farm.messages.reports import Report, ReportBatch, Sample, Samples
from farm.messages.signing import MessageDirection, sign, verified
from farm.text.display import duration
from farm.values.codec import to_json
from tests.factories import agent_facts

_KEYS = [derive_key(bytes(32), "vm-1", 1)]
_ROUNDS, _QUICK_ROUNDS = 300, 20


def measure(given: argparse.Namespace) -> list[BenchmarkFigure]:
    rounds = _QUICK_ROUNDS if given.quick else _ROUNDS
    beat, batch = _heartbeat(), _batch()
    return [
        *_sides(beat, HEARTBEAT_TASK, "heartbeat", rounds=rounds),
        *_sides(batch, REPORTS_TASK, "batch of samples", rounds=rounds),
    ]


def _sides(message: object, task: str, name: str, *, rounds: int) -> list[BenchmarkFigure]:
    def signed_text() -> str:
        envelope = sign(
            seal(message), _KEYS, agent_id="vm-1", direction=MessageDirection.TO_SERVER, kind=task
        )
        return json.dumps(envelope)

    def plain_text() -> str:
        return json.dumps(seal(message))

    theirs, plain = signed_text(), plain_text()

    def check() -> object:
        envelope = json.loads(theirs)
        to_server = MessageDirection.TO_SERVER
        opened = verified(envelope, _KEYS, agent_id="vm-1", direction=to_server, kind=task)
        return unseal(type(message), opened)

    def parse() -> object:
        return unseal(type(message), json.loads(plain))

    size = f"{len(plain)} bytes, signed {len(theirs)}"
    return [
        _figure(f"{name}, sender", *_medians_s(signed_text, plain_text, rounds), note=size),
        _figure(f"{name}, receiver", *_medians_s(check, parse, rounds), note=size),
    ]


def _medians_s(
    ours: Callable[[], object], baseline: Callable[[], object], rounds: int
) -> tuple[float, float]:
    times_s: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for act, taken_s in zip((ours, baseline), times_s, strict=True):
            begun_s = time.perf_counter()
            act()
            taken_s.append(time.perf_counter() - begun_s)
    return statistics.median(times_s[0]), statistics.median(times_s[1])


def _figure(name: str, ours_s: float, baseline_s: float, *, note: str) -> BenchmarkFigure:
    added_s = ours_s - baseline_s
    return BenchmarkFigure(
        name=name,
        unit="s",
        ours=ours_s,
        baseline=baseline_s,
        against="unsigned",
        note=f"{duration(added_s)} more; {note}",
    )


def _heartbeat() -> Heartbeat:
    return Heartbeat(
        agent_id="vm-1",
        boot_id="0" * 32,
        counter=1,
        state=AgentState.BUSY,
        serving_token=7,
        highest_token=7,
        agent_time_s=1.0,
        echo=BeatEcho(server_time_s=1772366400.125, elapsed_s=4.5),
        facts=agent_facts(labels={"instance_type": "Standard_D2s_v3"}),
    )


def _batch() -> ReportBatch:
    reports: Sequence[Report] = [
        Report(number=number + 1, token=7, rank=0, kind="samples", body=_samples(number))
        for number in range(100)
    ]
    return ReportBatch(agent_id="vm-1", generation="0" * 32, reports=tuple(reports))


def _samples(number: int) -> dict[str, object]:
    samples = tuple(
        Sample(
            tick=5 * number + i,
            machine_cpu_ratio=0.123456789 + i / 7,
            cpu_ratio=0.4321 + number / 1000,
            memory_used_bytes=3_456_789_012,
            resident_bytes=612_345_678,
            net_rx_bytes_per_s=12_345_678.9,
            net_tx_bytes_per_s=12_345_679.1,
            disk_read_bytes_per_s=0.0,
            disk_write_bytes_per_s=4096.0,
            extra={"load_1": 1.25},
        )
        for i in range(5)
    )
    body = to_json(Samples(samples=samples))
    assert isinstance(body, dict)
    return body


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__, measure))

"""How much a spool holds back and for how long, as heartbeats say it."""

from __future__ import annotations

import pickle
from pathlib import Path

from farm.messages.agents import Backlog
from farm.messages.commands import Confirm
from worker_agent.spool.delivery import Delivery, Waiting
from worker_agent.spool.spool import Spool


def test_the_oldest_report_is_as_old_as_the_first_look_that_saw_it() -> None:
    waiting = Waiting()
    assert waiting.oldest_s(confirmed=0, last_number=0, now=10.0) is None
    assert waiting.oldest_s(confirmed=0, last_number=3, now=20.0) == 0.0
    assert waiting.oldest_s(confirmed=0, last_number=5, now=25.0) == 5.0
    assert waiting.oldest_s(confirmed=2, last_number=5, now=30.0) == 10.0
    assert waiting.oldest_s(confirmed=3, last_number=5, now=30.0) == 5.0
    assert waiting.oldest_s(confirmed=5, last_number=5, now=40.0) is None


def test_an_outage_of_days_fills_no_memory_and_keeps_the_age_of_the_oldest() -> None:
    waiting = Waiting()
    for n in range(5000):
        age_s = waiting.oldest_s(confirmed=0, last_number=n + 1, now=float(n))
        assert age_s == n
    assert len(pickle.dumps(waiting)) < 50_000  # as large as it is with the 1000th
    age_s = waiting.oldest_s(confirmed=4000, last_number=5000, now=5000.0)
    assert age_s is not None
    assert age_s < 1002


def test_a_delivery_tells_what_is_not_confirmed(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", max_bytes=1_000_000)
    delivery = Delivery(spool, agent_id="a")
    assert delivery.backlog(now=0.0) == Backlog(report_count=0, byte_count=0, oldest_s=None)
    for _ in range(3):
        spool.append(1, rank=0, kind="samples", body={"samples": []})
    held = delivery.backlog(now=1.0)
    assert (held.report_count, held.oldest_s) == (3, 0.0)
    assert held.byte_count == sum(f.stat().st_size for f in (tmp_path / "spool").glob("*.jsonl"))
    delivery.confirm(Confirm(generation=spool.generation, number=2), now=1.0)
    held = delivery.backlog(now=6.0)
    assert (held.report_count, held.oldest_s) == (1, 5.0)
    spool.close()

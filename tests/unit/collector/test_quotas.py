"""What one account may send: a burst at once and so much a minute, whatever others send."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farm.collector.ingest import row_count
from farm.collector.quotas import HEARTBEAT_QUOTAS, REPORT_QUOTAS, Quota, Quotas
from farm.errors import InvalidSpec
from farm.messages.reports import Report, ReportBatch, Sample
from farm.values.codec import to_json
from tests.factories import agent_facts, heartbeat
from worker_agent.spool.delivery import GATHER_S
from worker_agent.trainer_process.logs import LONGEST_CHARACTERS


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_an_account_that_has_used_its_burst_is_held_back_until_some_is_left(clock: Clock) -> None:
    quotas = Quotas({"messages": Quota(3, 60)}, clock=clock)
    for _ in range(3):
        assert quotas.exhausted("a") is None
        quotas.charge("a", messages=1)
    assert quotas.exhausted("a") == "messages"
    assert quotas.exhausted("b") is None
    clock.now_s += 1.5
    assert quotas.exhausted("a") is None
    assert quotas.dropped() == {"a": 1}
    clock.now_s += 121
    assert quotas.dropped() == {}


def test_collectors_that_share_a_queue_share_its_quotas(clock: Clock) -> None:
    collectors = 1
    both = [
        Quotas({"messages": Quota(12, 60)}, collectors=lambda: collectors, clock=clock)
        for _ in range(2)
    ]

    def allowed() -> int:
        count = 0
        for quotas in both * 20:
            if quotas.exhausted("a") is None:
                quotas.charge_ahead("a", messages=1)
                quotas.charge("a", messages=1)
                count += 1
        return count

    collectors = 2
    assert allowed() == 12
    clock.now_s += 3600
    collectors = 1
    assert allowed() == 24, "each allows all of it, as one that is alone does"


def test_one_that_took_much_more_than_it_had_waits_until_it_is_made_up_for(clock: Clock) -> None:
    quotas = Quotas({"messages": Quota(10, 60), "bytes": Quota(100, 60)}, clock=clock)
    quotas.charge("a", messages=1, bytes=160)
    clock.now_s += 59
    assert quotas.exhausted("a") == "bytes"
    clock.now_s += 2
    assert quotas.exhausted("a") is None
    assert quotas.limit("bytes") == "60 bytes a minute"


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 3 * 2**20)), min_size=1, max_size=60))
def test_no_series_of_messages_brings_in_more_than_the_quota(
    sent: list[tuple[float, float]],
) -> None:
    clock = Clock()
    quotas = Quotas({"bytes": REPORT_QUOTAS["bytes"]}, clock=clock)
    taken, largest = 0.0, max(size for _, size in sent)
    for pause_s, size in sent:
        clock.now_s += pause_s
        if quotas.exhausted("a") is None:
            quotas.charge("a", bytes=size)
            taken += size
    quota = REPORT_QUOTAS["bytes"]
    assert taken <= quota.burst + clock.now_s / 60 * quota.per_minute + largest


def test_what_was_charged_ahead_is_not_charged_again(clock: Clock) -> None:
    quotas = Quotas({"messages": Quota(8, 60), "bytes": Quota(800, 60)}, clock=clock)
    for _ in range(7):
        quotas.charge_ahead("a", messages=1, bytes=100)
        quotas.charge("a", messages=1, bytes=80)
    assert quotas.allowed("a", most=5) > 0
    quotas.charge_ahead("a", messages=1, bytes=100)
    assert quotas.allowed("a", most=5) == 0
    assert quotas.exhausted("a") is None, "that message is paid for"
    quotas.charge("a", messages=1, bytes=100)
    assert quotas.exhausted("a") == "messages"
    assert quotas.dropped() == {"a": 1}


def test_what_was_charged_ahead_and_never_came_does_not_pile_up(clock: Clock) -> None:
    quotas = Quotas({"messages": Quota(8, 60)}, clock=clock)
    for _ in range(100):
        clock.now_s += 1
        quotas.charge_ahead("a", messages=1)
    clock.now_s += 60
    taken = 0
    while quotas.exhausted("a") is None:
        quotas.charge("a", messages=1)
        taken += 1
    assert taken == 8 + 2, "a burst, and a quarter of one"


LINE = "x" * 70 + "\n"


def minute_of_a_job(*, steps_per_s: int, gpu_count: int) -> list[Report]:
    """Return what a rank reports: samples with all metrics and its GPUs', epochs, steps."""
    metrics = [field.name for field in dataclasses.fields(Sample) if field.name != "extra"]
    names = [f"eighteen_letters{number:02}" for number in range(17)]
    extra = {f"gpu{gpu}_{name}": 12345.75 for gpu in range(gpu_count) for name in names}
    numbers = dict.fromkeys(metrics, 2 / 3)
    reports = []
    for second in range(60):
        bodies: dict[str, dict[str, object]] = {
            "samples": {"samples": [{**numbers, "tick": second, "extra": extra}]},
            "steps": {
                "kind": "timed",
                "first_step": second * steps_per_s,
                "begun_s": second / 3,
                "times_s": [1 / 3000] * steps_per_s,
            },
            "epoch": {"epoch": second, "train_s": 1 / 3, "step_count": 100, "train_loss": 1 / 3},
        }
        reports += [Report(number=1, token=1, rank=0, kind=k, body=b) for k, b in bodies.items()]
    return reports


@pytest.mark.parametrize(("steps_per_s", "gpu_count"), [(500, 4), (400, 8)])
def test_the_largest_honest_job_is_within_every_quota(steps_per_s: int, gpu_count: int) -> None:
    """Of an epoch a second, too, for ten minutes, with as long a log as there may be."""
    reports = minute_of_a_job(steps_per_s=steps_per_s, gpu_count=gpu_count)
    minute = ReportBatch(agent_id="a", generation="g", reports=tuple(reports))
    byte_count = len(json.dumps(to_json(minute)))
    log_bytes = len(json.dumps(LINE)) / len(LINE) * LONGEST_CHARACTERS
    rows = row_count(minute, byte_count)
    ten = {name: quota.burst + 10 * quota.per_minute for name, quota in REPORT_QUOTAS.items()}
    assert 10 * byte_count + log_bytes < ten["bytes"]
    assert byte_count < REPORT_QUOTAS["bytes"].per_minute, "and for ever, without a log"
    assert 10 * rows < ten["rows"]
    assert ten["messages"] > 10 * 60 / GATHER_S * 2, "each of them sent again"


def test_an_honest_agent_is_far_below_every_quota() -> None:
    """A beat each second, and batches of three seconds, as they are signed: 4.1 kB."""
    assert HEARTBEAT_QUOTAS["messages"].per_minute >= 4 * 60
    assert REPORT_QUOTAS["bytes"].per_minute > 10 * 20 * 4100
    hour_s, reports_a_second = 3600, 3
    assert REPORT_QUOTAS["rows"].burst > hour_s * reports_a_second
    assert REPORT_QUOTAS["bytes"].burst > hour_s / GATHER_S * 4100, "the backlog of an hour"


def test_heartbeats_with_as_many_labels_as_there_may_be_are_within_the_quota() -> None:
    labels = {f"{number:064}": "x" * 300 for number in range(100)}
    beat = heartbeat(agent_id="a", facts=agent_facts(labels=labels))
    beats_a_minute = 60 / 5
    size = len(json.dumps(to_json(beat)))
    assert beats_a_minute * size < HEARTBEAT_QUOTAS["bytes"].per_minute


def test_rows_are_counted_by_what_a_batch_holds() -> None:
    bodies: list[dict[str, object]] = [{"samples": [{"tick": 1}, {"tick": 2}]}, {"samples": 7}, {}]
    reports = tuple(
        Report(number=number, token=1, rank=0, kind="samples", body=body)
        for number, body in enumerate(bodies, start=1)
    )
    assert row_count(ReportBatch(agent_id="a", generation="g", reports=reports), 100) == 5


@pytest.mark.parametrize(
    ("report_count", "sample_count", "byte_count"), [(2, 3_000, 100), (2, 1, 2 * 2**20)]
)
def test_a_batch_of_more_than_an_agent_sends_at_once_is_refused(
    report_count: int, sample_count: int, byte_count: int
) -> None:
    body: dict[str, object] = {"samples": [{"tick": tick} for tick in range(sample_count)]}
    reports = tuple(
        Report(number=number, token=1, rank=0, kind="samples", body=body)
        for number in range(1, report_count + 1)
    )
    whole = ReportBatch(agent_id="a", generation="g", reports=reports)
    with pytest.raises(InvalidSpec, match="at most 1048576 bytes and 4000 rows"):
        row_count(whole, byte_count)
    alone = dataclasses.replace(whole, reports=reports[:1])
    assert row_count(alone, byte_count) == 1 + sample_count


def test_who_is_silent_for_long_is_forgotten(clock: Clock) -> None:
    quotas = Quotas({"messages": Quota(1, 60)}, names=Quota(2, 0), clock=clock)
    quotas.charge("a", messages=1)
    clock.now_s += 599
    assert quotas.exhausted("a") is None
    clock.now_s += 601
    quotas.charge("b", messages=1)
    assert quotas.exhausted("a") == "new names"


def test_of_names_that_are_only_claimed_so_many_new_ones_are_heard(clock: Clock) -> None:
    quotas = Quotas({"messages": Quota(5, 60)}, names=Quota(2, 60), clock=clock)
    for name in ("a", "b"):
        assert quotas.exhausted(name) is None
        quotas.charge(name, messages=1)
    assert quotas.exhausted("c") == "new names"
    assert quotas.limit("new names") == "60 new names a minute"
    assert quotas.exhausted("a") is None, "those that are known are heard all the same"
    clock.now_s += 1.5
    assert quotas.exhausted("c") is None

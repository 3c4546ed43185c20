"""Messages to real receivers: each arrives, whatever receivers and senders do meanwhile."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import socket
import threading
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from farm.gang.lifecycle import AttemptState, JobState
from farm.messages.agents import AgentState
from farm.notifications import notifier as notifier_module
from farm.notifications.addresses import parse_allowed
from farm.notifications.event_detection import events_of_agents, events_of_sweeps
from farm.notifications.events import DeliveryState
from farm.notifications.notifier import GIVE_UP_AFTER, Notifier
from farm.store.engine import reading, writing
from farm.store.notifications import (
    add_targets,
    claim_addresses,
    list_deliveries,
    record,
    targets_of_farm,
)
from farm.store.sweeps.baselines import set_baseline
from farm.store.sweeps.budgets import use_up_budgets
from farm.store.sweeps.sweeps import resume_sweep
from farm.store.tables import AttemptRow, JobRow, NotificationDelivery, NotificationTarget, SweepRow
from tests.factories import NOW, add_agent, add_attempt, add_measurement, add_sweep, job_spec
from tests.integration.notifications.receiver import Receiver

ALLOWED = parse_allowed("127.0.0.0/8")
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().serving() as found:
        yield found


class Clock:
    """The time, which only the test lets go on."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> dt.datetime:
        return self.now

    def go_on(self, seconds: float) -> None:
        self.now += dt.timedelta(seconds=seconds)


class Sender:
    """A notifier, whose turns are taken one by one."""

    def __init__(self, engine: sa.Engine, clock: Clock, **changes: object) -> None:
        options = {
            "addresses": (),
            "allowed": ALLOWED,
            "lost_after_s": 60.0,
            "is_collector_well": lambda: True,
            **changes,
        }
        self._notifier = Notifier(engine, now=clock, **options)  # type: ignore[arg-type]

    def turn(self) -> None:
        self._notifier.turn()
        self._notifier.wait_until_sent(60)


def ended_sweep(
    engine: sa.Engine, *addresses: str, name: str = "mine", state: JobState = JobState.SUCCEEDED
) -> int:
    """Store a sweep of one job that is over, and who wants to know of it."""
    with writing(engine) as session:
        [job_id] = add_sweep(session, job_spec(), name=name)
        job = session.get_one(JobRow, job_id)
        job.state, job.finished_at = state, NOW
        sweep_id = job.sweep_id
        add_targets(session, addresses, [SECRET] * len(addresses), sweep_id=sweep_id, now=NOW)
    return sweep_id


def states(engine: sa.Engine) -> list[tuple[DeliveryState, int]]:
    with reading(engine) as session:
        found = session.scalars(sa.select(NotificationDelivery).order_by(NotificationDelivery.id))
        return [(one.state, one.attempt_count) for one in found]


@pytest.mark.parametrize(
    ("state", "kind", "text"),
    [
        (JobState.SUCCEEDED, "sweep.finished", "sweep 1, mine: 1 of 1 job succeeded"),
        (JobState.FAILED, "sweep.failed", "sweep 1, mine: 0 of 1 job succeeded, 1 failed"),
        (JobState.CANCELLED, "sweep.finished", "sweep 1, mine: 0 of 1 job succeeded, 1 cancelled"),
    ],
)
def test_the_end_of_a_sweep_is_told_once_and_signed(
    engine: sa.Engine, receiver: Receiver, state: JobState, kind: str, text: str
) -> None:
    ended_sweep(engine, receiver.address, state=state)
    clock = Clock()
    sender = Sender(engine, clock)
    for _ in range(3):
        sender.turn()
        clock.go_on(10)
    Sender(engine, clock).turn()  # a scheduler that was started again
    [(headers, body)] = receiver.received
    [message] = receiver.messages
    assert (message["type"], message["timestamp"]) == (kind, NOW.isoformat())
    assert message["data"]["text"] == text
    assert message["data"]["jobs_by_state"][state.value] == 1
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.new(b"k" * 32, signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert states(engine) == [(DeliveryState.DELIVERED, 1)]


def test_a_sweep_that_goes_on_is_told_of_when_it_ends_again(
    engine: sa.Engine, receiver: Receiver
) -> None:
    sweep_id = ended_sweep(engine, receiver.address)
    clock = Clock()
    sender = Sender(engine, clock)
    sender.turn()
    with writing(engine) as session:
        [job] = session.scalars(sa.select(JobRow).where(JobRow.sweep_id == sweep_id))
        job.state, job.finished_at = JobState.WAITING, None
    sender.turn()
    assert len(receiver.received) == 1
    clock.go_on(60)
    with writing(engine) as session:
        [job] = session.scalars(sa.select(JobRow).where(JobRow.sweep_id == sweep_id))
        job.state, job.finished_at = JobState.FAILED, clock.now
    sender.turn()
    assert [message["type"] for message in receiver.messages] == ["sweep.finished", "sweep.failed"]


def test_a_receiver_that_is_down_gets_every_message_once_it_is_back(engine: sa.Engine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    address = f"http://127.0.0.1:{port}/hook"
    clock = Clock()
    sender = Sender(engine, clock)
    for number in range(5):
        ended_sweep(engine, address, name=f"sweep {number}")
        sender.turn()
    for _ in range(6):  # a minute
        clock.go_on(10)
        sender.turn()
    assert {state for state, _ in states(engine)} == {DeliveryState.WAITING}
    # It is left alone for longer after each failure, whichever sweep it was about.
    assert sum(count for _, count in states(engine)) < 15
    with Receiver(port).serving() as receiver:
        clock.go_on(80)  # as long as it was left alone last
        sender.turn()
        sender.turn()
        names = [message["data"]["sweep_name"] for message in receiver.messages]
    assert sorted(names) == [f"sweep {number}" for number in range(5)]
    assert {state for state, _ in states(engine)} == {DeliveryState.DELIVERED}


def test_a_refused_message_is_sent_again_and_holds_no_other_up(
    engine: sa.Engine, receiver: Receiver
) -> None:
    receiver.answer = lambda number: 500 if number == 1 else 302 if number == 2 else 200
    clock = Clock()
    with writing(engine) as session:
        add_targets(session, [receiver.address], [SECRET], sweep_id=None, now=NOW)
    for name in ("first", "second", "third"):
        ended_sweep(engine, name=name)
    sender = Sender(engine, clock, addresses=[receiver.address])
    sender.turn()
    with reading(engine) as session:
        outcomes = {one.subject: one.last_said for one in list_deliveries(session, limit=10)}
    assert outcomes["sweep 1"] == "500 Internal Server Error"
    assert outcomes["sweep 2"] == "302 Found: redirects are not followed"
    clock.go_on(5)
    sender.turn()
    ids = [headers["webhook-id"] for headers, _ in receiver.received]
    assert ids[:2] == ids[3:]  # each keeps its id
    assert len(set(ids)) == 3
    assert states(engine) == [(DeliveryState.DELIVERED, n) for n in (2, 2, 1)]


def test_a_receiver_that_hangs_holds_no_other_up(engine: sa.Engine, receiver: Receiver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        held = threading.Event()
        ended_sweep(engine, f"http://127.0.0.1:{silent.getsockname()[1]}/", receiver.address)
        clock = Clock()
        notifier = Notifier(
            engine,
            addresses=(),
            allowed=ALLOWED,
            lost_after_s=60,
            is_collector_well=lambda: True,
            now=clock,
        )
        notifier.turn()
        # It has begun, and gets no answer.
        connection, _ = silent.accept()
        while not receiver.received:
            held.wait(0.01)
        notifier.turn()  # nobody sends there a second time
        silent.settimeout(0.2)
        with pytest.raises(TimeoutError):
            silent.accept()
        connection.close()
        notifier.wait_until_sent(60)
    assert states(engine) == [(DeliveryState.WAITING, 1), (DeliveryState.DELIVERED, 1)]


def test_an_address_within_the_network_is_never_sent_to(
    engine: sa.Engine, receiver: Receiver
) -> None:
    ended_sweep(engine, receiver.address)
    Sender(engine, Clock(), allowed=parse_allowed("10.0.0.0/8")).turn()
    assert receiver.received == []
    with reading(engine) as session:
        [one] = list_deliveries(session, limit=10)
    assert "127.0.0.1 is within the farm's own network" in (one.last_said or "")
    assert "secret" not in (one.last_said or "")


def test_a_message_is_given_up_after_days(engine: sa.Engine, receiver: Receiver) -> None:
    receiver.answer = lambda number: 503
    ended_sweep(engine, receiver.address)
    clock = Clock()
    sender = Sender(engine, clock)
    sender.turn()
    clock.go_on(GIVE_UP_AFTER.total_seconds() + 1)
    sender.turn()
    assert states(engine) == [(DeliveryState.GIVEN_UP, 2)]
    clock.go_on(3600)
    sender.turn()
    assert len(receiver.received) == 2


def test_a_receiver_that_is_gone_gets_no_more_messages(
    engine: sa.Engine, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answer = lambda number: 410
    for name in ("first", "second"):
        ended_sweep(engine, receiver.address, name=name)
    clock = Clock()
    sender = Sender(engine, clock, addresses=[receiver.address])
    sender.turn()
    ended_sweep(engine, name="later")
    clock.go_on(60)
    sender.turn()
    assert {state for state, _ in states(engine)} == {DeliveryState.GIVEN_UP}
    assert len(receiver.received) == 1
    assert "410 Gone: nothing is sent there any more" in caplog.text
    with reading(engine) as session:
        outcomes = {one.last_said for one in list_deliveries(session, limit=10)}
    assert outcomes == {"410 Gone: nothing is sent there any more", "its address was removed"}
    receiver.answer = lambda number: 200  # it is wanted once more
    ended_sweep(engine, receiver.address, name="new")
    sender.turn()
    assert len(receiver.received) == 2


@pytest.mark.parametrize(
    ("status", "retry_after", "pause_s"),
    [
        (429, "90", 90),
        (503, "Sun, 01 Mar 2026 12:01:30 GMT", 90),
        (503, "100000000", 1800),
        (503, "nan", 5),
        (503, "-1", 5),
        (429, None, 5),
    ],
)
def test_an_overloaded_receiver_is_left_alone_for_as_long_as_it_asks(
    engine: sa.Engine, receiver: Receiver, status: int, retry_after: str | None, pause_s: int
) -> None:
    assert dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC) == NOW
    receiver.answer = lambda number: status if number == 1 else 200
    receiver.retry_after = retry_after
    for name in ("first", "second"):
        ended_sweep(engine, receiver.address, name=name)
    clock = Clock()
    sender = Sender(engine, clock)
    sender.turn()
    clock.go_on(pause_s - 1)
    sender.turn()
    assert len(receiver.received) == 1
    clock.go_on(1)
    sender.turn()
    assert states(engine) == [(DeliveryState.DELIVERED, 2), (DeliveryState.DELIVERED, 1)]


def test_a_sender_that_dies_leaves_its_messages_to_the_next(
    engine: sa.Engine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_sweep(engine, receiver.address)
    clock = Clock()
    with monkeypatch.context() as patched:
        # It has sent the message, and cannot say so.
        patched.setattr(notifier_module, "note_attempt", None)
        Sender(engine, clock).turn()
    assert len(receiver.received) == 1
    other = Sender(engine, clock)
    other.turn()
    assert len(receiver.received) == 1
    clock.go_on(180)
    other.turn()
    (first, _), (second, _) = receiver.received
    assert first["webhook-id"] == second["webhook-id"]
    assert states(engine) == [(DeliveryState.DELIVERED, 1)]


def test_two_schedulers_send_each_message_once(engine: sa.Engine, receiver: Receiver) -> None:
    for number in range(10):
        ended_sweep(engine, receiver.address, name=f"sweep {number}")
    clock = Clock()
    senders = [Sender(engine, clock) for _ in range(2)]
    both = [threading.Thread(target=sender.turn) for sender in senders]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    for sender in senders:
        sender.turn()
    assert len(receiver.received) == 10


def test_an_agent_that_falls_silent_is_told_of_once(engine: sa.Engine, receiver: Receiver) -> None:
    clock = Clock()
    is_well = True
    sender = Sender(
        engine,
        clock,
        addresses=[receiver.address],
        is_collector_well=lambda: is_well,
        well_for_s=0.0,
    )
    sender.turn()
    with writing(engine) as session:
        add_agent(session, "lost", heartbeat_at=NOW)
        add_agent(session, "stopped", heartbeat_at=NOW, state=AgentState.LEAVING)
        add_agent(session, "there", heartbeat_at=NOW + dt.timedelta(seconds=60))
    clock.go_on(61)
    is_well = False
    sender.turn()
    assert receiver.received == []
    is_well = True
    for _ in range(3):
        sender.turn()
    [message] = receiver.messages
    assert (message["type"], message["data"]["agent_id"]) == ("agent.lost", "lost")


def test_a_baseline_that_is_exceeded_is_told_of_with_the_cells(
    engine: sa.Engine, receiver: Receiver
) -> None:
    ids = {}
    for name, times_s in (("before", (0.1, 0.101, 0.099)), ("after", (0.12, 0.121, 0.119))):
        with writing(engine) as session:
            specs = [job_spec(repetition=n) for n in range(3)]
            job_ids = add_sweep(session, *specs, name=name)
            for job_id, time_s in zip(job_ids, times_s, strict=True):
                job = session.get_one(JobRow, job_id)
                job.state, job.finished_at = JobState.SUCCEEDED, NOW
                ids[name] = job.sweep_id
                add_measurement(
                    session,
                    f"job {job_id}",
                    job_id=job_id,
                    step_time_s=time_s,
                    global_batch_size=specs[0].global_batch_size,
                    strategy=specs[0].strategy,
                    fingerprint="a kind",
                )
    with writing(engine) as session:
        set_baseline(session, "main", ids["before"], now=NOW)
        add_targets(session, [receiver.address], [SECRET], sweep_id=ids["after"], now=NOW)
    Sender(engine, Clock()).turn()
    assert [message["type"] for message in receiver.messages] == [
        "sweep.finished",
        "baseline.exceeded",
    ]
    data = receiver.messages[1]["data"]
    assert data["text"].endswith("1 cell is slower than in the baseline main, sweep 1")
    [cell] = data["slower_cells"]
    assert 1 < cell["ratio_low"] < cell["ratio"] < cell["ratio_high"]


def test_a_budget_that_is_used_up_is_told_of_once_and_again_after_it_was_raised(
    engine: sa.Engine, receiver: Receiver
) -> None:
    clock = Clock()
    with writing(engine) as session:
        done, _ = add_sweep(session, job_spec(), job_spec(seed=1), name="mine")
        sweep_id = session.get_one(JobRow, done).sweep_id
        session.get_one(SweepRow, sweep_id).budget_machine_s = 1800.0
        token = add_attempt(session, done, state=AttemptState.SUCCEEDED)
        session.get_one(AttemptRow, token).leased_at = NOW - dt.timedelta(hours=1)
        add_targets(session, [receiver.address], [SECRET], sweep_id=sweep_id, now=NOW)
    sender = Sender(engine, clock)
    sender.turn()
    assert receiver.received == []
    for hours in (0.75, None):
        with writing(engine) as session:
            use_up_budgets(session, [sweep_id], now=clock.now)
        for _ in range(3):
            sender.turn()
            clock.go_on(10)
        Sender(engine, clock).turn()  # a scheduler that was started again
        if hours is not None:
            with writing(engine) as session:
                session.get_one(AttemptRow, token).leased_at = NOW - dt.timedelta(hours=0.6)
                resume_sweep(session, sweep_id, budget_machine_s=hours * 3600, now=clock.now)
                session.get_one(AttemptRow, token).leased_at = NOW - dt.timedelta(hours=1)
            sender.turn()
    first, again = receiver.messages
    assert (first["type"], first["timestamp"]) == ("budget.used_up", NOW.isoformat())
    data = first["data"]
    assert data["text"] == (
        "sweep 1, mine: its budget of 0.5 machine hours is used up, and 1 of 2 jobs left"
    )
    assert (data["budget_machine_s"], data["spent_machine_s"]) == (1800.0, 3600.0)
    assert (data["sweep_id"], data["jobs_by_state"]["waiting"]) == (sweep_id, 1)
    assert again["timestamp"] != first["timestamp"]
    assert again["data"]["budget_machine_s"] == 2700.0
    assert states(engine) == [(DeliveryState.DELIVERED, 1)] * 2


def test_the_addresses_of_the_farm_follow_the_setting(
    engine: sa.Engine, receiver: Receiver
) -> None:
    clock = Clock()
    Sender(engine, clock, addresses=[receiver.address]).turn()
    with reading(engine) as session:
        [target] = targets_of_farm(session)
    Sender(engine, clock, addresses=[receiver.address]).turn()
    with reading(engine) as session:
        assert targets_of_farm(session)[0].secret == target.secret
    Sender(engine, clock).turn()
    ended_sweep(engine)
    Sender(engine, clock).turn()
    assert receiver.received == []
    with reading(engine) as session:
        [left] = session.scalars(sa.select(NotificationTarget))
    assert left.removed_at == NOW


def test_what_happened_before_an_address_was_set_is_not_told(
    engine: sa.Engine, receiver: Receiver
) -> None:
    ended_sweep(engine)
    clock = Clock()
    clock.go_on(1)
    Sender(engine, clock, addresses=[receiver.address]).turn()
    assert receiver.received == []


def test_of_what_nobody_is_to_be_told_of_nothing_is_worked_out(
    engine: sa.Engine, receiver: Receiver
) -> None:
    """Baselines are compared for minutes of a core, and a turn is taken every other second."""
    ended_sweep(engine)
    ended_sweep(engine, receiver.address, name="other")
    sender = Sender(engine, Clock(), well_for_s=0.0)
    sender.turn()
    with writing(engine) as session:
        add_agent(session, "lost", heartbeat_at=NOW)
    with reading(engine) as session:
        assert [*events_of_sweeps(session, since=NOW)] == []
        lost_after = dt.timedelta(seconds=1)
        later = NOW + dt.timedelta(minutes=2)
        assert [*events_of_agents(session, now=later, lost_after=lost_after)] == []
    assert [message["data"]["sweep_name"] for message in receiver.messages] == ["other"]


def test_an_agent_with_the_longest_name_is_told_of(engine: sa.Engine, receiver: Receiver) -> None:
    clock = Clock()
    sender = Sender(engine, clock, addresses=[receiver.address], well_for_s=0.0)
    sender.turn()
    with writing(engine) as session:
        add_agent(session, "x" * 128, boot_id="b", heartbeat_at=NOW)
    clock.go_on(61)
    sender.turn()
    assert [message["data"]["agent_id"] for message in receiver.messages] == ["x" * 128]


def test_an_agent_that_was_told_of_is_not_looked_at_again(
    engine: sa.Engine, receiver: Receiver
) -> None:
    clock = Clock()
    sender = Sender(engine, clock, addresses=[receiver.address], well_for_s=0.0)
    sender.turn()
    with writing(engine) as session:
        add_agent(session, "gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n%_", heartbeat_at=NOW)
    clock.go_on(61)
    sender.turn()
    assert len(receiver.received) == 1
    with reading(engine) as session:
        lost_after = dt.timedelta(seconds=60)
        assert [*events_of_agents(session, now=clock.now, lost_after=lost_after)] == []


def test_the_farms_own_addresses_come_before_those_of_sweeps(
    engine: sa.Engine, receiver: Receiver
) -> None:
    """More addresses of sweeps than there are threads, all of which hang."""
    with writing(engine) as session:
        add_targets(session, ["https://the-farm.example/"], [SECRET], sweep_id=None, now=NOW)
    for number in range(20):
        ended_sweep(engine, f"https://sweep.example/{number}", name=f"sweep {number}")
    clock = Clock()
    with writing(engine) as session:
        record(session, [*events_of_sweeps(session, since=NOW)], now=NOW)
        options = {"now": clock.now, "claim": dt.timedelta(minutes=3), "most_messages": 100}
        claimed = claim_addresses(session, most=8, **options)  # type: ignore[arg-type] # as named
        assert len(claimed) == 8
        assert "https://the-farm.example/" in [one.address for one in claimed]
        again = claim_addresses(session, most=20, **options)  # type: ignore[arg-type] # as named
        assert not {one.address for one in again} & {one.address for one in claimed}

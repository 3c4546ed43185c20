"""The scheduler's rounds on a real store, with agents whose messages the test writes itself."""

from __future__ import annotations

import dataclasses

import pytest
import sqlalchemy as sa
from sqlalchemy import select

from farm.configuration.spec import TENSORFLOW, BatchSplit, NetworkProfile
from farm.gang.lifecycle import AttemptState, JobState
from farm.messages.commands import Go, Peers, Shape, StartRank, StopAttempt
from farm.messages.reports import (
    PeerBandwidth,
    PeerRtt,
    PeersMeasured,
    RankEnded,
    Sample,
    Samples,
    Shaped,
)
from farm.messages.trainer_lines import (
    Failure,
    FailureKind,
)
from farm.registry import model_size
from farm.store.engine import reading, writing
from farm.store.result_tables import MeasurementRow
from farm.store.tables import AgentRow, JobRow
from tests.factories import NOW, add_agent, add_sweep, agent_facts, job_spec, seconds
from tests.stored.two_agents import (
    ENDED,
    FACTS,
    RESULT,
    RULES,
    STARTED,
    STEPS,
    TwoAgents,
    kinds,
)


@pytest.fixture
def gang(engine: sa.Engine) -> TwoAgents:
    with writing(engine) as session:
        add_sweep(session, job_spec(world_size=2))
        for agent_id, facts in FACTS.items():
            add_agent(session, agent_id, facts=facts, lease_boot_id=f"boot of {agent_id}")
    return TwoAgents(engine)


def test_a_gang_is_led_through_the_four_barriers_to_its_measurement(gang: TwoAgents) -> None:
    first = gang.round()
    assert kinds(first) == [("a", StartRank), ("b", StartRank)]
    assert isinstance(first[0].command, StartRank)
    token = first[0].command.token
    gang.prepare(token)
    peers = gang.round()
    assert kinds(peers) == [("a", Peers), ("b", Peers)]
    assert isinstance(peers[0].command, Peers)
    assert [address.rank for address in peers[0].command.addresses] == [0, 1]
    gang.both_report(token, PeersMeasured(rtts=()))
    assert kinds(gang.round()) == [("a", Shape), ("b", Shape)]
    gang.both_report(token, Shaped(emulator="none", rtts=()))
    go = gang.round()
    assert kinds(go) == [("a", Go), ("b", Go)]
    assert isinstance(go[0].command, Go)
    assert go[0].command.cluster == {"worker": ("127.0.0.1:20", "127.0.0.1:21")}
    gang.both_report(token, STARTED)
    gang.round()
    assert gang.job().state is JobState.RUNNING
    # A mean takes two whole seconds with timed steps.
    samples = tuple(Sample(tick=tick, cpu_ratio=0.5, net_tx_bytes_per_s=7.0) for tick in (1, 2))
    gang.both_report(token, Samples(samples=samples))
    gang.end(token)
    assert gang.round() == []
    assert gang.job().state is JobState.SUCCEEDED
    with reading(gang.engine) as session:
        # Their last words were that nothing of it is left, so nobody asks them.
        assert {a.unclean_token for a in session.scalars(select(AgentRow))} == {None}
        row = session.scalars(select(MeasurementRow)).one()
    assert row.status == "ok"
    assert row.loaded_rtt_s is None
    unmeasured = row.details["unmeasured"]
    assert unmeasured["loaded_rtt_s"] == "the job limits no bandwidth, so nothing has to queue"
    assert row.step_time_s == pytest.approx(0.2)
    assert row.accuracy == 0.75
    assert (row.cpu_ratio, row.net_tx_bytes_per_s) == (0.5, 7.0)
    assert row.sent_bytes_per_step == pytest.approx(800)
    size = model_size("mlp", "digits")
    assert size is not None
    assert row.throughput_examples_per_s is not None
    achieved = row.throughput_examples_per_s * 3 * size.forward_flop_per_example
    assert row.details["quantities"]["achieved_flop_per_s"] == pytest.approx(achieved)
    # What cannot be told is kept with the reason.
    assert row.net_rx_bytes_per_s is None
    assert {"net_rx_bytes_per_s", "idle_ratio", "energy_per_step_j"} < unmeasured.keys()
    assert not unmeasured.keys() & {"step_time_s", "cpu_ratio", "achieved_flop_per_s"}
    assert all(unmeasured.values())
    assert row.steps_per_epoch == 45
    assert row.fingerprint is not None


def test_bytes_that_the_strategy_cannot_do_with_are_kept_as_a_reason(gang: TwoAgents) -> None:
    token = gang.start()
    # Two ranks in a ring send the 400 bytes of the gradients in each of three steps.
    few = dataclasses.replace(
        RESULT, payload_tx_bytes=1199, payload_rx_bytes=1200, details={"interface": "lo"}
    )
    gang.end(token, ended=dataclasses.replace(ENDED, result=few))
    gang.round()
    with reading(gang.engine) as session:
        row = session.scalars(select(MeasurementRow)).one()
    assert (row.sent_bytes_per_step, row.received_bytes_per_step) == (None, 400)
    assert "at least 400" in row.details["unmeasured"]["sent_bytes_per_step"]
    # The loopback interface carries what both ranks send, so it was not asked.
    assert row.details["net_bytes_of"] == "the trainers' own TCP connections"


@pytest.mark.parametrize("arrived", [(), (0.1,), (0.1, 0.2)])
def test_an_attempt_whose_steps_did_not_all_arrive_is_measured_again(
    gang: TwoAgents, arrived: tuple[float, ...]
) -> None:
    token = gang.start()
    if arrived:
        gang.report("a", token, 0, dataclasses.replace(STEPS, times_s=arrived))
    gang.report("b", token, 1, STEPS)
    gang.both_report(token, ENDED)
    gang.round()
    [attempt] = gang.attempts()
    assert attempt.state is AttemptState.LOST
    assert f"rank 0 trained 3 timed steps, and {len(arrived)} arrived" in (attempt.reason or "")
    assert gang.job().state is JobState.WAITING
    with reading(gang.engine) as session:
        assert session.scalars(select(MeasurementRow)).all() == []


def test_what_a_users_file_contained_tells_its_measurements_apart(gang: TwoAgents) -> None:
    contents = [None, "1" * 64, "2" * 64, "1" * 64]
    for repetition, model_sha256 in enumerate(contents):
        if repetition > 0:
            with writing(gang.engine) as session:
                add_sweep(session, job_spec(world_size=2, repetition=repetition))
        token = gang.start(model_sha256=model_sha256)
        gang.end(token)
        gang.round()
        for agent_id in "ab":
            gang.beat(agent_id, serving=None, highest=token)
    with reading(gang.engine) as session:
        rows = session.scalars(select(MeasurementRow).order_by(MeasurementRow.attempt_id)).all()
    assert [row.details.get("model_sha256") for row in rows] == contents
    hardware, first, second, first_again = (row.fingerprint for row in rows)
    assert first == first_again
    assert len({hardware, first, second}) == 3


def test_a_batch_is_shared_by_the_speed_that_the_control_runs_tell(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_sweep(session, job_spec(world_size=2, batch_split=BatchSplit.BY_SPEED))
        for agent_id, facts in FACTS.items():
            add_agent(session, agent_id, facts=facts, lease_boot_id=f"boot of {agent_id}")
    gang = TwoAgents(engine)
    token = gang.round()[0].command.token  # type: ignore[union-attr] # it is a StartRank
    gang.prepare(token)
    gang.round()
    gang.report("a", token, 0, PeersMeasured(rtts=(), control_s=0.1))
    gang.report("b", token, 1, PeersMeasured(rtts=(), control_s=0.3))
    gang.round()
    gang.both_report(token, Shaped(emulator="none", rtts=()))
    sent = [due.command for due in gang.round()]
    # Whoever does not answer is told the same once more.
    sent += [due.command for due in gang.round(after_s=RULES.limits.resend_s + 1)]
    assert len(sent) == 4
    for command in sent:
        assert isinstance(command, Go)
        assert command.batch_weights == pytest.approx((0.75, 0.25))


def rtts_to(rank: int, rtt_s: float) -> tuple[PeerRtt, ...]:
    return (PeerRtt(rank=rank, rtt_s=rtt_s, probe_count=20),)


def carried_to(rank: int, bytes_per_s: float) -> tuple[PeerBandwidth, ...]:
    return (PeerBandwidth(rank=rank, bytes_per_s=bytes_per_s, byte_count=10**6),)


@pytest.mark.parametrize(
    ("shaped_s", "carried_bytes_per_s", "back_s", "state", "reason"),
    [
        (0.0404, 1.2e6, 0.0004, AttemptState.SUCCEEDED, None),
        (0.0204, 1.2e6, None, AttemptState.VOID, "takes 20.4 ms, expected 40.4 ms"),
        (0.0404, 0.6e6, None, AttemptState.VOID, "is 4.80 Mbit/s, expected 10.0 Mbit/s"),
        (0.0404, 1.2e6, 0.0204, AttemptState.VOID, "still takes 20.4 ms after the end"),
    ],
)
def test_a_measurement_stands_only_if_its_network_was_what_it_claims(
    engine: sa.Engine,
    shaped_s: float,
    carried_bytes_per_s: float,
    back_s: float | None,
    state: AttemptState,
    reason: str | None,
) -> None:
    with writing(engine) as session:
        network = NetworkProfile(one_way_delay_s=0.02, bandwidth_bytes_per_s=1.25e6)
        add_sweep(session, job_spec(world_size=2, network=network))
        for agent_id, machine in (("a", "m1"), ("b", "m2")):
            facts = agent_facts(machine_id=machine, capabilities=("network", TENSORFLOW))
            add_agent(session, agent_id, facts=facts, lease_boot_id=f"boot of {agent_id}")
    gang = TwoAgents(engine)
    token = gang.round()[0].command.token  # type: ignore[union-attr] # it is a StartRank
    gang.prepare(token)
    gang.round()
    for rank, agent_id in enumerate("ab"):
        gang.report(agent_id, token, rank, PeersMeasured(rtts=rtts_to(1 - rank, 0.0004)))
    gang.round()
    for rank, agent_id in enumerate("ab"):
        shaped = Shaped(
            emulator="tc_netem",
            rtts=rtts_to(1 - rank, shaped_s),
            bandwidths=carried_to(1 - rank, carried_bytes_per_s + rank * 1000),
            loaded_rtts=rtts_to(1 - rank, 0.08 + rank * 0.01),
        )
        gang.report(agent_id, token, rank, shaped)
    gang.round()
    if back_s is not None:
        gang.both_report(token, STARTED)
        gang.round()
        gang.both_report(token, STEPS)
        for rank, agent_id in enumerate("ab"):
            ended = dataclasses.replace(ENDED, rtts=rtts_to(1 - rank, back_s))
            gang.report(agent_id, token, rank, ended)
        gang.round()
    [attempt] = gang.attempts()
    assert attempt.state is state
    assert (attempt.failure_kind, gang.job().state) == (
        (None, JobState.SUCCEEDED) if reason is None else ("network", JobState.WAITING)
    )
    assert reason is None or reason in (attempt.reason or "")
    with reading(engine) as session:
        found = session.execute(
            select(
                MeasurementRow.rtt_s,
                MeasurementRow.measured_bandwidth_bytes_per_s,
                MeasurementRow.loaded_rtt_s,
            )
        ).all()
    assert found == ([(shaped_s, carried_bytes_per_s, 0.09)] if reason is None else [])


def test_nothing_is_sent_twice_before_it_is_overdue(gang: TwoAgents) -> None:
    gang.round()
    assert gang.round() == []
    assert kinds(gang.round(after_s=3.0)) == [("a", StartRank), ("b", StartRank)]


def test_agents_are_leased_again_only_when_clean_and_are_told_to_stop_until_then(
    gang: TwoAgents,
) -> None:
    token = gang.start()
    failure = Failure(kind=FailureKind.KILLED, message="signal 9")
    gang.both_report(
        token, RankEnded(result=None, failure=failure, timed_begun_s=None, log_tail="")
    )
    assert kinds(gang.round()) == [("a", StopAttempt), ("b", StopAttempt)]
    assert gang.job().state is JobState.WAITING
    gang.beat("a", serving=None, highest=token)
    gang.beat("b", serving=token, highest=token)
    again = gang.round(after_s=2.5)
    assert kinds(again) == [("b", StopAttempt)]
    gang.beat("b", serving=None, highest=token)
    retried = gang.round()
    assert kinds(retried) == [("a", StartRank), ("b", StartRank)]
    assert [a.state for a in gang.attempts()] == [AttemptState.LOST, AttemptState.PREPARING]


def test_an_agent_without_heartbeats_loses_its_rank_and_frees_its_peer(gang: TwoAgents) -> None:
    token = gang.start()
    gang.now += seconds(19)
    gang.beat("a", serving=token, highest=token)
    # Only a is alive, so only a is told to stop; b will be when it comes back.
    assert kinds(gang.round(after_s=1.5)) == [("a", StopAttempt)]
    attempt = gang.attempts()[0]
    assert (attempt.state, attempt.failure_kind) == (AttemptState.LOST, "agent_lost")
    assert gang.job().state is JobState.WAITING


def test_a_job_whose_machines_keep_failing_fails_after_the_last_attempt(gang: TwoAgents) -> None:
    failure = Failure(kind=FailureKind.KILLED, message="signal 9")
    ended = RankEnded(result=None, failure=failure, timed_begun_s=None, log_tail="")
    for _ in range(RULES.policy.max_attempts):
        token = gang.start()
        gang.both_report(token, ended)
        gang.round()
        gang.beat("a", serving=None, highest=token)
        gang.beat("b", serving=None, highest=token)
        gang.now += seconds(5)
        gang.beat("a", serving=None, highest=token)
        gang.beat("b", serving=None, highest=token)
    job = gang.job()
    assert (job.state, job.failure_kind) == (JobState.FAILED, "killed")
    assert job.reason == "rank 0 on a: signal 9"


def test_a_failed_configuration_is_stored_as_a_result(gang: TwoAgents) -> None:
    token = gang.start()
    failure = Failure(kind=FailureKind.OUT_OF_MEMORY, message="the kernel killed it")
    ended = RankEnded(result=None, failure=failure, timed_begun_s=None, log_tail="")
    gang.report("b", token, 1, ended)
    gang.round()
    assert gang.job().state is JobState.FAILED
    with reading(gang.engine) as session:
        row = session.scalars(select(MeasurementRow)).one()
    assert (row.status, row.step_time_s) == ("out_of_memory", None)


def test_a_cancelled_job_ends_and_lets_its_agents_go(gang: TwoAgents) -> None:
    token = gang.start()
    with writing(gang.engine) as session:
        session.scalars(select(JobRow)).one().cancel_requested = True
    assert kinds(gang.round()) == [("a", StopAttempt), ("b", StopAttempt)]
    assert gang.job().state is JobState.CANCELLED
    with reading(gang.engine) as session:
        assert {a.unclean_token for a in session.scalars(select(AgentRow))} == {token}


def test_reports_after_the_end_of_an_attempt_do_not_bring_it_back(gang: TwoAgents) -> None:
    token = gang.start()
    gang.now += seconds(25)
    gang.round()
    gang.end(token)
    gang.round()
    assert gang.attempts()[0].state is AttemptState.LOST
    assert gang.job().state is JobState.WAITING
    with reading(gang.engine) as session:
        assert session.scalars(select(MeasurementRow)).all() == []


def test_no_attempt_is_over_before_its_ranks_whatever_time_its_scheduler_goes_by(
    gang: TwoAgents,
) -> None:
    token = gang.start()
    gang.end(token)
    ended_at = gang.now
    gang.round(after_s=-6.0)  # it was stopped after it had read its clock
    assert gang.job().state is JobState.SUCCEEDED
    assert gang.attempts()[0].ended_at == ended_at


def test_a_job_in_its_retry_pause_is_not_placed(gang: TwoAgents) -> None:
    with writing(gang.engine) as session:
        job = session.scalars(select(JobRow)).one()
        job.due_at, job.attempt_count = NOW + seconds(2), 1
    assert gang.round() == []
    gang.now += seconds(10)
    gang.beat("a", serving=None, highest=0)
    gang.beat("b", serving=None, highest=0)
    assert kinds(gang.round()) == [("a", StartRank), ("b", StartRank)]


def test_a_drained_agent_finishes_its_rank_but_gets_no_other(gang: TwoAgents) -> None:
    token = gang.start()
    with writing(gang.engine) as session:
        session.get_one(AgentRow, "a").is_drained = True
    gang.end(token)
    gang.round()
    assert gang.job().state is JobState.SUCCEEDED


def test_a_job_goes_to_another_machine_after_one_has_failed_it(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_sweep(session, job_spec())
        for agent_id, facts in FACTS.items():
            add_agent(session, agent_id, facts=facts, lease_boot_id=f"boot of {agent_id}")
    gang = TwoAgents(engine)
    [first] = gang.round()
    assert isinstance(first.command, StartRank)
    assert first.agent_id == "a"
    failure = Failure(kind=FailureKind.REFUSED, message="agent is leaving")
    ended = RankEnded(result=None, failure=failure, timed_begun_s=None, log_tail="")
    gang.report("a", first.command.token, 0, ended)
    gang.round()
    gang.beat("a", serving=None, highest=first.command.token)
    gang.beat("b", serving=None, highest=0)
    assert kinds(gang.round(after_s=3.0)) == [("b", StartRank)]

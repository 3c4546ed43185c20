"""The barriers, and how an attempt ends: one story for each rule."""

from __future__ import annotations

import dataclasses

import pytest

from farm.configuration.spec import BatchSplit, JobSpec, NetworkProfile
from farm.gang.barriers import Limits, barrier_limit_s
from farm.gang.lifecycle import AttemptState, RankPhase
from farm.gang.rendezvous import (
    PREPARING_CAUSE_WAIT_S,
    AttemptEnd,
    PassBarrier,
    Resend,
    Wait,
    decide,
)
from farm.gang.snapshots import AttemptView, RankView
from farm.measuring.control_run import ControlRun
from farm.messages.commands import RankAddress
from farm.messages.reports import PeerBandwidth, PeerRtt
from farm.messages.trainer_lines import Failure, FailureKind
from tests.facts import lacking

LIMITS = Limits(
    prepare_s=30, peers_s=10, shape_s=10, start_s=30, resend_s=3, cause_wait_s=2, end_s=5
)
ADDRESS = RankAddress(rank=0, host="127.0.0.1", probe_port=1, trainer_ports=(2,))
SPEC = JobSpec(
    model="small_cnn",
    dataset="digits",
    strategy="mwms_ring",
    world_size=2,
    global_batch_size=32,
    steps=10,
    time_limit_s=100,
)


def rank(index: int, phase: RankPhase, **changes: object) -> RankView:
    view = RankView(
        rank=index,
        agent_id=f"vm-{index}",
        phase=phase,
        address=None,
        lease_s=20.0,
        command_age_s=0.0,
    )
    return dataclasses.replace(view, **changes)  # type: ignore[arg-type] # any field


def attempt(state: AttemptState, *ranks: RankView, **changes: object) -> AttemptView:
    view = AttemptView(
        token=7,
        job_id=3,
        spec=SPEC,
        state=state,
        state_age_s=1.0,
        ranks=ranks,
        cancel_requested=False,
    )
    return dataclasses.replace(view, **changes)  # type: ignore[arg-type] # any field


def failed(index: int, kind: FailureKind, **changes: object) -> RankView:
    failure = Failure(kind=kind, message=f"because {kind.value}")
    fields = {"failure": failure, "ended_age_s": 0.5, **changes}
    return rank(index, RankPhase.ENDED, **fields)


@pytest.mark.parametrize(
    ("state", "phase", "onward"),
    [
        (AttemptState.PREPARING, RankPhase.PREPARED, AttemptState.MEASURING),
        (AttemptState.MEASURING, RankPhase.MEASURED, AttemptState.SHAPING),
        (AttemptState.SHAPING, RankPhase.SHAPED, AttemptState.STARTING),
        (AttemptState.STARTING, RankPhase.STARTED, AttemptState.RUNNING),
    ],
)
def test_a_barrier_opens_only_when_every_rank_has_reached_it(
    state: AttemptState, phase: RankPhase, onward: AttemptState
) -> None:
    together = attempt(state, rank(0, phase), rank(1, phase))
    assert decide(together, LIMITS) == PassBarrier(state=onward)
    behind = attempt(state, rank(0, phase), rank(1, RankPhase.LEASED))
    assert decide(behind, LIMITS) == Wait()


def test_a_rank_that_is_already_further_has_passed_the_barrier() -> None:
    quick = rank(0, RankPhase.ENDED, succeeded=True, ended_age_s=0.0)
    view = attempt(AttemptState.STARTING, quick, rank(1, RankPhase.STARTED))
    assert decide(view, LIMITS) == PassBarrier(state=AttemptState.RUNNING)


@pytest.mark.parametrize(
    ("network", "onward"),
    [
        (None, AttemptState.STARTING),
        (NetworkProfile(), AttemptState.STARTING),
        (NetworkProfile(one_way_delay_s=0.02), AttemptState.SHAPING),
    ],
)
def test_two_barriers_are_passed_at_once_only_where_nothing_is_to_be_shaped(
    network: NetworkProfile | None, onward: AttemptState
) -> None:
    spec = dataclasses.replace(SPEC, network=network)
    ranks = [rank(index, RankPhase.SHAPED) for index in range(2)]
    assert decide(attempt(AttemptState.MEASURING, *ranks, spec=spec), LIMITS) == PassBarrier(
        state=onward
    )
    ranks[0] = rank(0, RankPhase.MEASURED)  # by an agent that waits to be told
    assert decide(attempt(AttemptState.MEASURING, *ranks, spec=spec), LIMITS) == PassBarrier(
        state=AttemptState.SHAPING
    )


def test_only_the_ranks_that_did_not_answer_are_told_again() -> None:
    view = attempt(
        AttemptState.PREPARING,
        rank(0, RankPhase.PREPARED, command_age_s=9.0),
        rank(1, RankPhase.LEASED, command_age_s=3.0),
    )
    assert decide(view, LIMITS) == Resend(ranks=(1,))


def test_a_missed_barrier_ends_the_attempt_and_names_who_was_missing() -> None:
    view = attempt(
        AttemptState.MEASURING,
        rank(0, RankPhase.MEASURED),
        rank(1, RankPhase.PREPARED),
        state_age_s=10.0,
    )
    decision = decide(view, LIMITS)
    assert isinstance(decision, AttemptEnd)
    assert decision.state is AttemptState.LOST
    assert decision.failure is not None
    assert decision.failure.kind is FailureKind.RENDEZVOUS
    assert "rank 1 on vm-1" in decision.failure.message
    assert "vm-0" not in decision.failure.message


def test_an_agent_has_its_say_before_go_is_given_up() -> None:
    ranks = rank(0, RankPhase.SHAPED), rank(1, RankPhase.STARTED)
    at_its_limit = attempt(AttemptState.STARTING, *ranks, state_age_s=LIMITS.start_s)
    assert decide(at_its_limit, LIMITS) == Wait()
    over_s = LIMITS.start_s + LIMITS.report_s
    lost = decide(attempt(AttemptState.STARTING, *ranks, state_age_s=over_s), LIMITS)
    assert isinstance(lost, AttemptEnd)
    assert lost.failure is not None
    assert lacking(lost.failure.message, "'go'", "30 s", "rank 0") == []
    assert "rank 1" not in lost.failure.message


def test_one_expired_lease_ends_the_attempt_for_the_whole_gang() -> None:
    view = attempt(
        AttemptState.RUNNING, rank(0, RankPhase.STARTED), rank(1, RankPhase.STARTED, lease_s=-0.1)
    )
    decision = decide(view, LIMITS)
    assert isinstance(decision, AttemptEnd)
    assert decision.state is AttemptState.LOST
    assert decision.failure is not None
    assert decision.failure.kind is FailureKind.AGENT_LOST
    assert "vm-1" in decision.failure.message


def test_the_lease_of_a_rank_that_has_ended_does_not_matter_any_more() -> None:
    done = rank(0, RankPhase.ENDED, succeeded=True, ended_age_s=1.0, lease_s=-5.0)
    view = attempt(AttemptState.RUNNING, done, rank(1, RankPhase.STARTED))
    assert decide(view, LIMITS) == Wait()


def test_an_attempt_succeeds_when_every_rank_ended_with_a_result() -> None:
    ranks = [rank(i, RankPhase.ENDED, succeeded=True, ended_age_s=0.0) for i in (0, 1)]
    assert decide(attempt(AttemptState.RUNNING, *ranks), LIMITS) == AttemptEnd(
        state=AttemptState.SUCCEEDED
    )


def test_a_failed_configuration_decides_at_once_although_a_peer_complained_first() -> None:
    view = attempt(
        AttemptState.RUNNING,
        failed(0, FailureKind.PEER_LOST, ended_age_s=1.5),
        failed(1, FailureKind.OUT_OF_MEMORY, ended_age_s=0.0),
    )
    decision = decide(view, LIMITS)
    assert isinstance(decision, AttemptEnd)
    assert decision.state is AttemptState.FAILED
    assert decision.failure is not None
    assert decision.failure.kind is FailureKind.OUT_OF_MEMORY


def test_a_lost_peer_waits_for_the_cause_before_it_decides() -> None:
    complaint = failed(0, FailureKind.PEER_LOST, ended_age_s=1.0)
    running = rank(1, RankPhase.STARTED)
    assert decide(attempt(AttemptState.RUNNING, complaint, running), LIMITS) == Wait()
    late = dataclasses.replace(complaint, ended_age_s=2.0)
    decision = decide(attempt(AttemptState.RUNNING, late, running), LIMITS)
    assert isinstance(decision, AttemptEnd)
    assert decision.state is AttemptState.LOST


def test_who_says_nothing_is_the_cause_of_its_peers_complaints() -> None:
    complaint = failed(0, FailureKind.PEER_LOST, ended_age_s=2.0)
    view = attempt(AttemptState.RUNNING, complaint, rank(1, RankPhase.STARTED))
    decision = decide(view, LIMITS)
    assert isinstance(decision, AttemptEnd)
    assert decision.state is AttemptState.LOST
    assert decision.failure is not None
    assert decision.failure.kind is FailureKind.STALLED
    cause, _, witness = decision.failure.message.partition(",")
    assert lacking(cause, "rank 1", "vm-1") == []
    assert lacking(witness, "rank 0", "vm-0", "because peer_lost") == []


def test_a_gang_in_which_everybody_lost_somebody_blames_nobody() -> None:
    ranks = [failed(i, FailureKind.PEER_LOST, ended_age_s=2.0) for i in (0, 1)]
    decision = decide(attempt(AttemptState.RUNNING, *ranks), LIMITS)
    assert isinstance(decision, AttemptEnd)
    assert decision.failure is not None
    assert decision.failure.kind is FailureKind.PEER_LOST


@pytest.mark.parametrize("steps", [10, None])
def test_who_has_trained_to_its_end_is_the_cause_of_a_peers_broken_connection(
    steps: int | None,
) -> None:
    view = attempt(
        AttemptState.RUNNING,
        rank(0, RankPhase.ENDED, succeeded=True, ended_age_s=1.0),
        failed(1, FailureKind.PEER_LOST),
        spec=dataclasses.replace(SPEC, model="script:train.py", steps=steps, epochs=None),
    )
    decision = decide(view, LIMITS)
    assert isinstance(decision, AttemptEnd)
    assert decision.failure is not None
    if steps is not None:  # it has made all that were asked for
        assert decision.state is AttemptState.LOST
        assert decision.failure.kind is FailureKind.PEER_LOST
        return
    assert decision.state is AttemptState.FAILED
    assert decision.failure.kind is FailureKind.TRAINER_RAISED
    assert decision.failure.message.startswith("rank 0 on vm-0 ended")
    assert lacking(decision.failure.message, "rank 1", "vm-1", "because peer_lost") == []


def test_nobody_waits_for_a_prepared_rank_when_another_cannot_prepare() -> None:
    lacking = failed(1, FailureKind.DATASET_MISSING, ended_age_s=0.0)
    view = attempt(AttemptState.PREPARING, rank(0, RankPhase.PREPARED), lacking)
    decision = decide(view, LIMITS)
    assert isinstance(decision, AttemptEnd)
    assert decision.failure is not None
    assert decision.failure.message == "rank 1 on vm-1: because dataset_missing"


def test_whoever_may_lack_the_same_has_a_moment_to_say_so() -> None:
    lacking = failed(1, FailureKind.DATASET_MISSING, ended_age_s=0.9)
    view = attempt(AttemptState.PREPARING, rank(0, RankPhase.LEASED), lacking)
    assert decide(view, LIMITS) == Wait()
    lacking = dataclasses.replace(lacking, ended_age_s=PREPARING_CAUSE_WAIT_S)
    view = attempt(AttemptState.PREPARING, rank(0, RankPhase.LEASED), lacking)
    assert isinstance(decide(view, LIMITS), AttemptEnd)


def prepared(*frameworks: str) -> list[RankView]:
    return [rank(i, RankPhase.PREPARED, framework=name) for i, name in enumerate(frameworks)]


def test_a_gang_of_several_versions_is_refused_before_anything_is_measured() -> None:
    ranks = prepared("tensorflow 2.21.0", "tensorflow 2.20.0", "tensorflow 2.21.0")
    decision = decide(attempt(AttemptState.PREPARING, *ranks), LIMITS)
    assert isinstance(decision, AttemptEnd)
    assert decision.state is AttemptState.LOST
    assert decision.failure is not None
    assert decision.failure.kind is FailureKind.VERSIONS_DIFFER
    newer, _, older = decision.failure.message.partition(",")
    assert lacking(newer, "rank 0", "vm-0", "tensorflow 2.21.0") == []
    assert lacking(older, "rank 1", "vm-1", "tensorflow 2.20.0") == []


def test_a_gang_of_one_version_goes_on() -> None:
    ranks = prepared("tensorflow 2.21.0", "tensorflow 2.21.0")
    view = attempt(AttemptState.PREPARING, *ranks)
    assert decide(view, LIMITS) == PassBarrier(state=AttemptState.MEASURING)


@pytest.mark.parametrize(
    ("checksums", "is_refused"),
    [
        ((5000.0, 5000.00001, 5000.0), False),
        ((5000.0, 5000.0, 5000.1), True),
        ((5000.0, None, 5000.0), False),  # a rank that only serves
        ((None, None, None), False),  # a model of the program's own
    ],
)
def test_a_model_that_differs_from_rank_to_rank_is_refused(
    checksums: tuple[float | None, ...], is_refused: bool
) -> None:
    ranks = [
        rank(i, RankPhase.STARTED, weights_checksum=checksum)
        for i, checksum in enumerate(checksums)
    ]
    spec = dataclasses.replace(SPEC, model="file:mine.py")
    decision = decide(attempt(AttemptState.STARTING, *ranks, spec=spec), LIMITS)
    if not is_refused:
        assert decision == PassBarrier(state=AttemptState.RUNNING)
        return
    assert isinstance(decision, AttemptEnd)
    assert decision.state is AttemptState.FAILED
    assert decision.failure is not None
    assert decision.failure.kind is FailureKind.TRAINER_RAISED
    message = decision.failure.message
    assert lacking(message, "file:mine.py", "weights", "rank 2", "vm-2", "rank 0", "vm-0") == []


def test_the_cause_is_named_and_not_its_echo() -> None:
    view = attempt(
        AttemptState.RUNNING, failed(0, FailureKind.PEER_LOST), failed(1, FailureKind.KILLED)
    )
    decision = decide(view, LIMITS)
    assert isinstance(decision, AttemptEnd)
    assert decision.failure is not None
    assert decision.failure.kind is FailureKind.KILLED


def test_a_silent_dead_agent_is_the_cause_of_its_peers_complaints() -> None:
    view = attempt(
        AttemptState.RUNNING,
        failed(0, FailureKind.PEER_LOST),
        rank(1, RankPhase.STARTED, lease_s=-1.0),
    )
    decision = decide(view, LIMITS)
    assert isinstance(decision, AttemptEnd)
    assert decision.failure is not None
    assert decision.failure.kind is FailureKind.AGENT_LOST


def test_a_job_over_its_time_limit_is_a_failed_configuration() -> None:
    ranks = [failed(0, FailureKind.TIME_LIMIT), rank(1, RankPhase.STARTED)]
    decision = decide(attempt(AttemptState.RUNNING, *ranks, state_age_s=100.0), LIMITS)
    assert isinstance(decision, AttemptEnd)
    assert decision.state is AttemptState.FAILED


def test_a_gang_that_never_says_how_it_ended_is_a_failed_machine() -> None:
    ranks = [rank(i, RankPhase.STARTED) for i in (0, 1)]
    patient = attempt(AttemptState.RUNNING, *ranks, state_age_s=104.0)
    assert decide(patient, LIMITS) == Wait()
    decision = decide(dataclasses.replace(patient, state_age_s=105.0), LIMITS)
    assert isinstance(decision, AttemptEnd)
    assert decision.state is AttemptState.LOST
    assert decision.failure is not None
    assert "rank 1 on vm-1" in decision.failure.message


@pytest.mark.parametrize(
    ("address", "state"), [(None, AttemptState.LOST), (ADDRESS, AttemptState.FAILED)]
)
def test_a_trainer_that_raises_before_it_is_ready_says_nothing_of_the_configuration(
    address: RankAddress | None, state: AttemptState
) -> None:
    view = attempt(AttemptState.PREPARING, failed(0, FailureKind.TRAINER_RAISED, address=address))
    decision = decide(view, LIMITS)
    assert isinstance(decision, AttemptEnd)
    assert decision.state is state


def test_cancelling_wins_over_everything() -> None:
    ranks = [failed(0, FailureKind.KILLED), rank(1, RankPhase.LEASED, lease_s=-1.0)]
    view = attempt(AttemptState.PREPARING, *ranks, cancel_requested=True)
    assert decide(view, LIMITS) == AttemptEnd(state=AttemptState.CANCELLED)


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        (AttemptState.MEASURING, RankPhase.MEASURED),
        (AttemptState.SHAPING, RankPhase.SHAPED),
    ],
)
def test_a_machine_that_drifted_ends_the_attempt_at_the_peers_barrier_and_at_no_other(
    state: AttemptState, phase: RankPhase
) -> None:
    drifted = ControlRun(control_s=1.5, past_s=(1.0,) * 5)
    decision = decide(attempt(state, rank(0, phase), rank(1, phase, control=drifted)), LIMITS)
    if state is not AttemptState.MEASURING:
        assert isinstance(decision, PassBarrier)
        return
    assert isinstance(decision, AttemptEnd)
    assert decision.state is AttemptState.VOID
    assert decision.failure is not None
    assert decision.failure.kind is FailureKind.DISTURBED
    assert lacking(decision.failure.message, "vm-1", "rank 1", "control run", "50 %") == []
    assert [flag.rank for flag in decision.disturbed] == [1]


def test_the_slowest_of_several_drifted_machines_is_named_and_the_others_counted() -> None:
    ranks = [
        rank(i, RankPhase.MEASURED, control=ControlRun(control_s=s, past_s=(1.0,) * 5))
        for i, s in enumerate((1.4, 2.0))
    ]
    decision = decide(attempt(AttemptState.MEASURING, *ranks), LIMITS)
    assert isinstance(decision, AttemptEnd)
    assert decision.failure is not None
    assert "vm-1" in decision.failure.message
    assert decision.failure.message.endswith("(and 1 more)")
    assert [flag.rank for flag in decision.disturbed] == [1, 0]


def rtts(**to_ranks_s: float) -> tuple[PeerRtt, ...]:
    return tuple(
        PeerRtt(rank=int(name[1:]), rtt_s=rtt_s, probe_count=20)
        for name, rtt_s in to_ranks_s.items()
    )


@pytest.mark.parametrize(
    ("seen_s", "ending"),
    [
        (0.0404, None),
        (
            0.0204,
            "the round trip from rank 1 on vm-1 to rank 0 takes 20.4 ms, expected 40.4 ms:"
            " 400 µs and twice the one-way delay of 20.0 ms",
        ),
    ],
)
def test_a_network_that_is_not_what_was_asked_for_voids_the_attempt(
    seen_s: float, ending: str | None
) -> None:
    spec = dataclasses.replace(SPEC, network=NetworkProfile(one_way_delay_s=0.02))
    phase = RankPhase.SHAPED
    ranks = (
        rank(0, phase, untouched=rtts(r1=0.0004), shaped=rtts(r1=0.0404)),
        rank(1, phase, untouched=rtts(r0=0.0004), shaped=rtts(r0=seen_s)),
    )
    decision = decide(attempt(AttemptState.SHAPING, *ranks, spec=spec), LIMITS)
    if ending is None:
        assert decision == PassBarrier(state=AttemptState.STARTING)
        return
    failure = Failure(kind=FailureKind.NETWORK, message=ending)
    assert decision == AttemptEnd(state=AttemptState.VOID, failure=failure)


@pytest.mark.parametrize(("seen_bytes_per_s", "is_void"), [(1.2e6, False), (0.6e6, True)])
def test_a_bandwidth_that_is_not_what_was_asked_for_voids_the_attempt(
    seen_bytes_per_s: float, is_void: bool
) -> None:
    spec = dataclasses.replace(SPEC, network=NetworkProfile(bandwidth_bytes_per_s=1.25e6))
    ranks = (
        rank(
            index,
            RankPhase.SHAPED,
            untouched=(PeerRtt(rank=1 - index, rtt_s=0.0004, probe_count=20),),
            shaped=(PeerRtt(rank=1 - index, rtt_s=0.0005, probe_count=20),),
            bandwidths=(PeerBandwidth(rank=1 - index, bytes_per_s=found, byte_count=10**6),),
        )
        for index, found in enumerate((1.25e6, seen_bytes_per_s))
    )
    decision = decide(attempt(AttemptState.SHAPING, *ranks, spec=spec), LIMITS)
    if not is_void:
        assert decision == PassBarrier(state=AttemptState.STARTING)
        return
    message = "the bandwidth from rank 1 on vm-1 to rank 0 is 4.80 Mbit/s, expected 10.0 Mbit/s"
    failure = Failure(kind=FailureKind.NETWORK, message=message)
    assert decision == AttemptEnd(state=AttemptState.VOID, failure=failure)


@pytest.mark.parametrize(
    ("profile", "limit_s"),
    [
        (None, 10.0),
        (NetworkProfile(one_way_delay_s=0.001), 11.0),
        # 3 x 22 round trips of 2 s, and 10 s to apply it
        (NetworkProfile(one_way_delay_s=1.0), 142.0),
    ],
)
def test_a_profile_that_takes_long_to_verify_has_the_time_for_it(
    profile: NetworkProfile | None, limit_s: float
) -> None:
    ranks = (rank(0, RankPhase.SHAPED), rank(1, RankPhase.MEASURED))
    view = attempt(AttemptState.SHAPING, *ranks, spec=dataclasses.replace(SPEC, network=profile))
    assert barrier_limit_s(view, AttemptState.SHAPING, limits=LIMITS) == limit_s
    assert decide(dataclasses.replace(view, state_age_s=limit_s - 1), LIMITS) == Wait()
    ended = decide(dataclasses.replace(view, state_age_s=limit_s), LIMITS)
    assert isinstance(ended, AttemptEnd)
    assert ended.failure is not None
    assert f"within {limit_s:g} s by rank 1" in ended.failure.message


@pytest.mark.parametrize(
    ("back", "ending"),
    [
        (rtts(r1=0.0006), None),
        ((), None),
        (
            rtts(r1=0.0204),
            "the round trip from rank 0 on vm-0 to rank 1 still takes 20.4 ms after the end, and"
            " took 400 µs before",
        ),
    ],
)
def test_a_network_that_does_not_come_back_voids_a_success(
    back: tuple[PeerRtt, ...], ending: str | None
) -> None:
    ranks = (
        rank(0, RankPhase.ENDED, succeeded=True, untouched=rtts(r1=0.0004), back=back),
        rank(1, RankPhase.ENDED, succeeded=True, untouched=rtts(r0=0.0004)),
    )
    decision = decide(attempt(AttemptState.RUNNING, *ranks), LIMITS)
    if ending is None:
        assert decision == AttemptEnd(state=AttemptState.SUCCEEDED)
        return
    failure = Failure(kind=FailureKind.NETWORK, message=ending)
    assert decision == AttemptEnd(state=AttemptState.VOID, failure=failure)


def test_a_profile_that_was_not_there_to_the_end_voids_the_attempt() -> None:
    success = rank(1, RankPhase.ENDED, succeeded=True)
    lost = failed(0, FailureKind.NETWORK, ended_age_s=2.0)
    ended = decide(attempt(AttemptState.RUNNING, lost, success), LIMITS)
    assert isinstance(ended, AttemptEnd)
    assert ended.state is AttemptState.VOID
    assert ended.failure is not None
    assert ended.failure.message == "rank 0 on vm-0: because network"
    # Before anything trains it is a machine that cannot do what it was told.
    shaping = decide(attempt(AttemptState.SHAPING, lost, rank(1, RankPhase.SHAPED)), LIMITS)
    assert isinstance(shaping, AttemptEnd)
    assert shaping.state is AttemptState.LOST


def test_a_batch_that_is_to_be_shared_by_speed_needs_the_speed_of_every_rank_that_trains() -> None:
    known = ControlRun(control_s=0.1, past_s=())
    spec = dataclasses.replace(SPEC, batch_split=BatchSplit.BY_SPEED)
    both = [rank(0, RankPhase.MEASURED, control=known), rank(1, RankPhase.MEASURED)]
    ended = decide(attempt(AttemptState.MEASURING, *both, spec=spec), LIMITS)
    assert isinstance(ended, AttemptEnd)
    assert ended.state is AttemptState.LOST
    assert ended.failure is not None
    assert lacking(ended.failure.message, "no control run", "rank 1") == []
    even = decide(attempt(AttemptState.MEASURING, *both), LIMITS)
    assert even == PassBarrier(state=AttemptState.SHAPING)

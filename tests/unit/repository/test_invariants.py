"""What judges the farm is judged first: each promise that is broken here has to be noticed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from farm.gang.lifecycle import AttemptState, JobState, RankPhase
from tests.promises.invariants import (
    all_is_done,
    leased_agents_are_free,
    leases_follow_life,
    nothing_is_lost,
    services_are_fenced,
    store_violations,
    who_serves_is_held,
)
from tests.promises.legal_changes import changes_are_legal
from tests.promises.protocol_values import (
    AgentValue,
    AttemptValue,
    JobValue,
    MeasurementValue,
    RankValue,
    Service,
    Spooled,
    StoreValue,
)

LEASE_S = 4.0
LATE_S = 3.0


def job(**changes: Any) -> JobValue:
    value = JobValue(id=1, state=JobState.RUNNING, attempt_id=7, agent_count=2, is_finished=False)
    return dataclasses.replace(value, **changes)


def attempt(**changes: Any) -> AttemptValue:
    value = AttemptValue(id=7, job_id=1, number=1, state=AttemptState.RUNNING)
    return dataclasses.replace(value, **changes)


def rank(number: int, **changes: Any) -> RankValue:
    value = RankValue(
        attempt_id=7, rank=number, agent_id=f"a{number}", phase=RankPhase.STARTED, reported=()
    )
    return dataclasses.replace(value, **changes)


def agent(number: int, **changes: Any) -> AgentValue:
    value = AgentValue(id=f"a{number}", attempt_id=7, lease_s=2.0, unclean_token=None)
    return dataclasses.replace(value, **changes)


def measurement(**changes: Any) -> MeasurementValue:
    return dataclasses.replace(
        MeasurementValue(id=1, job_id=1, attempt_id=7, status="ok"), **changes
    )


AT_WORK = StoreValue(
    jobs=(job(),),
    attempts=(attempt(),),
    ranks=(rank(0), rank(1)),
    agents=(agent(0), agent(1)),
    measurements=(),
)
FREE = (agent(0, attempt_id=None, lease_s=None), agent(1, attempt_id=None, lease_s=None))
OVER = StoreValue(
    jobs=(job(state=JobState.SUCCEEDED, attempt_id=None, is_finished=True),),
    attempts=(attempt(state=AttemptState.SUCCEEDED),),
    ranks=AT_WORK.ranks,
    agents=FREE,
    measurements=(measurement(),),
)


def changed(store: StoreValue, **changes: Any) -> StoreValue:
    return dataclasses.replace(store, **changes)


def violations(store: StoreValue) -> list[str]:
    return store_violations(store, lease_s=LEASE_S, late_s=LATE_S)


@pytest.mark.parametrize("store", [AT_WORK, OVER], ids=["at work", "over"])
def test_a_store_that_keeps_its_promises_is_left_alone(store: StoreValue) -> None:
    assert violations(store) == []
    assert changes_are_legal(store, store) == []


@pytest.mark.parametrize(
    ("store", "message"),
    [
        (
            changed(AT_WORK, attempts=(attempt(), attempt(id=8, number=2))),
            "job 1 holds attempts [7], but [7, 8] are live",
        ),
        (
            changed(AT_WORK, jobs=(job(state=JobState.WAITING),)),
            "job 1 is waiting and holds attempts [7]",
        ),
        (changed(AT_WORK, attempts=(attempt(number=2),)), "job 1 counts its attempts [2]"),
        (changed(AT_WORK, ranks=(rank(0),)), "attempt 7 has ranks [0]; its job needs 2"),
        (
            changed(AT_WORK, ranks=(rank(0), rank(1, agent_id="a0"))),
            "attempt 7 has an agent twice: {0: 'a0', 1: 'a0'}",
        ),
        (
            changed(AT_WORK, agents=(agent(0), FREE[1])),
            "attempt 7 is running: holds ['a0'], not ['a0', 'a1']",
        ),
        (
            changed(OVER, agents=(agent(0), FREE[1])),
            "attempt 7 is succeeded: holds ['a0'], not []",
        ),
        (
            changed(OVER, agents=(agent(0, attempt_id=9), FREE[1])),
            "agents ['a0'] are held by no attempt: 9",
        ),
        (
            changed(AT_WORK, agents=(agent(0, lease_s=None), agent(1))),
            "agent a0: attempt 7, but lease None s",
        ),
        (
            changed(AT_WORK, agents=(agent(0, lease_s=4.5), agent(1))),
            "agent a0 is leased for 4.5 s of 4 s",
        ),
        (
            changed(AT_WORK, agents=(agent(0, lease_s=-3.5), agent(1))),
            "agent a0: its lease ran out 3.5 s ago",
        ),
        (
            changed(AT_WORK, agents=(agent(0, unclean_token=6), agent(1))),
            "agent a0 is leased to 7 and unclean of 6",
        ),
        (changed(OVER, measurements=()), "job 1 is succeeded: measured [], not [(7, True)]"),
        (
            changed(OVER, measurements=(measurement(), measurement(id=2))),
            "job 1 has measurements [1, 2]",
        ),
        (
            changed(AT_WORK, measurements=(measurement(),)),
            "job 1 is running: measured [(7, True)], not []",
        ),
        (
            changed(OVER, measurements=(measurement(), measurement(job_id=2))),
            "job 2 is not there, but measured",
        ),
        (
            changed(OVER, attempts=(attempt(state=AttemptState.LOST),)),
            "job 1 is succeeded; attempts [] succeeded",
        ),
        (
            changed(AT_WORK, jobs=(job(is_finished=True),)),
            "job 1 is running; is finished: True",
        ),
    ],
)
def test_a_broken_promise_is_noticed(store: StoreValue, message: str) -> None:
    assert message in violations(store)


def test_an_agent_whose_rank_has_ended_may_be_gone() -> None:
    ended = (rank(0, phase=RankPhase.ENDED), rank(1))
    agents = (agent(0, lease_s=-60.0), agent(1))
    assert violations(changed(AT_WORK, ranks=ended, agents=agents)) == []


def test_a_configuration_that_fails_is_measured_once_and_a_machine_that_fails_never() -> None:
    failed = job(state=JobState.FAILED, attempt_id=None, is_finished=True)
    of_configuration = changed(
        OVER,
        jobs=(failed,),
        attempts=(attempt(state=AttemptState.FAILED),),
        measurements=(measurement(status="out_of_memory"),),
    )
    assert violations(of_configuration) == []
    assert violations(changed(of_configuration, measurements=())) == [
        "job 1 is failed: measured [], not [(7, False)]"
    ]
    of_machine = changed(
        of_configuration, attempts=(attempt(state=AttemptState.LOST),), measurements=()
    )
    assert violations(of_machine) == []
    assert violations(changed(of_machine, measurements=(measurement(),))) == [
        "job 1 is failed: measured [(7, True)], not []"
    ]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            OVER,
            changed(OVER, jobs=(job(state=JobState.WAITING, attempt_id=None),)),
            "was over",
        ),
        (OVER, changed(OVER, jobs=()), "job 1 has vanished"),
        (OVER, changed(OVER, attempts=()), "attempt 7 has vanished"),
        (OVER, changed(OVER, attempts=(attempt(),)), "went from succeeded to running"),
        (OVER, changed(OVER, ranks=(rank(0), rank(1, reported=("ended",)))), "has changed"),
        (OVER, changed(OVER, measurements=(measurement(status="diverged"),)), "has changed"),
        (
            OVER,
            changed(OVER, attempts=(attempt(id=6, job_id=2), *OVER.attempts)),
            "token 6 was drawn after 7",
        ),
    ],
)
def test_a_change_of_what_is_over_is_noticed(
    before: StoreValue, after: StoreValue, message: str
) -> None:
    assert any(message in line for line in changes_are_legal(before, after))


def test_what_failed_may_be_asked_for_again() -> None:
    failed = changed(
        OVER,
        jobs=(job(state=JobState.FAILED, attempt_id=None, is_finished=True),),
        attempts=(attempt(state=AttemptState.FAILED),),
        measurements=(measurement(status="diverged"),),
    )
    again = changed(failed, jobs=(job(state=JobState.WAITING, attempt_id=None),), measurements=())
    assert changes_are_legal(failed, again, asked_again={1}) == []
    assert len(changes_are_legal(failed, again)) == 2


def test_services_are_one_after_the_other_and_never_of_a_lower_token() -> None:
    def served(token: int, begun: float, ended: float | None, agent_id: str = "a") -> Service:
        return Service(agent_id=agent_id, token=token, begun=begun, ended=ended)

    assert services_are_fenced([served(1, 0, 1), served(2, 1, None), served(1, 0, 9, "b")]) == []
    assert services_are_fenced([served(2, 0, 1), served(1, 2, 3)]) == ["agent a served 1 after 2"]
    assert services_are_fenced([served(2, 0, 1), served(2, 2, 3)]) == ["agent a served 2 after 2"]
    assert services_are_fenced([served(1, 0, None), served(2, 2, 3)]) == [
        "agent a served 1 and 2 at once"
    ]


def test_a_leased_agent_serves_its_attempt_or_nothing_yet() -> None:
    agents = AT_WORK.agents
    assert leased_agents_are_free(agents, serving={}) == []
    assert leased_agents_are_free(agents, serving={"a0": 7}) == []
    assert leased_agents_are_free(FREE, serving={"a0": 6}) == []
    assert leased_agents_are_free(agents, serving={"a1": 6}) == [
        "agent a1 is leased to 7 while it serves 6"
    ]


def test_who_serves_is_leased_for_it_or_unclean_of_it() -> None:
    unclean = (dataclasses.replace(FREE[0], unclean_token=6), FREE[1])
    assert who_serves_is_held(AT_WORK.agents, serving={"a0": 7}) == []
    assert who_serves_is_held(unclean, serving={"a0": 6}) == []
    assert who_serves_is_held(FREE, serving={}) == []
    assert who_serves_is_held(unclean, serving={"a1": 6}) == [
        "agent a1 serves 6: leased to None, unclean of None"
    ]


def test_a_lease_runs_out_once_its_agent_is_silent() -> None:
    leased = (agent(0, lease_s=LEASE_S), FREE[1])
    assert leases_follow_life(leased, silent_s={"a0": 6.0}, lease_s=LEASE_S) == []
    assert leases_follow_life(leased, silent_s={"a0": 6.5}, lease_s=LEASE_S) == [
        "agent a0 has been silent for 6.5 s of attempt 7 and is leased for 4 s more"
    ]
    run_out = (agent(0, lease_s=-1.0), FREE[1])
    assert leases_follow_life(run_out, silent_s={"a0": 60.0}, lease_s=LEASE_S) == []


def test_a_report_is_in_the_spool_or_in_the_store_and_there_once() -> None:
    def spooled(kind: str, content: str) -> Spooled:
        return Spooled(agent_id="a", token=1, rank=0, kind=kind, content=content)

    tick, other = spooled("samples", "0"), spooled("samples", "1")
    assert nothing_is_lost([tick, other], waiting=[other], stored=[tick]) == []
    assert nothing_is_lost([tick, other], waiting=[], stored=[tick]) == [f"lost: {other}"]
    assert nothing_is_lost([tick], waiting=[tick], stored=[tick, tick]) == [
        f"stored 2 times: {tick}"
    ]
    # A rank that is served again after its disk was lost says the same again.
    twice = nothing_is_lost([tick], waiting=[], stored=[tick, tick], lost=[tick])
    assert twice == []
    repeated = nothing_is_lost([tick], waiting=[], stored=[tick] * 3, lost=[tick])
    assert repeated == [f"stored 3 times: {tick}"]
    ends = [
        spooled("ended", "by the life that served it"),
        spooled("ended", "by the next one"),
    ]
    assert nothing_is_lost(ends, waiting=[], stored=ends[:1]) == []
    assert len(nothing_is_lost(ends, waiting=[], stored=[])) == 2


def test_whatever_is_left_to_do_is_told() -> None:
    assert all_is_done(OVER) == []
    assert all_is_done(AT_WORK) == [
        "job 1 is still running",
        "agent a0 is still leased to 7",
        "agent a1 is still leased to 7",
    ]
    unclean = (agent(0, attempt_id=None, lease_s=None, unclean_token=7), FREE[1])
    assert all_is_done(changed(OVER, agents=unclean)) == ["agent a0 is still unclean of 7"]

"""Whatever a rank reports as its end: where a user finds the kind and the reason."""

from __future__ import annotations

import html
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import select

from farm.gang.lifecycle import AttemptState, JobState
from farm.messages.commands import RankAddress, StopAttempt
from farm.messages.reports import Prepared, RankEnded
from farm.messages.trainer_lines import CONFIGURATION_FAILURES, Failure, FailureKind
from farm.store.engine import reading, writing
from farm.store.queue.waiting import waiting_jobs
from farm.store.result_tables import MeasurementRow
from tests.commands.farm_command import FarmCommand
from tests.factories import add_agent, add_sweep, job_spec, seconds
from tests.stored.two_agents import FACTS, RULES, SOURCE, TwoAgents, kinds
from tests.web.web_client import client_of

REASON = "what happened, its value 42, and what to do"
# Of a rank that says it lost its peers nobody can tell more while its peer trains on in silence.
NAMED = [kind for kind in FailureKind if kind is not FailureKind.PEER_LOST]


@pytest.fixture
def gang(engine: sa.Engine) -> TwoAgents:
    with writing(engine) as session:
        add_sweep(session, job_spec(world_size=2))
        for agent_id, facts in FACTS.items():
            add_agent(session, agent_id, facts=facts, lease_boot_id=f"boot of {agent_id}")
    return TwoAgents(engine)


def end(kind: FailureKind, message: str) -> RankEnded:
    failure = Failure(kind=kind, message=message)
    return RankEnded(result=None, failure=failure, timed_begun_s=None, log_tail="")


def fail(gang: TwoAgents, kind: FailureKind) -> None:
    """Let rank 1 fail, after its peer has complained of it."""
    token = gang.start()
    gang.report("a", token, 0, end(FailureKind.PEER_LOST, "a connection broke"))
    gang.report("b", token, 1, end(kind, REASON))
    gang.round()


@pytest.mark.parametrize("kind", NAMED, ids=lambda kind: kind.value)
def test_a_failure_is_stored_with_its_kind_its_rank_and_its_reason(
    gang: TwoAgents, kind: FailureKind
) -> None:
    fail(gang, kind)
    [attempt] = gang.attempts()
    is_result = kind in CONFIGURATION_FAILURES
    # A network that was gone at the end makes void what was measured through it.
    is_void = kind is FailureKind.NETWORK
    otherwise = AttemptState.VOID if is_void else AttemptState.LOST
    assert attempt.state is (AttemptState.FAILED if is_result else otherwise)
    assert gang.job().state is (JobState.FAILED if is_result else JobState.WAITING)
    for row in (attempt, gang.job()):
        assert (row.failure_kind, row.reason) == (kind.value, f"rank 1 on b: {REASON}")
    with reading(gang.engine) as session:
        rows = session.scalars(select(MeasurementRow)).all()
    assert [(row.status, row.details["failure"]) for row in rows] == (
        [(kind.value, f"rank 1 on b: {REASON}")] if is_result else []
    )


@pytest.mark.parametrize("kind", [FailureKind.DIVERGED, FailureKind.KILLED])
def test_a_failure_is_told_by_the_command_and_on_the_page(
    gang: TwoAgents, kind: FailureKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(gang, kind)
    message = f"rank 1 on b: {REASON}"
    farm = FarmCommand(gang.engine, tmp_path / "home", monkeypatch)
    assert message in " ".join(farm.text("job", "1").split())
    assert farm.json("job", "1")["job"]["failure_kind"] == kind.value
    page = client_of(gang.engine).get("/jobs/1").get_data(as_text=True)
    assert message in html.unescape(page)


def test_a_rank_that_said_nothing_is_to_blame_and_its_agent_is_avoided(gang: TwoAgents) -> None:
    token = gang.start()
    gang.report("a", token, 0, end(FailureKind.PEER_LOST, "a connection broke"))
    gang.round()
    assert gang.job().state is JobState.RUNNING
    gang.round(after_s=RULES.limits.cause_wait_s)
    [attempt] = gang.attempts()
    assert attempt.failure_kind == FailureKind.STALLED.value
    assert (
        attempt.reason == "rank 1 on b stopped answering, seen by rank 0 on a: a connection broke"
    )
    with reading(gang.engine) as session:
        [waiting] = waiting_jobs(session, now=gang.now + seconds(60))
    assert waiting.avoid == {"b"}


def test_a_gang_of_two_versions_ends_before_it_measures_anything(gang: TwoAgents) -> None:
    token = gang.round()[0].command.token  # type: ignore[union-attr] # it is a StartRank
    for rank, agent_id in enumerate("ab"):
        address = RankAddress(rank=rank, host="127.0.0.1", probe_port=1, trainer_ports=(20 + rank,))
        framework = f"tensorflow 2.{20 + rank}.0"
        prepared = Prepared(address=address, framework=framework, dataset=SOURCE, prepare_s=1.0)
        gang.report(agent_id, token, rank, prepared)
    assert kinds(gang.round()) == [("a", StopAttempt), ("b", StopAttempt)]
    assert gang.job().failure_kind == FailureKind.VERSIONS_DIFFER.value
    assert gang.job().reason == (
        "rank 0 on a has tensorflow 2.20.0, rank 1 on b has tensorflow 2.21.0:"
        " install the same version on all agents"
    )


def test_a_gang_with_two_versions_of_a_users_model_ends_before_it_measures(gang: TwoAgents) -> None:
    token = gang.round()[0].command.token  # type: ignore[union-attr] # it is a StartRank
    for rank, agent_id in enumerate("ab"):
        address = RankAddress(rank=rank, host="127.0.0.1", probe_port=1, trainer_ports=(20 + rank,))
        prepared = Prepared(
            address=address,
            framework="tf",
            dataset=SOURCE,
            model_sha256=f"{rank}" * 64,
            prepare_s=1.0,
        )
        gang.report(agent_id, token, rank, prepared)
    gang.round()
    assert gang.job().failure_kind == FailureKind.VERSIONS_DIFFER.value
    assert "rank 1 on b has tf, model 111111111111" in str(gang.job().reason)

"""The parts of the campaign of faults that decide: schedule, links, checker, table."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import Counter
from pathlib import Path

import pytest

from farm.gang.lifecycle import AttemptState, JobState
from tests.chaos.checker import violations
from tests.chaos.evidence import Evidence
from tests.chaos.faults import FAULTS
from tests.chaos.links import Commands, command, read_command
from tests.chaos.outcome import Outcome, Strike, merged
from tests.chaos.schedule import draw
from tests.chaos.table import TABLE, slow, slow_lines, table, write
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

REPORT = Spooled(agent_id="agent-1", token=7, rank=0, kind="samples", content="3")
# One job, one attempt, one rank, all over.
CLEAN = Evidence(
    store=StoreValue(
        jobs=(
            JobValue(
                id=1, state=JobState.SUCCEEDED, attempt_id=None, agent_count=1, is_finished=True
            ),
        ),
        attempts=(AttemptValue(id=7, job_id=1, number=1, state=AttemptState.SUCCEEDED),),
        ranks=(),
        agents=(AgentValue(id="agent-1", attempt_id=None, lease_s=None, unclean_token=None),),
        measurements=(MeasurementValue(id=1, job_id=1, attempt_id=7, status="ok"),),
    ),
    written=(REPORT,),
    stored=(REPORT,),
    services=(Service(agent_id="agent-1", token=7, begun=1, ended=2),),
    generations={(7, 0): frozenset({"a"})},
    step_counts={1: (60, 60)},
)


def test_the_same_seed_draws_the_same_schedule() -> None:
    first, again, other = (draw(FAULTS, count=80, seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert first != other


def test_each_fault_comes_as_often_as_any_other() -> None:
    counts = Counter(planned.fault.name for planned in draw(FAULTS, count=20 * len(FAULTS), seed=1))
    assert set(counts.values()) == {20}


def test_faults_have_names_of_their_own_and_limits() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    for fault in FAULTS:
        assert 0 <= fault.lasts_s[0] <= fault.lasts_s[1]
        assert fault.limit_s > 0


@pytest.mark.parametrize("cut", range(1, 12))
def test_commands_are_told_apart_however_they_arrive(cut: int) -> None:
    sent = [[b"PING"], [b"LPUSH", b"queue", b"a\r\nb"], [b"LPUSH", b"queue", b""]]
    seen: list[list[bytes]] = []

    def rewrite(words: list[bytes]) -> bytes | None:
        seen.append(words)
        return command(b"LPUSH", b"held", b"") if words[-1] == b"a\r\nb" else None

    stream = b"".join(command(*words) for words in sent)
    commands = Commands(rewrite)
    pieces = [stream[i : i + cut] for i in range(0, len(stream), cut)]
    onward = b"".join(commands.feed(piece) for piece in pieces)
    assert seen == sent
    assert onward == command(b"PING") + command(b"LPUSH", b"held", b"") + command(
        b"LPUSH", b"queue", b""
    )


def test_what_is_no_command_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a command"):
        read_command(b"PING\r\n")


def changed(**fields: object) -> Evidence:
    return dataclasses.replace(CLEAN, **fields)  # type: ignore[arg-type] # a test's own fields


def failed() -> Evidence:
    job = JobValue(id=1, state=JobState.FAILED, attempt_id=None, agent_count=1, is_finished=True)
    attempt = AttemptValue(id=7, job_id=1, number=1, state=AttemptState.LOST)
    store = dataclasses.replace(CLEAN.store, jobs=(job,), attempts=(attempt,), measurements=())
    return changed(store=store)


def with_rank(evidence: Evidence) -> Evidence:
    rank = rank_value(attempt_id=7, rank=0, agent_id="agent-1")
    return dataclasses.replace(evidence, store=dataclasses.replace(evidence.store, ranks=(rank,)))


def rank_value(**fields: object) -> RankValue:
    """Fill in what this test does not care about."""
    missing = {f.name for f in dataclasses.fields(RankValue)} - set(fields)
    return RankValue(**fields, **dict.fromkeys(missing))  # type: ignore[arg-type] # as above


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        (failed(), "lost: job 1 is failed"),
        (changed(stored=()), "lost: Spooled"),
        (changed(stored=(REPORT, REPORT)), "stored 2 times"),
        (changed(changed_late=((7, 0),)), "attempt 7 was over"),
        (changed(generations={(7, 0): frozenset("ab")}), "told by 2 spools"),
        (changed(step_counts={1: (59, 60)}), "counts 59"),
        (changed(processes=("5 trainer",)), "left behind: process 5 trainer"),
        (changed(files=("rank",)), "left behind: file rank"),
        (changed(ports=("port 1",)), "left behind: port 1"),
        (changed(network="netem"), "left behind on the network"),
        (
            changed(services=(*CLEAN.services, *CLEAN.services)),
            "agent agent-1 served 7 after 7",
        ),
    ],
)
def test_the_checker_says_what_is_broken(evidence: Evidence, message: str) -> None:
    found = violations(with_rank(evidence), network_before="")
    assert any(message in text for text in found), found


def test_the_checker_has_nothing_to_say_of_a_farm_that_is_whole() -> None:
    assert violations(with_rank(CLEAN), network_before="") == []


def outcome_of(after_s: float) -> Outcome:
    [planned] = draw([f for f in FAULTS if f.name == "trainer killed"], count=1, seed=1)
    strike = Strike(
        planned=planned,
        agent="agent-1",
        jobs={1: 7},
        struck_s=0.0,
        heal=lambda: None,
        jobs_after_s=after_s,
        serves_after_s=after_s,
    )
    return Outcome(strikes=[strike], job_count=1, lost_jobs={1})


def test_the_table_has_a_line_for_each_fault_that_struck_and_one_for_all() -> None:
    lines = table(outcome_of(1.5))
    assert lines[2].startswith("| trainer killed | 1 | 1 | 1 | 1 | 0 | 0 | 1.5 s |")
    assert [line.count("|") for line in lines] == [lines[0].count("|")] * 4


def test_jobs_of_two_farms_are_not_taken_for_one_another() -> None:
    first, second = outcome_of(1.5), outcome_of(1.5)
    second.lost_jobs.clear()
    second.broken.append("this")
    whole = merged([first, second])
    assert whole.broken == ["farm 1: this"]
    assert whole.job_count == 2
    assert table(whole)[-1].startswith("| all | 2 | 2 | 2 | 1 | 0 | 0 |")


def test_what_took_longer_than_its_limit_is_told() -> None:
    assert slow(outcome_of(1.5)) == []
    late = outcome_of(5.1)
    late.strikes[0].before = "agent-2 silent 4.1 s"
    assert len(slow(late)) == 1
    [line] = slow_lines(late)
    assert line.endswith("; before: agent-2 silent 4.1 s")


def test_the_table_replaces_the_one_before_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Head\n\n{TABLE.begin}\nold\n{TABLE.end}\n\ntail\n")
    for _ in range(2):
        write(page, outcome_of(1.5), command="x", at=dt.datetime.now(dt.UTC), took_s=60.0)
    text = page.read_text()
    assert text.startswith("# Head\n")
    assert text.endswith(f"{TABLE.end}\n\ntail\n")
    assert text.count("| trainer killed |") == 1
    assert "old" not in text


def test_drawn_waits_and_lengths_are_within_their_bounds() -> None:
    for planned in draw(FAULTS, count=60, seed=1):
        assert planned.fault.lasts_s[0] <= planned.lasts_s <= planned.fault.lasts_s[1]

"""What is read of attempts at their end, however many ranks they have."""

from __future__ import annotations

import sqlalchemy as sa

from farm.gang.lifecycle import AttemptState, RankPhase
from farm.messages.reports import StepTimes
from farm.messages.trainer_lines import StepKind
from farm.store.engine import writing
from farm.store.gangs.attempts import reports_of
from tests.factories import add_agent, add_attempt, add_job, job_spec
from tests.stored.stored_series import insert_steps


def test_the_ranks_of_a_whole_farm_are_read_at_once(engine: sa.Engine) -> None:
    clocks = [(place, process) for place in range(1400) for process in range(16)]
    with writing(engine) as session:
        job_id = add_job(session, job_spec(strategy="gossip"))
        agents = [add_agent(session)]
        token = add_attempt(
            session, job_id, agents, state=AttemptState.RUNNING, phase=RankPhase.ENDED
        )
        for process in (0, 15):
            steps = StepTimes(
                process=process, kind=StepKind.TIMED, first_step=0, begun_s=0.0, times_s=(0.1,)
            )
            insert_steps(session, token=token, rank=1399, steps=steps)
    with writing(engine) as session:
        found = reports_of(session, {token: clocks})[token]
    assert found.chunks.keys() == {(1399, 0), (1399, 15)}
    assert found.step_count == 2

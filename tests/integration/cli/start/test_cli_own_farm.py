"""What a farm of a command's own refuses, since nobody will come who could do it."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from farm.cli.start.demonstration import check_abilities
from farm.errors import InvalidSpec
from farm.store.engine import writing
from farm.submission import SubmissionPlan, plan
from tests.factories import add_agent, agent_facts

OWN = ("local-1", "local-2")


def planned(**case: object) -> SubmissionPlan:
    given = {"script": "train.py", "launcher": "none", "global_batch_size": 8, **case}
    return plan({"name": "own", "case": [{"world_size": 2, **given}]})


@pytest.fixture
def known(engine: sa.Engine) -> sa.Engine:
    """A store that has seen four agents, of which two are of the farm that runs now."""
    with writing(engine) as session:
        for name, script in (*((one, "train.py") for one in OWN), ("local-3", "other.py")):
            add_agent(session, name, facts=agent_facts(capabilities=(f"script:{script}",)))
        capable = agent_facts(capabilities=("script:other.py", "network"))
        add_agent(session, "local-4", facts=capable)
    return engine


def test_what_the_farms_own_agents_can_do_is_taken(known: sa.Engine) -> None:
    check_abilities(known, planned(), agent_ids=OWN)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({"script": "other.py"}, "agents: expected 2 for a job of 2 ranks"),
        ({"one_way_delay_ms": 20}, "see `farm lab`"),
        ({"world_size": 3}, "agents: expected 3 for a job of 3 ranks"),
    ],
)
def test_what_only_former_agents_could_do_is_refused(
    case: dict[str, object], message: str, known: sa.Engine
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        check_abilities(known, planned(**case), agent_ids=OWN)
    assert message in str(refused.value)

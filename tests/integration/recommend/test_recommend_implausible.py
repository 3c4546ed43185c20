"""What is said of measurements that are hard to believe, and of those nothing is said of."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import sqlalchemy as sa

from farm.errors import NotFound
from farm.recommend.cache.fits import Fits
from farm.recommend.cache.knowledge import RecommenderCache
from farm.recommend.configuration import Observation
from farm.recommend.contracts import StepTimeModel
from farm.recommend.implausible import MOST_WORKLOADS, doubts
from farm.store.engine import reading, writing
from farm.store.result_tables import MeasurementRow
from tests import factories


def _no_maths(observations: Sequence[Observation]) -> StepTimeModel:
    raise ModuleNotFoundError(name="scipy")


def test_of_many_workloads_some_are_left_out_and_that_is_said(engine: sa.Engine) -> None:
    with writing(engine) as session:
        for number in range(MOST_WORKLOADS + 2):
            factories.add_measurement(session, f"{number}", model=f"model {number:02}")
    with reading(engine) as session:
        found = doubts(session, origin="farm", cache=RecommenderCache(Fits(_no_maths)))
    assert found.lacking[0].startswith("model 00 on digits: predictions need scipy")
    assert found.lacking[-1] == f"2 more: only {MOST_WORKLOADS} workloads are looked at"
    assert len(found.lacking) == MOST_WORKLOADS + 1
    assert not found.is_preliminary


def test_while_a_model_is_fitted_what_is_said_is_preliminary(engine: sa.Engine) -> None:
    with writing(engine) as session:
        factories.add_measurement(session, "x")
    cache = RecommenderCache(Fits(_no_maths, in_background=True))
    with reading(engine) as session:
        assert doubts(session, origin="farm", cache=cache, may_wait=False).is_preliminary
        assert not doubts(session, origin="farm", cache=cache, may_wait=True).is_preliminary


def test_nothing_is_said_of_what_is_not_there(engine: sa.Engine) -> None:
    cache = RecommenderCache(Fits(_no_maths))
    with reading(engine) as session:
        with pytest.raises(NotFound):
            doubts(session, origin="nowhere", cache=cache)
        assert doubts(session, origin="farm", cache=cache).doubts == ()


def test_what_an_agent_that_is_off_has_measured_is_listed(engine: sa.Engine) -> None:
    with writing(engine) as session:
        for agent, step_time_s in (("a1", 0.1), ("a2", 0.1), ("a3", 0.1), ("off", 1.0)):
            factories.add_measurement(
                session, agent, step_time_s=step_time_s, details={"agents": [agent]}
            )
    with reading(engine) as session:
        [found] = doubts(session, origin="farm", cache=RecommenderCache(Fits(_no_maths))).doubts
        row = session.get_one(MeasurementRow, found.measurement_id)
    assert row.source_key == "off"
    assert found.message.startswith("agent off: measurements with it took 10 times as long")

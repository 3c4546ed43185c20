"""The sweeps in `examples`, with fewer repetitions, on two agents that may share their cores."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.configuration.axes import AXES_BY_FIELD
from farm.configuration.axis import Value
from farm.measuring.measurement import OK
from farm.messages.reports import RankEnded
from farm.store.engine import make_engine, reading
from farm.store.result_tables import MeasurementRow
from farm.store.tables import JobRow, RankRow, SweepRow
from farm.trainers.all_reduce import ring_all_reduce
from farm.values.codec import from_json
from tests.e2e.farm_up import farm_up, submit_and_wait

EXAMPLES = Path(__file__).parents[3] / "examples"
pytestmark = [
    *(pytest.mark.slow, pytest.mark.tensorflow, pytest.mark.torch),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of the database of a farm that has measured each sweep."""
    home = tmp_path_factory.mktemp("farm")
    with farm_up(home, agent_count=2, AGENT_SHARES_CORES="true") as environ:
        for file in sorted(EXAMPLES.glob("*.toml")):
            shorter = home / file.name
            shorter.write_text(re.sub(r"(?m)^repetitions = .*$", "", file.read_text()))
            submit_and_wait(shorter, environ)
    return f"sqlite:///{home}/farm.db"


@pytest.fixture(scope="module")
def measured(database: str) -> dict[str, list[MeasurementRow]]:
    """What each sweep has measured, by its name."""
    found = {}
    engine = make_engine(database)
    with reading(engine) as session:
        for sweep in session.scalars(sa.select(SweepRow)):
            rows = sa.select(MeasurementRow).join(JobRow, JobRow.id == MeasurementRow.job_id)
            found[sweep.name] = list(session.scalars(rows.where(JobRow.sweep_id == sweep.id)))
    engine.dispose()
    return found


def value(row: MeasurementRow, field: str) -> Value:
    return AXES_BY_FIELD[field].value_measured(row)


def test_one_to_eight_ranks_of_a_machine_send_what_a_ring_sends(
    measured: dict[str, list[MeasurementRow]],
) -> None:
    rows = sorted(measured["one host"], key=lambda row: row.world_size)
    assert [(row.status, row.world_size) for row in rows] == [(OK, n) for n in (1, 2, 4, 8)]
    assert [value(row, "ranks_per_agent") for row in rows] == [1, 2, 4, 8]
    for row in rows[1:]:
        assert row.sent_bytes_per_step == pytest.approx(ring_bytes(row), rel=0.1)


def test_workers_of_a_machine_wait_for_the_delay_between_machines_alone(
    measured: dict[str, list[MeasurementRow]],
) -> None:
    rows = measured["workers per machine"]
    assert [row.status for row in rows] == [OK] * 6
    by_delay: dict[tuple[Value, float], MeasurementRow] = {
        (value(row, "ranks_per_agent"), row.one_way_delay_s): row for row in rows
    }
    assert {each for each, _ in by_delay} == {1, 2, 3}
    for (_, delay_s), row in by_delay.items():
        assert row.step_time_s is not None
        assert row.step_time_s > 2 * delay_s
        assert row.sent_bytes_per_step == pytest.approx(ring_bytes(row), rel=0.1)


def test_every_learning_rate_learns(measured: dict[str, list[MeasurementRow]]) -> None:
    rows = measured["learning rates"]
    assert {value(row, "optimizer") for row in rows} == {"sgd", "adamw"}
    assert len({value(row, "learning_rate") for row in rows}) == 4
    assert all(row.accuracy is not None and row.accuracy > 0.6 for row in rows)


def test_a_batch_that_is_shared_by_speed_learns_the_same(
    measured: dict[str, list[MeasurementRow]],
) -> None:
    even, by_speed = sorted(measured["shared by speed"], key=lambda row: str(row.batch_split))[::-1]
    assert (even.batch_split, by_speed.batch_split) == ("even", "by_speed")
    assert even.accuracy == pytest.approx(by_speed.accuracy, abs=0.05)


def test_an_lstm_exchanges_its_gradients_in_both_frameworks(
    measured: dict[str, list[MeasurementRow]],
) -> None:
    rows = measured["lstm"]
    assert {row.strategy for row in rows} == {"torch_ddp", "mwms_ring"}
    for row in rows:
        assert row.sent_bytes_per_step == pytest.approx(ring_bytes(row), rel=0.1)


def weights_of(row: MeasurementRow, database: str) -> list[tuple[object, object]]:
    """Return of each rank the sum of all weights and that of their squares."""
    engine = make_engine(database)
    with reading(engine) as session:
        ranks = session.scalars(sa.select(RankRow).where(RankRow.attempt_id == row.attempt_id))
        ended = [from_json(RankEnded, rank.ended).result for rank in ranks]
    engine.dispose()
    details = [result.details for result in ended if result is not None]
    return [(of["weights_sum"], of["weights_square_sum"]) for of in details]


def test_a_split_model_learns_the_same_and_sends_shards_or_activations(
    measured: dict[str, list[MeasurementRow]], database: str
) -> None:
    rows = {(row.strategy, row.world_size): row for row in measured["split model"]}
    one, whole, split = rows["torch_ddp", 1], rows["torch_ddp", 2], rows["torch_fsdp", 2]
    staged = rows["torch_pipeline", 2]
    assert [row.status for row in (one, whole, split, staged)] == [OK] * 4
    (expected,) = weights_of(one, database)
    for pair in (whole, split, staged):
        of_ranks = weights_of(pair, database)
        assert len(of_ranks) == 2
        for rank in of_ranks:
            assert rank == pytest.approx(expected, rel=1e-5)
    assert whole.sent_bytes_per_step == pytest.approx(ring_bytes(whole), rel=0.1)
    assert split.sent_bytes_per_step == pytest.approx(1.5 * ring_bytes(split), rel=0.1)
    # 16 sequences of 128 tokens of width 128 go on, and a table of 256 tokens is on both.
    activations, table = 16 * 128 * 128 * 4, 256 * 128 * 4
    assert staged.sent_bytes_per_step == pytest.approx(activations + table, rel=0.1)


def ring_bytes(row: MeasurementRow) -> float:
    assert row.gradient_bytes is not None
    return ring_all_reduce(row.world_size, row.gradient_bytes).bytes

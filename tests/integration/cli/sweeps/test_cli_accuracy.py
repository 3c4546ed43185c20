"""`farm status SWEEP --target-accuracy`: how long trainings took to get so accurate."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.gang.lifecycle import AttemptState
from farm.messages.trainer_lines import Epoch
from farm.store.engine import writing
from farm.store.tables import JobRow
from tests import factories
from tests.commands.farm_command import FarmCommand
from tests.stored.stored_series import insert_epoch


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    return FarmCommand(engine, tmp_path, monkeypatch)


def _trained(engine: sa.Engine) -> str:
    """Add a sweep of two repetitions that get to 90 % in 4 s, and in 6 s; return its id."""
    specs = [factories.job_spec(epochs=2, repetition=n) for n in range(2)]
    with writing(engine) as session:
        ids = factories.add_sweep(session, *specs, name="trained")
        for number, job_id in enumerate(ids):
            agent = factories.add_agent(session, f"a{number}")
            token = factories.add_attempt(session, job_id, [agent], state=AttemptState.SUCCEEDED)
            factories.add_measurement(
                session,
                f"job {job_id}",
                job_id=job_id,
                attempt_id=token,
                epochs=2,
                repetition=number,
                instance_type="m5.large",
                fingerprint="k",
            )
            for epoch, accuracy in enumerate((0.5, 0.92)):
                one = Epoch(
                    epoch=epoch,
                    train_s=2.0 + number,
                    step_count=4,
                    train_loss=None,
                    val_loss=None,
                    val_accuracy_ratio=accuracy,
                )
                insert_epoch(session, token=token, rank=0, epoch=one)
        return str(session.get_one(JobRow, ids[0]).sweep_id)


def test_the_time_and_the_cost_to_an_accuracy_are_told(
    farm: FarmCommand, engine: sa.Engine, tmp_path: Path
) -> None:
    sweep = _trained(engine)
    table = tmp_path / "prices.csv"
    table.write_text(
        "instance_type,region,usd_per_hour,date,source\nm5.large,here,7.2,2026-01-01,a test\n"
    )
    command = ("status", sweep, "--target-accuracy", "0.9", "--prices", str(table))
    [cell] = farm.json(*command)["accurate"]
    counts = ("repetition_count", "run_count", "reached_count", "epoch_count")
    assert [cell[name] for name in counts] == [2, 2, 2, 2]
    assert cell["cell"]["values"]["world_size"] == 1
    assert cell["time_to_accuracy_s"] == 5.0
    assert cell["cost_usd"] == pytest.approx(0.01)
    shown = farm.text(*command)
    assert "to an accuracy of 90 %" in shown
    assert "2 of 2" in shown
    assert "0.01 USD" in shown
    [unreached] = farm.json("status", sweep, "--target-accuracy", "0.95")["accurate"]
    assert (unreached["reached_count"], unreached["time_to_accuracy_s"]) == (0, None)
    assert "accurate" not in farm.json("status", sweep)


def test_a_target_is_asked_of_one_sweep(farm: FarmCommand, engine: sa.Engine) -> None:
    assert "needs a SWEEP" in farm.run("status", "--target-accuracy", "0.9").output
    with writing(engine) as session:
        sweep_id = session.get_one(JobRow, factories.add_job(session)).sweep_id
    output = farm.text("status", str(sweep_id), "--target-accuracy", "0.9")
    assert "no cell was trained by epochs" in output

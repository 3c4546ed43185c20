"""`farm submit` against a real store, without a broker."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from sqlalchemy import func, select

from farm.cli.main import main
from farm.gang.lifecycle import AttemptState
from farm.store.engine import reading, writing
from farm.store.tables import AttemptRow, JobRow, SweepRow
from tests.commands.farm_command import FarmCommand
from tests.factories import add_agent, add_attempt, add_measurement, add_sweep, job_spec
from web.api.schema.answers import Preview

SWEEP = """
name = "try"
repetitions = 2

[[case]]
model = "mlp"
dataset = "digits"
strategy = "single"
world_size = 1
global_batch_size = [32, 64]
steps = 10
"""


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    path = tmp_path / "try.toml"
    path.write_text(SWEEP)
    return path


def test_a_sweep_for_agents_that_are_not_there_warns_and_ends_the_waiting(
    farm: FarmCommand, engine: sa.Engine, sweep_file: Path
) -> None:
    with writing(engine) as session:
        add_agent(session, "a1", heartbeat_at=dt.datetime.now(dt.UTC))
    wide = SWEEP.replace('"single"', '"mwms_ring"').replace("world_size = 1", "world_size = 4")
    sweep_file.write_text(wide)
    warning = (
        "farm: 4 jobs wait for agents that are not there (needs 4 agents; the farm has 1): "
        "start such agents, or `farm cancel {}`\n"
    )
    queued = farm.run("submit", str(sweep_file))
    assert (queued.exit_code, queued.stderr) == (0, warning.format(1))
    waited = farm.run("submit", str(sweep_file), "--wait", "--patience", "0")
    assert waited.exit_code == 1
    assert waited.stderr.endswith(warning.format(2))
    with reading(engine) as session:
        assert len(session.scalars(select(JobRow.id)).all()) == 8


def test_submitting_needs_no_broker(farm: FarmCommand, engine: sa.Engine, sweep_file: Path) -> None:
    assert farm.text("submit", str(sweep_file)) == "sweep 1: 4 jobs enqueued\n"
    with reading(engine) as session:
        states = session.scalars(select(JobRow.state)).all()
    assert [state.value for state in states] == ["waiting"] * 4


def test_a_budget_on_the_command_line_comes_before_that_of_the_file(
    farm: FarmCommand, engine: sa.Engine, sweep_file: Path
) -> None:
    sweep_file.write_text(f"budget_machine_hours = 9\n{sweep_file.read_text()}")
    limited = (str(sweep_file), "--budget-machine-hours", "0.5")
    assert farm.text("submit", *limited, "--dry-run").splitlines()[-1] == (
        "budget: 0.5 machine hours"
    )
    refused = farm.refusal("submit", str(sweep_file), "--budget-machine-hours", "-1", status=2)
    assert "budget_machine_hours: expected a number of machine hours above 0" in refused
    farm.text("submit", *limited)
    with writing(engine) as session:
        [sweep] = session.scalars(select(SweepRow))
        assert (sweep.budget_machine_s, sweep.spec["budget_machine_hours"]) == (1800.0, 0.5)


def test_submit_prints_its_documented_keys(farm: FarmCommand, sweep_file: Path) -> None:
    assert farm.json("submit", str(sweep_file)) == {
        "id": 1,
        "sweep_id": 1,  # its former name
        "name": "try",
        "job_count": 4,
        "max_job_count": 4,
        "skipped": [],
        "notify": [],
    }


def test_a_dry_run_lists_the_jobs_and_writes_nothing(
    farm: FarmCommand, engine: sa.Engine, sweep_file: Path
) -> None:
    lines = farm.text("submit", str(sweep_file), "--dry-run").splitlines()
    assert lines[0] == "try: 4 jobs"
    titles = "model data set strategy world size batch delay length repetition"
    assert " ".join(lines[1].split()) == titles
    shown = sorted(line.split() for line in lines[2:])
    assert shown[0] == ["mlp", "digits", "single", "1", "32", "-", "10", "steps", "0"]
    planned = farm.json("submit", str(sweep_file), "--dry-run")
    assert set(planned) == set(Preview.__annotations__)  # as the API
    assert {job["warmup_steps"] for job in planned["jobs"]} == {5}
    sizes = [job["global_batch_size"] for job in planned["jobs"]]
    assert [set(sizes[:2]), set(sizes[2:])] == [{32, 64}] * 2
    with reading(engine) as session:
        assert session.scalar(select(func.count()).select_from(SweepRow)) == 0


def test_a_dry_run_shows_each_condition_and_the_pass_that_a_job_asks_for(
    farm: FarmCommand, sweep_file: Path
) -> None:
    wide = SWEEP.replace('"single"', '"mwms_ring"').replace("world_size = 1", "world_size = 2")
    varied = "packet_loss_percent = [0, 0.5]\npass = ['forward', 'forward_backward']\n"
    sweep_file.write_text(wide.replace("[32, 64]", "32") + varied)
    lines = farm.text("submit", str(sweep_file), "--dry-run").splitlines()
    titles = "model data set strategy world size batch pass delay packet loss length repetition"
    assert " ".join(lines[1].split()) == titles
    rows = {tuple(line.split()[5:-3]) for line in lines[2:] if line.startswith("mlp")}
    assert rows == {
        *(("forward", "-", "-"), ("forward", "0", "s", "0.50", "%")),
        ("forward", "+", "backward", "-", "-"),
        ("forward", "+", "backward", "0", "s", "0.50", "%"),
    }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('model = "mlp"', 'model = "mpl"', "farm: case[0].model: expected one of"),
        ("world_size = 1", "world_size = 4", "farm: case[0].world_size: expected 1"),
        ("[32, 64]", "[32, 0]", "farm: case[0].global_batch_size[1]: expected a whole number"),
        ("[[case]]", "[[case]", "line 5: expected TOML"),
    ],
)
def test_a_malformed_sweep_is_one_line_and_nothing_is_written(
    farm: FarmCommand, engine: sa.Engine, sweep_file: Path, old: str, new: str, message: str
) -> None:
    sweep_file.write_text(SWEEP.replace(old, new))
    assert message in farm.refusal("submit", str(sweep_file), status=2)
    with reading(engine) as session:
        assert session.scalar(select(func.count()).select_from(SweepRow)) == 0


def test_a_sweep_file_that_is_not_there_is_wrong_input(
    farm: FarmCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a long path would be cut
    assert "'nowhere.toml'" in farm.refusal("submit", "nowhere.toml", status=2)


def test_waiting_for_a_sweep_ends_with_1_unless_every_job_succeeded(
    farm: FarmCommand, engine: sa.Engine, sweep_file: Path
) -> None:
    # The jobs are cancelled as soon as the command has written them, from a trigger, so that the
    # test needs neither a farm nor a second process.
    with writing(engine) as session:
        session.connection().exec_driver_sql(
            "CREATE TRIGGER done AFTER INSERT ON jobs BEGIN "
            "UPDATE jobs SET state = CASE WHEN id = 1 THEN 'failed' ELSE 'succeeded' END "
            "WHERE id = NEW.id; END"
        )
    result = farm.run("submit", str(sweep_file), "--wait", "--json")
    assert result.exit_code == 1
    counts = json.loads(result.stdout)["jobs_by_state"]
    assert (counts["succeeded"], counts["failed"]) == (3, 1)
    assert result.stderr == "4 of 4 jobs done, 1 failed\n"
    with writing(engine) as session:
        session.connection().exec_driver_sql("DROP TRIGGER done")


def test_a_dry_run_expects_what_was_measured_and_says_of_what_nothing_is_known(
    farm: FarmCommand, engine: sa.Engine, sweep_file: Path, tmp_path: Path
) -> None:
    nothing = farm.json("submit", str(sweep_file), "--dry-run")["expected"]
    assert (nothing["known_count"], nothing["cost_usd"]) == (0, None)
    with writing(engine) as session:
        for batch_size in (16, 32, 128, 256):
            add_measurement(
                session,
                f"row {batch_size}",
                global_batch_size=batch_size,
                step_time_s=0.01 * batch_size,
                instance_type="t2.large",
            )
        (job_id,) = add_sweep(session, job_spec())
        add_agent(session, "a1")
        token = add_attempt(session, job_id, ["a1"], state=AttemptState.SUCCEEDED)
        attempt = session.get_one(AttemptRow, token)
        attempt.ended_at = attempt.leased_at + dt.timedelta(seconds=10)
        # 15 steps of 0.32 s: what is left of the ten seconds is starting and ending.
        add_measurement(
            session,
            "job",
            job_id=job_id,
            attempt_id=token,
            step_time_s=0.32,
            instance_type="t2.large",
        )
    expected = farm.json("submit", str(sweep_file), "--dry-run")["expected"]
    assert (expected["job_count"], expected["known_count"]) == (4, 4)
    # Twice 15 steps at each batch size, the one measured and the other between two that were.
    assert expected["training_s"] == pytest.approx(2 * 15 * (0.32 + 0.64), rel=0.2)
    assert expected["training_s"] < expected["training_high_s"]
    assert expected["overhead_s"] == pytest.approx(10 - 15 * 0.32)
    assert expected["machine_s"] == pytest.approx(expected["training_s"] + 4 * 5.2)
    assert expected["cost_usd"] == pytest.approx(expected["machine_s"] * 0.0928 / 3600)
    for hours, line in (
        ("1", "budget: 1 machine hour"),
        (
            "0.001",
            "budget: 0.001 machine hours, less than the expected machine time: jobs will be left "
            "over",
        ),
    ):
        limited = ("submit", str(sweep_file), "--dry-run", "--budget-machine-hours", hours)
        assert farm.text(*limited).splitlines()[-1] == line
    unknown = tmp_path / "unknown.toml"
    unknown.write_text(SWEEP.replace("mlp", "small_cnn"))
    shown = farm.text("submit", str(unknown), "--dry-run").splitlines()
    assert shown[-1].startswith("nothing is known of 4 jobs: ")


def test_a_sweep_can_be_looked_at_without_a_store(
    sweep_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FARM_DATABASE_URL", raising=False)
    monkeypatch.setenv("FARM_HOME", str(tmp_path / "nowhere"))
    result = CliRunner().invoke(main, ["submit", str(sweep_file), "--dry-run"])
    assert result.exit_code == 0
    assert "expected time and cost are not known: there is no store" in result.stdout

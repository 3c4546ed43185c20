"""The commands against a real store: what they print into a pipe, as JSON, and how they end."""

from __future__ import annotations

import csv
import dataclasses
import datetime as dt
import io
import json
import sys
from pathlib import Path

import click
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from sqlalchemy import select

from farm import exporting
from farm.cli.main import main
from farm.cli.session import settings
from farm.embedded.home import Endpoints, locked, write_endpoints
from farm.exporting import MEASUREMENTS
from farm.gang.lifecycle import AttemptState, JobState
from farm.messages.agents import AgentState
from farm.messages.reports import Sample
from farm.store.engine import make_engine, reading, writing
from farm.store.queue import waiting as waiting_module
from farm.store.queue import waiting_reasons
from farm.store.queue.waiting import waiting_jobs
from farm.store.schema import upgrade
from farm.store.sweeps.budgets import use_up_budgets
from farm.store.sweeps.sweeps import pause_sweep
from farm.store.tables import AgentRow, AttemptRow, JobEvent, JobRow, SweepRow
from tests.commands.farm_command import FarmCommand
from tests.factories import (
    NOW,
    add_agent,
    add_attempt,
    add_measurement,
    add_sweep,
    agent_facts,
    job_spec,
    seconds,
)
from tests.facts import lacking
from tests.stored.stored_series import insert_samples
from web.api.schema import answers
from web.api.schema.sweep_answers import SweepDetail


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


_HOSTILE = "a\x1b]0;title\a\x1b[2J\x9b31m\u202eb\r\nc"
_HARMLESS = r"a\x1b]0;title\x07\x1b[2J\x9b31m\u202eb\r\nc"


@pytest.fixture
def hostile(engine: sa.Engine) -> None:
    """What an agent and a trainer can say, wherever text of theirs is stored."""
    now = dt.datetime.now(dt.UTC)
    facts = agent_facts(labels={"kind": _HOSTILE})
    facts = dataclasses.replace(
        facts, hardware=dataclasses.replace(facts.hardware, cpu_model=_HOSTILE), trouble=_HOSTILE
    )
    with writing(engine) as session:
        [job_id, other_id] = add_sweep(session, job_spec(), job_spec(repetition=1), name="try")
        add_agent(session, "a1", heartbeat_at=now, facts=facts)
        for one in (job_id, other_id):
            token = add_attempt(session, one, ["a1"], state=AttemptState.FAILED)
            session.get_one(AttemptRow, token).reason = _HOSTILE
            job = session.get_one(JobRow, one)
            job.reason = _HOSTILE
        job.state = JobState.FAILED
        session.add(JobEvent(job_id=job_id, at=now, event="job: failed", reason=_HOSTILE))


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize(
    "arguments", [("agents",), ("status",), ("job", "1"), ("jobs",)], ids=" ".join
)
def test_what_an_agent_said_does_nothing_to_a_terminal(
    farm: FarmCommand,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    is_terminal: bool,
) -> None:
    if is_terminal:
        monkeypatch.setenv("TERM", "dumb")  # or the program would add colours of its own
        monkeypatch.setattr(
            "click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False
        )
    shown = farm.text(*arguments)
    assert not [c for c in shown if not c.isprintable() and c != "\n"]
    if not is_terminal:  # where a narrow one breaks cells
        assert _HARMLESS in shown


@pytest.fixture
def waiting(engine: sa.Engine) -> None:
    """A sweep `try` of four waiting jobs."""
    with writing(engine) as session:
        add_sweep(session, *(job_spec(repetition=i) for i in range(4)), name="try")


def _job_states(engine: sa.Engine) -> list[str]:
    with reading(engine) as session:
        return [state.value for state in session.scalars(select(JobRow.state).order_by(JobRow.id))]


@pytest.mark.usefixtures("waiting")
def test_status_says_why_the_first_jobs_wait(farm: FarmCommand, engine: sa.Engine) -> None:
    shown = farm.text("status")
    assert "\x1b" not in shown
    [waits] = [line for line in shown.splitlines() if "no agent is alive (" in line]
    assert lacking(waits, "job 1", "3 more of sweep 1") == []
    with writing(engine) as session:
        add_agent(session, "a1", heartbeat_at=dt.datetime.now(dt.UTC))
    answer = farm.json("status", "try")
    assert answer["sweep"]["jobs_by_state"]["waiting"] == 4
    assert answer["sweep"]["counts"] == answer["sweep"]["jobs_by_state"]  # its former name
    assert answer["sweep"]["sweep_id"] == answer["sweep"]["id"]
    assert set(SweepDetail.__annotations__) <= set(answer)
    assert [entry["job_id"] for entry in answer["waiting"]] == [1, 2, 3, 4]
    # The first could start, but there is no broker by which anybody could start it.
    assert "does not answer" in answer["waiting"][0]["reason"]
    assert answer["remaining_s"] is None


@pytest.mark.usefixtures("waiting")
def test_status_of_a_sweep_says_why_its_own_jobs_wait(farm: FarmCommand, engine: sa.Engine) -> None:
    with writing(engine) as session:
        (job_id,) = add_sweep(session, job_spec(), name="behind")
    assert [entry["job_id"] for entry in farm.json("status", "behind")["waiting"]] == [job_id]
    assert "job 1:" not in farm.text("status", "behind")


def test_agents_that_were_stopped_are_not_alive(farm: FarmCommand, engine: sa.Engine) -> None:
    now = dt.datetime.now(dt.UTC)
    with writing(engine) as session:
        add_agent(session, "up", heartbeat_at=now)
        add_agent(session, "down", heartbeat_at=now, state=AgentState.LEAVING)
    assert farm.json("status")["alive_agent_count"] == 1
    assert [agent["is_alive"] for agent in farm.json("agents")] == [False, True]
    assert "told to stop: down" in farm.run("doctor", "--json").stdout


def test_the_agents_of_a_farm_that_does_not_run_are_not_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever they said last, and however lately."""
    monkeypatch.setenv("FARM_HOME", str(tmp_path))
    for name in ("FARM_BROKER_URL", "FARM_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    engine = make_engine(f"sqlite:///{tmp_path}/farm.db")
    upgrade(engine)
    with writing(engine) as session:
        add_agent(session, "a1", heartbeat_at=dt.datetime.now(dt.UTC))
        add_sweep(session, job_spec())
    engine.dispose()
    url = "redis://127.0.0.1:1/0"
    write_endpoints(tmp_path, Endpoints(broker_url=url, broker_port=1, dashboard_url="http://x"))
    with locked(tmp_path):
        assert "1 agent alive" in CliRunner().invoke(main, ["status"]).stdout
    shown = CliRunner().invoke(main, ["status"]).stdout
    assert "0 agents alive" in shown
    assert f"the farm of {tmp_path} does not run: start it with `farm up`" in shown
    assert "job 1: no agent is alive" in shown
    assert "waits: no agent is alive" in CliRunner().invoke(main, ["job", "1"]).stdout
    listed = json.loads(CliRunner().invoke(main, ["agents", "--json"]).stdout)
    assert [agent["is_alive"] for agent in listed] == [False]


@pytest.fixture
def many(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> int:
    """More jobs than a round looks at, with one agent at work; return the last job of them all."""
    monkeypatch.setattr(waiting_module, "MOST_LOOKED_AT", 4)
    monkeypatch.setattr(waiting_reasons, "MOST_LOOKED_AT", 4)
    with writing(engine) as session:
        add_agent(session, "a1", heartbeat_at=dt.datetime.now(dt.UTC))
        [running] = add_sweep(session, job_spec())
        add_attempt(session, running, ["a1"], state=AttemptState.RUNNING)
        add_sweep(session, *(job_spec(seed=i, world_size=4) for i in range(9)))
        [paused] = add_sweep(session, job_spec())
        pause_sweep(session, session.get_one(JobRow, paused).sweep_id)
        add_sweep(session, *(job_spec(seed=i) for i in range(9)))
        return add_sweep(session, job_spec())[0]


def test_status_counts_all_that_wait_and_has_a_reason_for_each(
    farm: FarmCommand, many: int
) -> None:
    for_agent, wide = "waits for 1 more idle agent (0 of 1)", "needs 4 agents; the farm has 1"
    behind = "others that ask for the same agents are before it in the queue"
    answer = farm.json("status")
    assert answer["waiting_count"] == 20
    assert {(g["sweep_id"], g["job_count"], g["reason"]) for g in answer["waiting_reasons"]} == {
        (2, 9, wide),
        (3, 1, "its sweep is paused"),
        (4, 3, for_agent),
        (4, 6, behind),
        (5, 1, for_agent),
    }
    shown = farm.text("status").splitlines()
    assert f"job 2: {wide} (and 8 more of sweep 2)" in shown
    assert f"job {many}: {for_agent}" in shown
    assert not any("more jobs wait" in line for line in shown)
    own = farm.json("status", "5")
    assert (own["waiting_count"], own["waiting"]) == (1, [{"job_id": many, "reason": for_agent}])


def test_a_job_that_waits_says_why(farm: FarmCommand, many: int) -> None:
    assert "waits: needs 4 agents; the farm has 1\n" in farm.text("job", "2")
    assert farm.json("job", str(many))["waits_because"] == "waits for 1 more idle agent (0 of 1)"
    assert farm.json("job", "1")["waits_because"] is None


@pytest.mark.usefixtures("many")
def test_the_doctor_counts_all_that_nobody_can_serve(farm: FarmCommand) -> None:
    assert "waits for agents" in farm.text("status")
    findings = farm.run("doctor", "--json").stdout
    assert lacking(findings, "9 jobs", "such as 2", "needs 4 agents", "has 1") == []


def test_status_of_a_sweep_shows_what_it_measured(farm: FarmCommand, engine: sa.Engine) -> None:
    with writing(engine) as session:
        (job_id,) = add_sweep(session, job_spec(), name="measured")
        session.get_one(JobRow, job_id).state = JobState.SUCCEEDED
        add_measurement(session, "job 1", job_id=job_id, step_time_s=0.0123, accuracy=0.5)
    shown = farm.text("status", "measured")
    assert "1 of 1 job done" in shown
    assert "12.3 ms" in shown
    assert "50.0 %" in shown
    [line] = [line for line in shown.splitlines() if line.startswith("Recommended")]
    assert line.startswith("Recommended for mlp on digits, batch 32: ")
    assert line.endswith("; it rests on 1 measurement of this sweep")
    with writing(engine) as session:
        add_measurement(session, "of another sweep", step_time_s=0.0123)
    shown = farm.text("status", "measured")
    assert lacking(shown, "2 measurements", "1 of this sweep", "1 of other sweeps") == []
    [recommended] = farm.json("status", "measured")["recommended"]
    assert recommended["recommended"]["world_size"] == 1
    assert (recommended["own_measurement_count"], recommended["other_measurement_count"]) == (1, 1)


def test_status_shows_what_was_measured_without_prices_too(
    farm: FarmCommand, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writing(engine) as session:
        (job_id,) = add_sweep(session, job_spec(), name="measured")
        session.get_one(JobRow, job_id).state = JobState.SUCCEEDED
        add_measurement(session, "job 1", job_id=job_id, step_time_s=0.0123)
    monkeypatch.setenv("FARM_PRICES", "/nowhere/prices.csv")
    shown = farm.run("status", "measured")
    assert shown.exit_code == 0
    assert "12.3 ms" in shown.stdout
    assert "no cost is shown" in shown.stderr
    assert farm.run("status", "measured", "--prices", "/nowhere/prices.csv").exit_code == 2


def test_status_measures_the_cells_that_pages_show(farm: FarmCommand, engine: sa.Engine) -> None:
    specs = [job_spec(steps=n, repetition=r, seed=r) for n in (10, 300) for r in (0, 1)]
    with writing(engine) as session:
        for job_id in add_sweep(session, *specs, name="lengths"):
            session.get_one(JobRow, job_id).state = JobState.SUCCEEDED
            add_measurement(session, f"job {job_id}", job_id=job_id)
    answer = farm.json("status", "lengths")
    assert [(one["steps"], one["run_count"]) for one in answer["measured"]] == [(10, 2), (300, 2)]
    assert [one["repetition_count"] for one in answer["cells"]] == [2, 2]
    assert [one["jobs_by_state"]["succeeded"] for one in answer["cells"]] == [2, 2]


@pytest.mark.usefixtures("waiting")
def test_jobs_are_listed_in_pages(farm: FarmCommand) -> None:
    first = farm.json("jobs", "--limit", "3")
    assert [job["id"] for job in first["items"]] == [1, 2, 3]
    rest = farm.json("jobs", "--after", str(first["next"]))
    assert [job["id"] for job in rest["items"]] == [4]
    assert rest["next"] is None
    assert farm.json("jobs", "--state", "failed")["items"] == []
    assert len(farm.text("jobs", "--sweep", "try").splitlines()) == 5


def test_a_job_tells_its_story(farm: FarmCommand, engine: sa.Engine) -> None:
    with writing(engine) as session:
        (job_id,) = add_sweep(session, job_spec())
        add_agent(session, "a1")
        add_attempt(session, job_id, ["a1"], state=AttemptState.LOST)
        add_attempt(session, job_id, ["a1"], state=AttemptState.SUCCEEDED, number=2)
        add_measurement(session, "job 1", job_id=job_id)
    story = farm.json("job", str(job_id))
    assert [a["state"] for a in story["attempts"]] == ["lost", "succeeded"]
    assert story["attempts"][0]["ranks"][0]["agent_id"] == "a1"
    assert story["measurement"]["step_time_s"] == 0.1
    assert story["spec"]["warmup_steps"] == 5
    assert story["story"] == story["events"]
    assert set(answers.JobStory.__annotations__) <= set(story)
    assert set(story["measurement"]) == set(answers.Measurement.__annotations__)
    shown = farm.text("job", str(job_id))
    assert "lost" in shown
    assert "step_time_s = 0.1" in shown


def test_agents_are_what_the_api_calls_them(farm: FarmCommand, engine: sa.Engine) -> None:
    now = dt.datetime.now(dt.UTC)
    with writing(engine) as session:
        add_agent(session, "fresh", heartbeat_at=now)
        add_agent(session, "gone", heartbeat_at=now - dt.timedelta(minutes=5))
    listed = {a["id"]: (a["status"], a["is_live"], a["is_alive"]) for a in farm.json("agents")}
    assert listed == {"fresh": ("idle", True, True), "gone": ("lost", False, False)}
    assert [line.split()[1] for line in farm.text("agents").splitlines()[1:]] == ["idle", "lost"]


def test_agents_show_the_cores_that_a_quota_leaves_them(
    farm: FarmCommand, engine: sa.Engine
) -> None:
    hardware = dataclasses.replace(agent_facts().hardware, core_count=1.5)
    with writing(engine) as session:
        add_agent(session, "a1", facts=agent_facts(cpus=(0, 1, 2, 3), hardware=hardware))
        add_agent(session, "a2")
    head, *rows = farm.text("agents").splitlines()
    end = head.index("cores") + len("cores")
    assert [row[:end].split()[-1] for row in rows] == ["1.5", "1"]


def test_agents_show_what_their_warm_trainers_cost(farm: FarmCommand, engine: sa.Engine) -> None:
    now = dt.datetime.now(dt.UTC)
    with writing(engine) as session:
        add_agent(session, "warm", heartbeat_at=now)
        add_agent(session, "cold", heartbeat_at=now)
        session.get_one(AgentRow, "warm").template_bytes = 357_000_000
    assert {a["id"]: a["template_bytes"] for a in farm.json("agents")} == {
        "warm": 357_000_000,
        "cold": None,
    }
    head, cold, warm = farm.text("agents").splitlines()
    end = head.index("template") + len("template")
    assert (cold[:end].split()[-1], warm[:end].split()[-2:]) == ("-", ["357", "MB"])


def test_a_drained_agent_takes_jobs_again_only_when_told(
    farm: FarmCommand, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        add_agent(session, "a1")

    def is_drained() -> bool:
        with reading(engine) as session:
            return session.get_one(AgentRow, "a1").is_drained

    farm.text("drain", "a1")
    assert is_drained()
    farm.text("drain", "a1", "--resume")
    assert not is_drained()


@pytest.mark.usefixtures("waiting")
def test_cancelled_jobs_can_be_run_again(farm: FarmCommand, engine: sa.Engine) -> None:
    assert farm.text("cancel", "--job", "2") == "1 job cancelled\n"
    assert _job_states(engine) == ["waiting", "cancelled", "waiting", "waiting"]
    assert farm.json("cancel", "try") == {"id": 1, "cancelled_count": 3}
    assert farm.json("retry", "--job", "1") == {"id": 1, "retried_count": 1}
    assert farm.text("retry", "try") == "3 jobs wait again\n"
    assert _job_states(engine) == ["waiting"] * 4


def test_a_sweep_is_paused_and_goes_on(farm: FarmCommand, engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_sweep(session, name="try")
    assert farm.text("pause", "try") == "sweep 1 is paused\n"
    assert farm.text("pause", "1") == "sweep 1 is paused already\n"
    assert farm.text("status").splitlines()[1].split()[:3] == ["1", "try", "paused"]
    line = farm.text("status", "try").splitlines()[0]
    assert line == "sweep 1 try: 0 of 1 job done, paused"
    assert farm.json("status", "try")["sweep"]["is_paused"] is True
    with reading(engine) as session:
        assert waiting_jobs(session, now=NOW) == []
    resumed = {"id": 1, "sweep_id": 1, "is_paused": False, "changed": True}
    assert farm.json("resume", "try") == resumed
    with reading(engine) as session:
        assert len(waiting_jobs(session, now=NOW)) == 1


def test_a_sweep_over_its_budget_says_so_and_goes_on_with_another(
    farm: FarmCommand, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        done, _ = add_sweep(session, job_spec(), job_spec(seed=1), name="try")
        sweep = session.get_one(SweepRow, session.get_one(JobRow, done).sweep_id)
        sweep.budget_machine_s = 1800.0
        token = add_attempt(session, done, state=AttemptState.SUCCEEDED)
        session.get_one(AttemptRow, token).leased_at = NOW - seconds(3600)
    lines = farm.text("status", "try").splitlines()
    assert "budget: 0.5 machine hours, 1 machine hour spent" in lines
    with writing(engine) as session:
        use_up_budgets(session, [1], now=NOW)
    assert farm.text("status").splitlines()[1].split()[:4] == ["1", "try", "over", "budget"]
    lines = farm.text("status", "try").splitlines()
    assert lines[0] == "sweep 1 try: 1 of 2 jobs done, over budget"
    assert "job 2: its sweep's budget of 0.5 machine hours is used up" in lines
    shown = farm.json("status", "try")
    assert shown["sweep"]["is_budget_used_up"] is True
    assert (shown["sweep"]["budget_machine_s"], shown["spent_machine_s"]) == (1800.0, 3600.0)
    refused = farm.refusal("resume", "try", status=1)
    assert "is used up: resume it with a larger budget_machine_hours" in refused
    for hours, expected in (
        ("0", "a number of machine hours above 0 and up to 1000000, got 0.0"),
        ("nan", "a number of machine hours above 0 and up to 1000000, got nan"),
    ):
        refused = farm.refusal("resume", "try", "--budget-machine-hours", hours, status=2)
        assert f"budget_machine_hours: expected {expected}" in refused
    refused = farm.refusal("resume", "try", "--budget-machine-hours", "1", status=1)
    assert "expected a budget_machine_hours above what is spent, 1 machine hour, got 1" in refused
    resumed = {"id": 1, "sweep_id": 1, "is_paused": False, "changed": True}
    assert farm.json("resume", "try", "--budget-machine-hours", "2") == resumed
    assert farm.json("status", "try")["sweep"]["budget_machine_s"] == 7200.0


@pytest.mark.parametrize(
    "arguments",
    [
        ("job", "7"),
        ("status", "nowhere"),
        ("jobs", "--sweep", "nowhere"),
        ("cancel", "--job", "7"),
        ("retry", "nowhere"),
        ("pause", "nowhere"),
        ("resume", "nowhere"),
        ("drain", "nobody"),
        ("export", "nowhere"),
        ("recommend", "--global-batch-size", "32", "--origin", "nowhere"),
    ],
)
def test_what_is_not_there_is_one_line_and_status_1(
    farm: FarmCommand, arguments: tuple[str, ...]
) -> None:
    message = farm.refusal(*arguments, status=1)
    assert "7" in message or "no" in message


@pytest.mark.parametrize("job_id", ["0", "9223372036854775808", "1" * 5000])
@pytest.mark.parametrize(
    "command", [("job",), ("jobs", "--after"), ("cancel", "--job"), ("retry", "--job")]
)
def test_what_cannot_be_the_id_of_a_job_is_wrong_usage(
    farm: FarmCommand, command: tuple[str, ...], job_id: str
) -> None:
    if (command, job_id) == (("jobs", "--after"), "0"):
        assert farm.json(*command, job_id)["items"] == []
    else:
        farm.refusal(*command, job_id, status=2)


@pytest.mark.parametrize("arguments", [(), ("try", "--job", "1")])
def test_cancel_takes_either_a_sweep_or_a_job(
    farm: FarmCommand, arguments: tuple[str, ...]
) -> None:
    farm.refusal("cancel", *arguments, status=2)


@pytest.fixture
def measured(engine: sa.Engine) -> None:
    """A sweep of three jobs: one rank, two ranks at half the time, and one out of memory."""
    with writing(engine) as session:
        specs = [job_spec(), job_spec(world_size=2), job_spec(world_size=3)]
        jobs = add_sweep(session, *specs, name="measured")
        common = {"steps_per_epoch": 10, "fingerprint": "f"}
        add_measurement(session, "1", job_id=jobs[0], time_per_epoch_s=1.0, **common)
        gang = {"strategy": "mwms_ring", **common}
        add_measurement(session, "2", job_id=jobs[1], world_size=2, time_per_epoch_s=0.5, **gang)
        add_measurement(
            session,
            "3",
            job_id=jobs[2],
            world_size=3,
            status="out_of_memory",
            **{**gang, "step_time_s": None},
        )


@pytest.mark.usefixtures("measured")
def test_the_fastest_measured_configuration_is_recommended(farm: FarmCommand) -> None:
    answer = farm.json("recommend", "--global-batch-size", "32")
    assert answer["recommended"]["world_size"] == 2
    assert answer["recommended"]["basis"] == "measured"
    narrow = farm.json("recommend", "--global-batch-size", "32", "--world-sizes", "4")
    assert narrow["recommended"]["world_size"] == 1
    shown = farm.text("recommend", "--global-batch-size", "32").splitlines()
    assert shown[0].startswith("Recommended: ")
    assert lacking(shown[0], "world size 2", "mwms_ring", "500 ms an epoch") == []


@pytest.mark.usefixtures("measured")
def test_where_nothing_fits_the_status_is_1_with_the_reason(farm: FarmCommand) -> None:
    result = farm.run("recommend", "--global-batch-size", "48", "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["recommended"] is None
    assert "48" in answer["reason"]
    shown = farm.run("recommend", "--global-batch-size", "48").stdout
    assert shown == f"Recommended: nothing, because {answer['reason']}\n"


@pytest.mark.usefixtures("measured")
def test_an_export_has_a_row_for_every_finished_job(farm: FarmCommand, tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(farm.text("export", "measured"))))
    assert tuple(rows[0]) == tuple(MEASUREMENTS)
    assert [row["status"] for row in rows] == ["ok", "ok", "out_of_memory"]
    assert rows[2]["step_time_s"] == ""
    out = tmp_path / "rows.json"
    out.write_text("old")
    assert farm.text("export", "measured", "--format", "json", "--out", str(out)) == ""
    assert [row["world_size"] for row in json.loads(out.read_text())] == [1, 2, 3]
    assert [path.name for path in tmp_path.glob("*rows*")] == ["rows.json"]


@pytest.mark.usefixtures("measured")
def test_an_export_that_cannot_be_written_says_where(farm: FarmCommand, tmp_path: Path) -> None:
    out = tmp_path / "nowhere" / "rows.csv"
    assert str(out) in farm.refusal("export", "measured", "--out", str(out), status=1)


@pytest.mark.usefixtures("measured")
def test_parquet_without_its_library_says_what_to_install(
    farm: FarmCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    out = str(tmp_path / "rows.parquet")
    refusal = farm.refusal("export", "measured", "--format", "parquet", "--out", out, status=1)
    assert "pip install pyarrow" in refusal


@pytest.mark.usefixtures("measured")
def test_an_export_writes_parquet_into_a_file_alone(farm: FarmCommand, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra server")
    out = tmp_path / "rows.parquet"
    farm.text("export", "measured", "--format", "parquet", "--out", str(out))
    assert parquet.read_table(out).column("world_size").to_pylist() == [1, 2, 3]
    farm.refusal("export", "measured", "--format", "parquet", status=2)


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_samples_are_exported_as_they_are_stored(
    farm: FarmCommand, engine: sa.Engine, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra server")
    monkeypatch.setattr(exporting, "SAMPLES_A_PART", 2)
    sampled = [Sample(tick=t, cpu_ratio=0.1 * t, extra={"celsius": 40.5}) for t in range(1, 4)]
    with writing(engine) as session:
        add_agent(session)
        [one, two] = add_sweep(session, job_spec(), job_spec(repetition=1), name="sampled")
        [other] = add_sweep(session, job_spec(), name="another")
        failed = add_attempt(session, one, ["a1"], state=AttemptState.LOST)
        tokens = [
            failed,
            *(add_attempt(session, job, ["a1"], number=2) for job in (one, two, other)),
        ]
        for token in tokens[1:]:
            insert_samples(session, day=NOW.date(), token=token, rank=1, samples=sampled)
        insert_samples(session, day=NOW.date(), token=failed, rank=0, samples=sampled[:1])
    out = tmp_path / f"samples.{form}"
    farm.text("export", "sampled", "--samples", "--format", form, "--out", str(out))
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(out.read_text())))
    elif form == "json":
        rows = json.loads(out.read_text())
    else:
        rows = parquet.read_table(out).to_pylist()
    keys = ("job_id", "attempt_id", "rank", "tick")
    assert [tuple(int(row[key]) for key in keys) for row in rows] == [
        (one, failed, 0, 1),
        *((one, tokens[1], 1, tick) for tick in (1, 2, 3)),
        *((two, tokens[2], 1, tick) for tick in (1, 2, 3)),
    ]
    assert [float(row["cpu_ratio"]) for row in rows[1:4]] == [0.1, 0.2, 0.1 * 3]
    assert {json.loads(row["extra"])["celsius"] for row in rows} == {40.5}
    assert {row["resident_bytes"] for row in rows} <= {None, ""}
    farm.refusal("export", "sampled", "--samples", status=2)


def test_commands_find_the_broker_of_the_farm_that_runs_in_their_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("FARM_BROKER_URL", raising=False)
    monkeypatch.setenv("FARM_HOME", str(tmp_path))
    own = "redis://127.0.0.1:1234/0"
    write_endpoints(tmp_path, Endpoints(broker_url=own, broker_port=1234, dashboard_url=""))
    with click.Context(main) as context:
        context.params["config"] = None
        assert settings().broker_url != own
        with locked(tmp_path):
            assert settings().broker_url == own
            monkeypatch.setenv("FARM_BROKER_URL", "redis://elsewhere:1/0")
            monkeypatch.setenv("FARM_PLAINTEXT", "broker")
            assert settings().broker_url == "redis://elsewhere:1/0"


def test_a_command_that_only_reads_creates_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FARM_DATABASE_URL", raising=False)
    monkeypatch.setenv("FARM_HOME", str(tmp_path / "home"))
    result = CliRunner().invoke(main, ["status"])
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "there is no store" in result.stderr
    assert "`farm up`" in result.stderr
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    "url", ["amqp://u:secret@h", "redis://u:secret@h:port/0", "redis://u:sec/secret@h:6379/0"]
)
def test_a_broker_url_that_cannot_be_is_refused_before_anything_is_written(
    farm: FarmCommand, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    with writing(engine) as session:
        add_sweep(session, job_spec(), name="try")
    monkeypatch.setenv("FARM_BROKER_URL", url)
    message = farm.refusal("cancel", "try", status=2)
    assert message.startswith("farm: FARM_BROKER_URL: expected ")
    assert "secret" not in message
    assert _job_states(engine) == ["waiting"]


def test_an_old_or_missing_schema_is_one_line_that_says_what_to_run(
    empty_engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = FarmCommand(empty_engine, tmp_path / "home", monkeypatch)
    assert "run `farm db upgrade`" in farm.refusal("db", "check", status=1)
    assert "run `farm db upgrade`" in farm.refusal("status", status=1)
    farm.text("db", "upgrade")
    farm.text("db", "check")

"""`farm plot` on a store: which files it writes, and how it refuses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from farm.configuration.spec import JobSpec, NetworkProfile
from farm.gang.lifecycle import AttemptState, JobState
from farm.messages.reports import Sample, StepTimes
from farm.messages.trainer_lines import StepKind
from farm.store.engine import writing
from farm.store.tables import AttemptRow, JobRow
from tests.commands.farm_command import FarmCommand
from tests.factories import add_agent, add_attempt, add_measurement, add_sweep, job_spec
from tests.stored.histories import BEFORE, SLOWER, add_day
from tests.stored.stored_series import insert_samples, insert_steps

pytest.importorskip("matplotlib", reason="needs the extra plot")


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    monkeypatch.chdir(tmp_path)
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


def specs() -> list[JobSpec]:
    delays = [NetworkProfile(one_way_delay_s=d) for d in (0.0, 0.02)]
    gangs = [
        job_spec(world_size=n, global_batch_size=batch, network=network)
        for n in (2, 3)
        for batch in (64, 256)
        for network in delays
    ]
    return [*(job_spec(global_batch_size=batch) for batch in (64, 256)), *gangs]


@pytest.fixture
def measured(engine: sa.Engine) -> list[int]:
    """The jobs of a sweep `scaling`: world sizes, batches and delays, all measured."""
    with writing(engine) as session:
        jobs = add_sweep(session, *specs(), name="scaling")
        for job_id, spec in zip(jobs, specs(), strict=True):
            session.get_one(JobRow, job_id).state = JobState.SUCCEEDED
            delay_s = spec.network.one_way_delay_s if spec.network else 0.0
            step_time_s = spec.global_batch_size / spec.world_size * 1e-4 + 4 * delay_s + 1e-3
            add_measurement(
                session,
                f"job {job_id}",
                job_id=job_id,
                strategy=spec.strategy,
                world_size=spec.world_size,
                global_batch_size=spec.global_batch_size,
                one_way_delay_s=delay_s,
                step_time_s=step_time_s,
                time_per_epoch_s=10 * step_time_s,
                fingerprint="x",
            )
    return jobs


@pytest.fixture
def sampled(engine: sa.Engine, measured: list[int]) -> int:
    """The first gang's job, with samples and steps of its ranks."""
    job_id = measured[2]
    with writing(engine) as session:
        agents = [add_agent(session, f"a{n}") for n in range(2)]
        token = add_attempt(session, job_id, agents, state=AttemptState.SUCCEEDED)
        day = session.get_one(AttemptRow, token).leased_at.date()
        for rank in range(2):
            samples = [Sample(tick=t, cpu_ratio=0.5, resident_bytes=10**8) for t in range(5)]
            insert_samples(session, day=day, token=token, rank=rank, samples=samples)
        steps = StepTimes(kind=StepKind.TIMED, first_step=0, begun_s=0.5, times_s=(0.1,) * 30)
        insert_steps(session, token=token, rank=0, steps=steps)
    return job_id


def _plots(farm: FarmCommand, *arguments: str, sweep: str = "scaling") -> dict[str, Any]:
    return {one["kind"]: one for one in farm.json("plot", sweep, *arguments)["plots"]}


def test_everything_there_is_goes_into_a_folder_named_after_the_sweep(
    farm: FarmCommand, tmp_path: Path, sampled: int
) -> None:
    result = farm.run("plot", "scaling")
    assert result.exit_code == 0, result.output
    names = ["time", "bars", "map", "cost-time", f"series-job-{sampled}", "prediction"]
    expected = [f"plots/scaling/{name}.{form}" for name in names for form in ("png", "svg")]
    assert result.stdout.splitlines() == expected
    assert all((tmp_path / path).stat().st_size > 1000 for path in expected)
    assert "no lines" not in result.stderr


@pytest.mark.usefixtures("measured")
def test_what_cannot_be_drawn_is_told_and_the_rest_is_drawn(farm: FarmCommand) -> None:
    result = farm.run("plot", "scaling")
    assert result.exit_code == 0
    assert "farm: no series: job 3: it has not begun" in result.stderr
    assert "plots/scaling/time.png" in result.stdout
    alone = farm.refusal("plot", "scaling", "--kind", "series", status=1)
    assert "job 3: it has not begun" in alone


@pytest.mark.usefixtures("measured")
def test_equal_measurements_are_equal_files(farm: FarmCommand, tmp_path: Path) -> None:
    for folder in ("once", "again"):
        farm.text("plot", "1", "--kind", "lines,bars,map,pareto", "--out", str(tmp_path / folder))
    once, again = (
        {path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()}
        for folder in ("once", "again")
    )
    assert once == again
    assert len(once) == 8


@pytest.mark.usefixtures("measured")
def test_options_choose_axes_metric_and_form(farm: FarmCommand, tmp_path: Path) -> None:
    lines = _plots(
        farm,
        *("--kind", "lines", "--along", "one_way_delay_ms", "--by", "world_size"),
        *("--metric", "time_per_epoch", "--format", "pdf"),
    )["lines"]
    assert lines["title"] == "Time per epoch against delay"
    assert lines["files"] == ["plots/scaling/time-per-epoch.pdf"]
    assert (tmp_path / lines["files"][0]).read_bytes().startswith(b"%PDF")
    mapped = _plots(
        farm, "--kind", "map", "--over", "global_batch_size", "--down", "one_way_delay_ms"
    )["map"]
    assert mapped["title"] == "Step time over batch and delay"
    held = _plots(farm, "--kind", "map", "--at", "one_way_delay_ms=20.0")["map"]
    assert "delay" not in held["title"]
    assert "6 of 6 fields have a number" in held["summary"]


def test_a_history_is_of_a_cell_in_all_sweeps(farm: FarmCommand, engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_day(session, 0, *BEFORE)
        add_day(session, 1, *SLOWER, framework="torch 2.13.1")
        add_day(session, 1, *BEFORE, spec=job_spec(global_batch_size=64))
    for options in ((), ("--job", "1")):
        [plot] = _plots(farm, "--kind", "history", *options, sweep="day 0").values()
        assert plot["title"].endswith("world_size=1 global_batch_size=32")
        assert plot["summary"] == (
            "A CPU, 4 cores, 8.59 GB: 2 points, 1 slower and 0 faster than before"
        )
    for arguments, message in (
        (("3",), "no cell was measured on several days"),
        (("1", "--job", "4"), "job 4: it is of sweep 2, not of this one"),
        (("1", "--job", "99"), "job 99 does not exist"),
    ):
        assert message in farm.refusal("plot", "--kind", "history", *arguments, status=1)


def test_a_jobs_series_have_its_steps_laid_over(farm: FarmCommand, sampled: int) -> None:
    [series] = _plots(farm, "--job", str(sampled)).values()
    assert series["kind"] == "series"
    assert series["title"].startswith(f"Job {sampled}: world size 2, batch 64")
    assert "the steps of rank 0 are laid over it" in series["summary"]


def test_a_job_of_another_sweep_is_refused(farm: FarmCommand, engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_sweep(session, name="scaling")
        [other] = add_sweep(session, name="other")
    refusal = farm.refusal("plot", "scaling", "--job", str(other), status=1)
    assert f"job {other}: it is of sweep 2, not of this one" in refusal


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--along", "delay"), "--along: expected one of world_size, global_batch_size, one_way_"),
        (("--by", "colour"), "--by: expected one of world_size"),
        (("--over", "x"), "--over: expected one of world_size"),
        (
            ("--over", "world_size", "--down", "world_size"),
            "--down: expected another axis than --over",
        ),
        (("--metric", "speed"), "--metric: expected one of step_time, throughput"),
        (("--at", "delay=3"), "--at: expected AXIS=VALUE with one of world_size"),
        (("--at", "world_size"), "--at: expected AXIS=VALUE with one of world_size"),
        (("--at", "world_size=7"), "--at world_size: expected one of 1, 2, 3, got '7'"),
        (("--kind", "pie"), "--kind: expected of lines, bars, map"),
        (("--kind", ","), "--kind: expected of lines, bars, map"),
        (("--format", "bmp"), "--format: expected of png, svg, pdf"),
    ],
)
def test_what_the_sweep_does_not_have_is_refused_with_what_it_has(
    farm: FarmCommand, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    assert message in farm.refusal("plot", "scaling", *options, status=2)
    assert not (tmp_path / "plots").exists()


def test_a_sweep_that_waits_has_nothing_to_draw(farm: FarmCommand, engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_sweep(session, name="new")
    assert "no cell has a known" in farm.refusal("plot", "new", "--kind", "bars", status=1)
    result = farm.run("plot", "new")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.endswith("farm: nothing of this sweep can be drawn yet\n")


def test_too_few_cells_for_predictions_are_told_in_one_line(
    farm: FarmCommand, engine: sa.Engine
) -> None:
    pytest.importorskip("sklearn", reason="needs the extra ml")
    with writing(engine) as session:
        add_sweep(session, name="new")
    refusal = farm.refusal("plot", "new", "--kind", "prediction", status=1)
    assert "too few to predict each from the others" in refusal


@pytest.mark.usefixtures("measured")
def test_without_matplotlib_it_is_said_what_to_install(
    farm: FarmCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refusal = farm.refusal("plot", "scaling", status=1)
    assert "pip install 'benchfarm[plot]'" in refusal


@pytest.mark.usefixtures("measured")
def test_a_folder_that_cannot_be_made_is_refused(farm: FarmCommand, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "in")
    assert "--out: expected a folder to write to" in farm.refusal(
        "plot", "scaling", "--kind", "map", "--out", out, status=2
    )

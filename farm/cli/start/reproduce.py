"""`farm reproduce`: repeat a study on a farm of its own on this machine, and write its page."""

from __future__ import annotations

import datetime as dt
import os
from contextlib import AbstractContextManager, nullcontext
from importlib.resources import as_file
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from farm.cli.output import json_option, print_json, to_stderr
from farm.cli.session import settings, store
from farm.embedded.signals import Stopped, StopSignals
from farm.errors import FarmError
from farm.measuring.study_run import StudyRun
from farm.settings.server import Settings
from farm.studies import STUDIES
from farm.studies.contracts import LabHosts, Study
from farm.submission import SubmissionPlan, plan, read_sweep_file, submit
from farm.text.plurals import counted

if TYPE_CHECKING:
    import sqlalchemy as sa

    from farm.embedded.farm import EmbeddedFarm

_STUDIES = {study.name: study for study in STUDIES}


@click.command()
@click.argument("name", type=click.Choice(list(_STUDIES)))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("docs"),
    show_default=True,
    help="Folder of the documents: the page, its images/, and studies/ with sweep and data.",
)
@click.option(
    "--sweep",
    "sweep_file",
    type=click.Path(path_type=Path),
    help="Measure this file instead of the study's own.",
)
@click.option(
    "--page-only", is_flag=True, help="Measure nothing: make the page of studies/NAME.csv."
)
@json_option
def reproduce(
    name: str, *, out: Path, sweep_file: Path | None, page_only: bool, as_json: bool
) -> None:
    """Repeat a study on this machine, and write its page and figures.

    Studies of networks need a lab, and so root, as `farm lab` does. If the command was interrupted,
    run it again: it continues the sweep in the store of FARM_HOME, and does not repeat
    measurements. A new FARM_HOME starts over.

    --json prints study, run_count, and the paths of page, figures, data and sweep; sweep is null
    with --page-only.
    """
    from farm.studies.publishing import (
        data_path,
        own_sweep,
        publish_data,
        publish_page,
        read_data,
        read_runs,
        sweep_path,
        write_runs,
    )

    study = _STUDIES[name]
    if page_only and sweep_file:
        raise click.UsageError("--page-only and --sweep exclude each other")
    if not page_only:
        own = as_file(own_sweep(study)) if sweep_file is None else nullcontext(sweep_file)
        with own as file:
            planned, sweep = plan(read_sweep_file(file)), file.read_text()
        measured = _measure(study, planned, settings())
        publish_data(study, out, data=write_runs(measured), sweep=sweep)
    # From the file, as everybody else can: page and data cannot differ.
    data = data_path(study, out)
    runs = read_runs(read_data(data), name=str(data))
    page, *figures = publish_page(study, out, page=study.page(runs))
    if as_json:
        print_json(
            {
                "study": name,
                "run_count": len(runs),
                "page": str(page),
                "figures": [str(path) for path in figures],
                "data": str(data),
                "sweep": None if page_only else str(sweep_path(study, out)),
            }
        )
        return
    for path in (page, *figures):
        click.echo(path)


def _measure(study: Study, planned: SubmissionPlan, loaded: Settings) -> list[StudyRun]:
    """Return the study's runs, once all of its jobs have a result; what is missing is run."""
    runs = _measured(planned, loaded)
    if runs is None:
        _run(study, planned, loaded)
        runs = _measured(planned, loaded)
    assert runs is not None, "the missing parts were printed"
    return runs


def _measured(planned: SubmissionPlan, loaded: Settings) -> list[StudyRun] | None:
    """Return the runs of a sweep that is complete; None where there is something left to do."""
    from farm.store.engine import reading
    from farm.store.measurements.studies import find_same_sweep, study_runs, unmeasured_jobs

    try:
        with store(loaded) as engine, reading(engine) as session:
            sweep_id = find_same_sweep(session, planned.data)
            if sweep_id is None or unmeasured_jobs(session, sweep_id):
                return None
            return study_runs(session, sweep_id)
    except FarmError:
        # No store yet, or one of an older version: the farm makes or upgrades it, or says why not.
        return None


def _run(study: Study, planned: SubmissionPlan, loaded: Settings) -> None:
    """Run what is left of the sweep.

    Raises:
        FarmError: a framework is not installed, or a job has no result even now.
        click.Abort: stopped by the user.
    """
    from farm.cli.start.demonstration import engine_of, finish
    from farm.store.engine import reading
    from farm.store.measurements.studies import unmeasured_jobs

    for module in study.modules:
        if find_spec(module) is None:
            raise FarmError(
                f"study '{study.name}' needs {module}: pip install 'benchfarm[{module}]'"
            )
    with StopSignals() as signals:
        try:
            with (
                _farm(study, loaded, signals) as farm,
                engine_of(farm) as engine,
            ):
                sweep_id = begin(engine, planned)
                finish(farm, signals, engine=engine, sweep_id=sweep_id)
                with reading(engine) as session:
                    missing = unmeasured_jobs(session, sweep_id)
        except Stopped:
            to_stderr("stopped; run the same command again to continue")
            raise click.Abort from None
    if missing:
        first = missing[0]
        raise FarmError(
            f"{counted(len(missing), 'job has', 'jobs have')} no result, such as job {first.id}: "
            f"{first.reason or first.state.value}; the same command tries them again"
        )


def _farm(
    study: Study, loaded: Settings, signals: StopSignals
) -> AbstractContextManager[EmbeddedFarm]:
    """Return the farm that the study asks for, not yet started.

    Raises:
        FarmError: it asks for agents on this machine, which has fewer cores.
    """
    from farm.cli.start.lab import lab_farm
    from farm.embedded.farm import EmbeddedFarm

    if isinstance(study.place, LabHosts):
        return lab_farm(loaded, signals, hosts=study.place.count)
    count, core_count = study.place.count, len(os.sched_getaffinity(0))
    if core_count < count:
        raise FarmError(
            f"study '{study.name}' needs {counted(count, 'core')}, one for each agent, and "
            f"this machine lets it have {core_count}"
        )
    to_stderr(f"starting a farm with {counted(count, 'agent')} in {loaded.home}")
    return EmbeddedFarm(loaded, agents=count, signals=signals, report=to_stderr)


def begin(engine: sa.Engine, planned: SubmissionPlan) -> int:
    """Resume the sweep with that content, or submit it; return its id."""
    from farm.store.engine import writing
    from farm.store.measurements.studies import find_same_sweep, requeue_unfinished

    now = dt.datetime.now(dt.UTC)
    with writing(engine) as session:
        sweep_id = find_same_sweep(session, planned.data)
        if sweep_id is None:
            return submit(session, planned, now=now).sweep_id
        requeue_unfinished(session, sweep_id, now=now)
    to_stderr(f"going on with sweep {sweep_id}")
    return sweep_id

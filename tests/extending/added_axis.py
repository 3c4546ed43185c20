"""Find an axis that was added to `configuration.axes` wherever it has to be; run in a changed copy.

    python -m tests.extending.added_axis NAME

The axis is a number of a strategy's set-up or of the network, and takes its default and 2, in the
unit of its name.
Prints where it was found, one place a line; what is not found is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from flask.testing import FlaskClient
from sqlalchemy.orm import Session

from farm.cells.axes import order
from farm.cells.choice import read_choice
from farm.cells.reading import read_sweep
from farm.cells.result_table import table as command_table
from farm.charts.heat_map import heat_map
from farm.charts.metric_lines import line_panels
from farm.cli.advice.recommend import recommend as recommend_command
from farm.configuration.axes import BY_NAME, Axis, spec_values
from farm.configuration.expansion import expand
from farm.configuration.spec import JobSpec
from farm.configuration.sweep import parse_sweep
from farm.errors import InvalidSpec
from farm.gang.lifecycle import AttemptState, JobState
from farm.importers.table import read_table
from farm.messages.agents import AgentState
from farm.messages.trainer_lines import Failure, FailureKind
from farm.recommend.contracts import Objective, Question
from farm.recommend.prices import Prices
from farm.recommend.service import recommend
from farm.registry import catalogue
from farm.store.engine import reading, writing
from farm.store.gangs.attempt_measurements import measurement_of
from farm.store.gangs.attempts import active_attempts, reports_of
from farm.store.measurements.export_parts import export_parts
from farm.store.measurements.imports import import_measurements
from farm.store.measurements.neighbours import neighbours_of
from farm.store.result_tables import MeasurementRow
from farm.store.sweeps.jobs import job_detail
from farm.store.tables import JobRow
from farm.values.codec import from_json
from tests import document_tables, factories
from tests.extending.added import look
from tests.web.web_client import client_of
from web.job.view import compare


def places(name: str, engine: sa.Engine) -> Iterator[tuple[str, bool]]:
    """Yield where an axis has to be, and whether it is."""
    client = client_of(engine)
    axis = BY_NAME[name]
    least, most = _values(axis)
    sweep = {"name": "added", "case": [{**_CASE, name: [float(axis.address(least)), 2]}]}
    asked = expand(parse_sweep(sweep), catalogue()).jobs
    yield (
        "sweep file",
        sorted((spec_values(job)[axis.field] for job in asked), key=order) == [least, most],
    )
    refused = {"name": "added", "case": [{**_CASE, name: "x"}]}
    yield "refusal", _refusal(refused) == (f"case[0].{name}", "x")
    answer: Any = client.post("/api/v1/sweeps", json=refused)
    told = (answer.status_code, answer.json["field"], answer.json["detail"].endswith("got 'x'"))
    yield "refusal of the API", told == (422, f"case[0].{name}", True)
    if axis.is_of_network:
        proxy = {"name": "proxy", "case": [{**_CASE, name: 2, "emulator": "tcp_proxy"}]}
        answer = client.post("/api/v1/sweeps", json=proxy)
        yield "refusal by an emulator", answer.json["field"] == f"case[0].{name}"
        options = {word for option in recommend_command.params for word in option.opts}
        yield "option", f"--{name.replace('_', '-')}" in options
    else:
        beside = {"name": "added", "case": [{**_SCRIPT_CASE, name: 2}]}
        yield "refusal beside a script", _refusal(beside) == (f"case[0].{name}", 2)
    document: Any = client.get("/api/v1/openapi.json").json
    yield "API document", name in document["components"]["schemas"]["SweepCase"]["properties"]
    yield "form", f'name="{name}"' in client.get("/sweeps/new").text
    posted = client.post("/api/v1/sweeps", json=sweep)
    yield "POST /api/v1/sweeps", posted.status_code == 201
    with writing(engine) as session:
        jobs = session.scalars(sa.select(JobRow).order_by(JobRow.id)).all()
        yield "job", sorted((axis.value_in(job.spec) for job in jobs), key=order) == [least, most]
        for job in jobs:
            _measure(session, job, axis)
    yield from _of_results(axis, engine, client)
    yield "guide", any(name in line for line in document_tables.axes())


def _of_results(axis: Axis, engine: sa.Engine, client: FlaskClient) -> Iterator[tuple[str, bool]]:
    name, title = axis.name, axis.title.lower()
    least, most = _values(axis)
    with reading(engine) as session:
        rows = session.scalars(sa.select(MeasurementRow).order_by(MeasurementRow.id)).all()
        yield "measurement", {axis.value_measured(row) for row in rows} == {least, most}
        lines = read_sweep(session, 1, prices=Prices()).table.measured
        columns, _ = command_table(lines)
        yield "command's table", title in [column.title for column in columns]
        [exported] = list(export_parts(session, 1))
        yield "export", {row[name] for row in exported} == {float(axis.address(least)), 2}
        text = f"world_size,global_batch_size,step_time_s,{name}\n2,64,0.1,2\n"
        [imported] = read_table(text.encode()).measurements
        yield "import", imported.axes == {axis.field: most}
        table = read_sweep(session, 1, prices=Prices()).table
        choice = read_choice({"x": name, "along": name}, table)
        drawn = heat_map(table, choice)
        yield "heat map", drawn is not None and "200 ms" in str(drawn)
        [figure] = line_panels(table, choice, choice.metric)
        along = [figure.x.title, *(figure.x.write(mark.x) for mark in figure.marks)]
        yield "charts", along == [axis.title, axis.text(least), axis.text(most)]
        job = job_detail(session, 1).job
        spec = from_json(JobSpec, job.spec)
        near = neighbours_of(session, spec, fingerprint=None)
        compared = compare(spec, near, step_time_s=0.1, throughput_examples_per_s=None)
        yield "comparison", [one.axis for one in compared] == [title]
        of_network = {axis.field: most} if axis.is_of_network else {}
        question = Question(global_batch_size=64, **of_network)
        answer = recommend(session, question=question, objective=Objective())
        measured_s = [one.step_time_s for one in answer.options if one.basis == "measured"]
        yield "candidates", 0.2 in measured_s
    page = client.get("/sweeps/1").text
    of_cells, _, _ = page.partition('id="results"')
    # A condition of the network stands among the others of its cell.
    column, texts = "Also", [axis.named(least), axis.named(most)]
    if axis.is_of_network:
        column, texts = "Network", ["untouched", f"0 s one way, {axis.said(most)}"]
    cells = [f'<td data-label="{column}">{text}</td>' for text in texts]
    yield "page's table", [of_cells.count(cell) for cell in cells] == [1, 1]
    sweep: Any = client.get("/api/v1/sweeps/1").json
    shown = [axis.value_in(cell["configuration"]) for cell in sweep["cells"]]
    yield "GET /api/v1/sweeps/{id}", sorted(shown, key=order) == [least, most]
    listed: Any = client.get(f"/api/v1/measurements?{name}=2").json
    yield "GET /api/v1/measurements", [one["step_time_s"] for one in listed["items"]] == [0.2]
    with writing(engine) as session:
        import_measurements(session, [imported], origin="mine", source="a test", now=factories.NOW)
        [row] = session.scalars(sa.select(MeasurementRow).where(MeasurementRow.origin == "mine"))
        yield "imported measurement", axis.value_measured(row) == most


def _values(axis: Axis) -> tuple[Any, Any]:
    return axis.default_value, axis.type.read(2, axis.name)


_CASE: dict[str, object] = {
    "model": "mlp",
    "dataset": "digits",
    "strategy": "mwms_ring",
    "world_size": 2,
    "global_batch_size": 64,
}


_SCRIPT_CASE: dict[str, object] = {
    "script": "train.py",
    "world_size": 2,
    "global_batch_size": 64,
}


def _refusal(sweep: Mapping[str, object]) -> tuple[str, object] | None:
    """Return the field and the value that are refused."""
    try:
        parse_sweep(sweep)
    except InvalidSpec as error:
        return error.field, error.value
    return None


def _measure(session: Session, job: JobRow, axis: Axis) -> None:
    """Store what the job would have measured: 0.1 s a step, 0.2 s where it is not the default."""
    names = [f"agent-{job.id}-{rank}" for rank in range(2)]
    for agent_id in names:
        factories.add_agent(session, agent_id, state=AgentState.BUSY)
    token = factories.add_attempt(session, job.id, names, state=AttemptState.RUNNING)
    [view] = active_attempts(session, [token], now=factories.NOW, locks=False).attempts
    failure = Failure(kind=FailureKind.KILLED, message="")
    values = measurement_of(
        view,
        reports_of(session, {token: ()})[token],
        evidence=None,
        failure=failure,
        now=factories.NOW,
    )
    is_default = spec_values(view.spec)[axis.field] == axis.default_value
    step_time_s = 0.1 if is_default else 0.2
    values |= {"status": "ok", "step_time_s": step_time_s}
    session.add(MeasurementRow(**values))
    job.state, job.finished_at, job.attempt_id = JobState.SUCCEEDED, factories.NOW, None


if __name__ == "__main__":
    sys.exit(look(places, sys.argv[1]))

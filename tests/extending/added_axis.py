"""Find an axis that was added to `configuration.axes` wherever it has to be; run in a changed copy.

    python -m tests.extending.added_axis NAME

The axis is one of a strategy's set-up or of the network. It takes its default, which may be none,
and another value: a number 2 in the unit of its name, a choice another of its values. One that is
named is of the strategy `mwms_ring`. Prints where it was found, one place a line; what is not found
is an error.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from flask.testing import FlaskClient
from sqlalchemy.orm import Session

from farm.cells.choice import read_choice
from farm.cells.reading import read_sweep
from farm.cells.result_table import table as command_table
from farm.charts.heat_map import heat_map
from farm.charts.metric_lines import line_panels
from farm.charts.sweep_figures import bars_of
from farm.cli.advice.recommend import recommend as recommend_command
from farm.configuration.axes import AXES_BY_NAME, spec_values
from farm.configuration.axis import Axis, plain_value
from farm.configuration.expansion import expand
from farm.configuration.spec import JobSpec
from farm.configuration.sweep import parse_sweep
from farm.errors import InvalidSpec
from farm.exporting import Form, write_export
from farm.gang.lifecycle import AttemptState, JobState
from farm.importers.table import read_table
from farm.messages.agents import AgentState
from farm.messages.trainer_lines import Failure, FailureKind
from farm.recommend.configuration import Configuration
from farm.recommend.contracts import Objective, Question
from farm.recommend.plans.sweep_file import SweepForm, case
from farm.recommend.prices import Prices
from farm.recommend.service import recommend
from farm.recommend.setup import Setup
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
from farm.text.toml_text import document_text
from farm.values.codec import from_json
from farm.values.fields import Name, OneOf, Word
from tests import document_tables, factories
from tests.extending.added import look
from tests.web.web_client import client_of
from web.job.page_data import compare_with_neighbours
from web.new_sweep.form import fields_of, sweep_of


def places(name: str, engine: sa.Engine) -> Iterator[tuple[str, bool]]:
    """Yield where an axis has to be, and whether it is."""
    client = client_of(engine)
    axis = AXES_BY_NAME[name]
    usual, other = _values(axis)
    written = [_written(axis, value) for value in (usual, other)]
    sweep = {"name": "added", "case": _cases(axis)}
    yield "sweep file", _job_values(axis, sweep) == [usual, other]
    wrong: object = 7 if isinstance(axis.type, Name) else "x"
    refused = {"name": "added", "case": [{**_CASE, name: wrong}]}
    yield "refusal", _refusal(refused) == (f"case[0].{name}", wrong)
    answer: Any = client.post("/api/v1/sweeps", json=refused)
    got = answer.json["detail"].endswith(f"got {wrong!r}")
    refusal = (answer.status_code, answer.json["field"], got)
    yield "refusal of the API", refusal == (422, f"case[0].{name}", True)
    if axis.is_named:
        elsewhere = [{**case, "strategy": "mwms_auto"} for case in _cases(axis)]
        alone = _job_values(axis, {"name": "added", "case": elsewhere})
        yield "other strategies", alone == [plain_value(axis.absent)]
    if axis.is_of_network:
        proxy = {"name": "proxy", "case": [{**_CASE, name: 2, "emulator": "tcp_proxy"}]}
        answer = client.post("/api/v1/sweeps", json=proxy)
        yield "refusal by an emulator", answer.json["field"] == f"case[0].{name}"
        options = {word: one for one in recommend_command.params for word in one.opts}
        yield "option", options[f"--{name.replace('_', '-')}"].default == written[0]
    else:
        beside = {"name": "added", "case": [{**_SCRIPT_CASE, name: written[1]}]}
        yield "refusal beside a script", _refusal(beside) == (f"case[0].{name}", written[1])
    document: Any = client.get("/api/v1/openapi.json").json
    described = document["components"]["schemas"]["SweepCase"]["properties"][name]
    yield "API document", _is_described(axis, described, document)
    yield "TOML", _job_values(axis, tomllib.loads(document_text(sweep))) == [usual, other]
    form = client.get("/sweeps/new").text
    fields = fields_of({"name": "added", "case": [{**_CASE, name: written[1:]}]})
    yield (
        "form with its value",
        fields is not None and sweep_of(fields)["case"] == [_CASE | {name: written[1]}],
    )
    yield "form", all(f'name="{name}"{value}' in form for value in _values_in_form(axis))
    posted = client.post("/api/v1/sweeps", json=sweep)
    yield "POST /api/v1/sweeps", posted.status_code == 201
    with writing(engine) as session:
        jobs = session.scalars(sa.select(JobRow).order_by(JobRow.id)).all()
        yield "job", _in_order(axis, (axis.value_in(job.spec) for job in jobs)) == [usual, other]
        for job in jobs:
            _measure(session, job, axis)
    yield from _of_results(axis, engine, client)
    [line] = [line for line in document_tables.axes() if f"`{name}`" in line]
    yield "guide", axis.explained in line


def _of_results(axis: Axis, engine: sa.Engine, client: FlaskClient) -> Iterator[tuple[str, bool]]:
    name, title = axis.name, axis.title.lower()
    usual, other = _values(axis)
    written = [_written(axis, value) for value in (usual, other)]
    with reading(engine) as session:
        rows = session.scalars(sa.select(MeasurementRow).order_by(MeasurementRow.id)).all()
        yield "measurement", {axis.value_measured(row) for row in rows} == {usual, other}
        lines = read_sweep(session, 1, prices=Prices()).table.measured
        columns, _ = command_table(lines)
        yield "command's table", title in [column.title for column in columns]
        [exported] = list(export_parts(session, 1))
        yield "export", {row[name] for row in exported} == set(written)
        for form in Form:
            file = io.BytesIO()
            write_export(session, 1, form, file)
            found = [row[name] for row in _read_export(form, file.getvalue())]
            expected = [_cell(axis, usual), _cell(axis, other)] if form is Form.CSV else written
            yield f"export as {form.value}", found in (expected, expected[::-1])
        [imported] = read_table(_table(name, axis.address(other))).measurements
        yield "import", imported[axis.field] == other
        wrong = "x" * 1001 if isinstance(axis.type, Name) else "x"
        yield "refusal of an import", _refused_cell(name, wrong) == wrong
        table = read_sweep(session, 1, prices=Prices()).table
        along = {"along": name} if axis.is_number else {}
        choice = read_choice({"x": name, **along}, table)
        drawn = heat_map(table, choice)
        texts = [axis.text(usual), axis.text(other)]
        yield "heat map", drawn is not None and sorted(drawn.columns) == sorted(texts)
        figures = line_panels(table, choice, choice.metric)
        if axis.is_number:
            shown = [(one.x.title, [one.x.write(mark.x) for mark in one.marks]) for one in figures]
            along_it = [axis.text(value) for value in sorted({usual, other} - {None})]
            yield "charts", shown == [(axis.title, along_it)]
        bars = bars_of(table, choice)
        of_bars = [] if bars is None else sorted(one.name for one in bars.series)
        yield "bars", of_bars == sorted([axis.named(usual), axis.named(other)])
        job = job_detail(session, 1).job
        spec = from_json(JobSpec, job.spec)
        near = neighbours_of(session, spec, fingerprint=None)
        compared = compare_with_neighbours(
            spec, near, step_time_s=0.1, throughput_examples_per_s=None
        )
        yield "comparison", [one.axis for one in compared] == [title]
        of_network = {axis.field: other} if axis.is_of_network else {}
        question = Question(global_batch_size=64, **of_network)
        answer = recommend(session, question=question, objective=Objective())
        measured_s = [one.step_time_s for one in answer.options if one.basis == "measured"]
        yield "candidates", 0.2 in measured_s
    for value in {usual, plain_value(axis.absent), other}:
        yield "proposed sweep", _proposed(axis, value) == [value]
    [stored] = [row.id for row in rows if axis.value_measured(row) == other]
    of_one = client.get(f"/data/measurements/{stored}").text
    yield "page of a measurement", f"<dt>{axis.stored}</dt><dd>{other}</dd>" in of_one
    page = client.get("/sweeps/1").text
    of_cells, _, _ = page.partition('id="results"')
    # A condition of the network stands among the others of its cell.
    column, texts = "Also", [axis.named(usual), axis.named(other)]
    if axis.is_of_network:
        column, texts = "Network", ["untouched", f"0 s one way, {axis.phrase_of(other)}"]
    cells = [f'<td data-label="{column}">{text}</td>' for text in texts]
    yield "page's table", [of_cells.count(cell) for cell in cells] == [1, 1]
    sweep: Any = client.get("/api/v1/sweeps/1").json
    answered = [axis.value_in(cell["configuration"]) for cell in sweep["cells"]]
    yield "GET /api/v1/sweeps/{id}", _in_order(axis, answered) == [usual, other]
    listed: Any = client.get(f"/api/v1/measurements?{name}={axis.address(other)}").json
    yield "GET /api/v1/measurements", [one["step_time_s"] for one in listed["items"]] == [0.2]
    with writing(engine) as session:
        import_measurements(session, [imported], origin="mine", source="a test", now=factories.NOW)
        [row] = session.scalars(sa.select(MeasurementRow).where(MeasurementRow.origin == "mine"))
        yield "imported measurement", axis.value_measured(row) == other


def _values(axis: Axis) -> tuple[Any, Any]:
    """Its default and another value, in base units."""
    usual = axis.default_value
    if axis.options:
        return usual, next(value for value in axis.options if value != usual)
    return usual, axis.read("other" if isinstance(axis.type, Name) else 2, axis.name)


def _proposed(axis: Axis, value: Any) -> list[Any]:
    """The values of the jobs that a plan proposes for a configuration with a value."""
    of_network = {axis.field: value} if axis.is_of_network else {}
    setup = Setup.of(None, {} if axis.is_of_network else {axis.field: value})
    names = {**_CASE, **of_network, "setup": setup}
    form = SweepForm(origin="farm", name="p", step_count=5, warmup_step_count=1, cost_unit="s")
    facts = catalogue().strategies[str(_CASE["strategy"])]
    proposed = case(Configuration(**names), form, facts)
    return _job_values(axis, {"name": "proposed", "case": [proposed]})


def _cell(axis: Axis, value: Any) -> str:
    """A value in a file of texts."""
    return "" if value is None else str(_written(axis, value)).lower()


def _written(axis: Axis, value: Any) -> Any:
    """A value as sweep files and exports have it."""
    return value if value is None else axis.value_at(axis.address(value))


def _cases(axis: Axis) -> list[dict[str, object]]:
    """A case of both values; two where the default is none, which no case can name."""
    usual, other = (_written(axis, value) for value in _values(axis))
    return (
        [_CASE, {**_CASE, axis.name: other}]
        if usual is None
        else [{**_CASE, axis.name: [usual, other]}]
    )


def _in_order(axis: Axis, values: Iterable[Any]) -> list[Any]:
    """Its default first."""
    return sorted(values, key=lambda value: value != axis.default_value)


def _job_values(axis: Axis, sweep: Mapping[str, object]) -> list[Any]:
    """The values of the jobs that a sweep file becomes."""
    jobs = expand(parse_sweep(sweep), catalogue()).jobs
    return _in_order(axis, (spec_values(job)[axis.field] for job in jobs))


def _is_described(axis: Axis, described: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    """Whether the API's document admits a list of it, and of a choice each value."""
    one, many = described["anyOf"]
    if isinstance(axis.type, OneOf | Word):
        named = document["components"]["schemas"].get(one.get("$ref", "").rpartition("/")[2], one)
        return bool(named.get("enum") == list(axis.options))
    return bool(one == many["items"])


def _values_in_form(axis: Axis) -> Sequence[str]:
    """What stands behind its name in the form: the values that can be ticked."""
    return [f' value="{axis.address(value)}"' for value in axis.options] or [""]


def _read_export(form: Form, content: bytes) -> list[dict[str, Any]]:
    match form:
        case Form.CSV:
            return list(csv.DictReader(io.StringIO(content.decode())))
        case Form.JSON:
            rows: list[dict[str, Any]] = json.loads(content)
            return rows
    from pyarrow import parquet

    found: list[dict[str, Any]] = parquet.read_table(io.BytesIO(content)).to_pylist()
    return found


def _table(name: str, value: object) -> bytes:
    return f"world_size,global_batch_size,step_time_s,{name}\n2,64,0.1,{value}\n".encode()


def _refused_cell(name: str, wrong: str) -> object:
    """Import a table with an impossible value of it; return what was refused."""
    try:
        read_table(_table(name, wrong))
    except InvalidSpec as error:
        return error.value if name in error.field else error
    return None


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

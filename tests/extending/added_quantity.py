"""Find a quantity that was added to `farm.measuring.quantities` wherever it has to be.

    python -m tests.extending.added_quantity NAME

Run in a copy that has the metric and the quantity of docs/extending.md. The quantity has no column;
it is the mean of what the metric reads, 3 and 5 on two ranks. Prints where it was found; what is
not found is an error.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from farm.cells.choice import read_choice
from farm.cells.json_forms import results_json
from farm.cells.reading import read_sweep
from farm.cells.result_table import table as command_table
from farm.charts.heat_map import heat_map
from farm.charts.metric_lines import line_panels
from farm.errors import InvalidSpec
from farm.importers.table import read_table
from farm.measuring.quantities import QUANTITIES_BY_NAME
from farm.messages.reports import Sample, Samples
from farm.recommend.prices import Prices
from farm.scheduler.outgoing import Outgoing
from farm.store.engine import reading, writing
from farm.store.measurements.export_parts import export_parts
from farm.store.measurements.imports import import_measurements
from farm.store.result_tables import MeasurementRow
from tests import document_tables, factories
from tests.extending.added import look
from tests.stored.two_agents import FACTS, TwoAgents
from tests.web.web_client import client_of
from worker_agent.metrics import METRICS
from worker_agent.metrics.contracts import Watched
from worker_agent.metrics.sampler import create_metrics, read_sample


def places(name: str, engine: sa.Engine) -> Iterator[tuple[str, bool]]:
    """Yield where a quantity has to be, and whether it is."""
    quantity = QUANTITIES_BY_NAME[name]
    title, shown = quantity.title, quantity.write(4.0)
    _measure(engine, name)
    client = client_of(engine)
    with reading(engine) as session:
        rows = session.scalars(sa.select(MeasurementRow)).all()
        yield "measurement", [quantity.value_measured(row) for row in rows] == [4.0, 4.0]
        [exported] = list(export_parts(session, 1))
        yield "export", [row[name] for row in exported] == [4.0, 4.0]
        too_little = quantity.least - 4
        yield "refusal of an import", _refused(name, too_little) == too_little
        table = read_sweep(session, 1, prices=Prices()).table
        lines = table.measured
        columns, texts = command_table(lines)
        at = [column.title for column in columns].index(title.lower())
        yield "command's table", [row[at] for row in texts] == [shown, shown]
        written: Any = [results_json(line)["quantities"] for line in lines]
        yield "command's JSON", [quantities[name] for quantities in written] == [4.0, 4.0]
        choice = read_choice({"metric": name, "x": "global_batch_size"}, table)
        yield "heat map", shown in str(heat_map(table, choice))
        drawn = [
            (one.x.title, one.y.title, [(mark.x, mark.y) for mark in one.marks])
            for one in line_panels(table, choice, choice.metric)
        ]
        yield "charts", drawn == [("Batch", title, [(64.0, 4.0), (128.0, 4.0)])]
    page = client.get("/sweeps/1").text
    of_cells, _, of_jobs = page.partition('id="results"')
    yield "page's table of cells", f'data-label="{title}" class="n">{shown}<' in of_cells
    yield "page's table of jobs", f'data-label="{title}" class="n">{shown}<' in of_jobs
    yield "choice of a metric", f'<option value="{name}"' in page
    job = client.get("/jobs/1").text
    yield "job's page", f"<dt>{title.lower()}</dt><dd>{shown}</dd>" in job
    stored = client.get("/data/measurements/1").text
    yield (
        "page of a measurement",
        f"<dt>{name}</dt><dd>{4 if quantity.is_whole else 4.0}</dd>" in stored,
    )
    answer: Any = client.get("/api/v1/measurements").json
    sweep: Any = client.get("/api/v1/sweeps/1").json
    of_each = [cell["quantities"][name] for cell in sweep["cells"]]
    yield "GET /api/v1/sweeps/{id}", of_each == [4.0, 4.0]
    yield "API", [one["details"]["quantities"][name] for one in answer["items"]] == [4.0, 4.0]
    yield "documents", any(name in line for line in document_tables.measurement_columns())
    yield "import", _imported(engine, name) == [4.0]


def _table(name: str, value: str) -> bytes:
    return f"world_size,global_batch_size,step_time_s,{name}\n2,64,0.1,{value}\n".encode()


def _refused(name: str, value: float) -> object:
    """Read a table with an impossible value of it; return what was refused."""
    try:
        read_table(_table(name, f"{value:g}"))
    except InvalidSpec as error:
        return float(str(error.value)) if name in error.field else error
    return None


def _imported(engine: sa.Engine, name: str) -> list[object]:
    """Import a table with a value of it; return what the store has of it then."""
    read = read_table(_table(name, "4"))
    with writing(engine) as session:
        import_measurements(
            session, read.measurements, origin="mine", source="a test", now=factories.NOW
        )
    with reading(engine) as session:
        rows = session.scalars(sa.select(MeasurementRow).where(MeasurementRow.origin == "mine"))
        return [QUANTITIES_BY_NAME[name].value_measured(row) for row in rows]


def _measure(engine: sa.Engine, name: str) -> None:
    """Let two agents do a sweep of two jobs; on one machine run 3 threads, on the other 5."""
    specs = [
        factories.job_spec(world_size=2, global_batch_size=batch_size) for batch_size in (64, 128)
    ]
    with writing(engine) as session:
        factories.add_sweep(session, *specs)
        for agent_id, facts in FACTS.items():
            factories.add_agent(session, agent_id, facts=facts, lease_boot_id=f"boot of {agent_id}")
    agents = TwoAgents(engine)
    outgoing: list[Outgoing] = []
    for _ in specs:
        token = agents.start(outgoing=outgoing)
        for rank, (agent_id, running) in enumerate((("a", 3), ("b", 5))):
            agents.report(agent_id, token, rank, Samples(samples=_sampled(name, running)))
        agents.end(token)
        outgoing = agents.round()


def _sampled(name: str, running: int) -> tuple[Sample, ...]:
    """What an agent samples on a machine where so many threads run."""
    module: Any = importlib.import_module("worker_agent.metrics.runnable")
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(f"0.10 0.20 0.30 {running}/400 1234\n")
        file.flush()
        module.LOADAVG = Path(file.name)
        metrics = create_metrics(METRICS, Watched(cpus=(0,), interface="lo", pids=()))
        samples = [read_sample(metrics, tick) for tick in (1, 2)]
    return tuple(Sample(tick=one.tick, extra={name: one.extra[name]}) for one in samples)


if __name__ == "__main__":
    sys.exit(look(places, sys.argv[1]))

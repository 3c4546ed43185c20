"""Find what docs/extending.md adds to a list, wherever it has to be; run in a changed copy.

    python -m tests.extending.added_parts KIND NAME

Prints where it was found, one place a line; what is not found is an error.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from farm.configuration.spec import JobSpec
from farm.configuration.sweep import parse_sweep
from farm.embedded.redis import free_port
from farm.errors import InvalidSpec
from farm.messages.reports import Sample, Samples
from farm.messages.trainer_lines import Ready, Started, TrainerResult
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.predictors import PREDICTORS
from farm.registry import catalogue, model_size
from farm.store.engine import reading, writing
from farm.store.tables import JobRow
from farm.studies.publishing import read_runs
from tests import factories
from tests.e2e.live_farm import FAKE_TRAINER
from tests.extending.added import look
from tests.integration.trainer_process import gang, results
from tests.stored.tracked_sweep import NAME as SWEEP_NAME
from tests.stored.tracked_sweep import add_tracked_sweep
from tests.stored.two_agents import FACTS, TwoAgents
from tests.web.web_client import SWEEP, TOKEN, client_of, web_settings
from worker_agent.metrics import METRICS
from worker_agent.metrics.contracts import Watched
from worker_agent.metrics.sampler import Sampler, create_metrics
from worker_agent.network.emulators import create_emulators
from worker_agent.network.emulators.contracts import Site

MLP_PARAMETERS = 64 * 128 + 128 + 128 * 10 + 10  # on digits
_WATCHED = Watched(cpus=(0,), interface="lo", pids=(os.getpid(),))


def _strategy(name: str, engine: sa.Engine) -> Iterator[tuple[str, bool]]:
    yield "catalogue", name in catalogue().strategies
    yield from _is_named("strategy", name, engine)
    _, started, result = _train(factories.job_spec(strategy=name, steps=3, warmup_step_count=1))
    yield "trained job", result.timed_step_count == 3 and started.parameter_count == MLP_PARAMETERS


def _model(name: str, engine: sa.Engine) -> Iterator[tuple[str, bool]]:
    yield "catalogue", name in catalogue().models
    yield from _is_named("model", name, engine)
    size = model_size(name, "digits")
    _, started, result = _train(factories.job_spec(model=name, steps=3, warmup_step_count=1))
    yield "size", size is not None and size.parameter_count == started.parameter_count
    yield "trained job", result.timed_step_count == 3


def _data_set(name: str, engine: sa.Engine) -> Iterator[tuple[str, bool]]:
    facts = catalogue().datasets.get(name)
    yield "catalogue", facts is not None
    yield from _is_named("dataset", name, engine)
    ready, _, result = _train(factories.job_spec(dataset=name, steps=3, warmup_step_count=1))
    yield "trained job", (ready.dataset.name, result.timed_step_count) == (name, 3)


def _is_named(axis: str, name: str, engine: sa.Engine) -> Iterator[tuple[str, bool]]:
    """Yield whether a sweep may have that value of an axis, and a job has it then."""
    client = client_of(engine)
    page = client.get("/sweeps/new").text
    yield "form", f'name="{axis}" value="{name}"' in page
    case = {**_CASE, axis: name}
    posted = client.post("/api/v1/sweeps", json={**SWEEP, "case": [case]})
    with reading(engine) as session:
        specs = [job.spec for job in session.scalars(sa.select(JobRow))]
    yield "POST /api/v1/sweeps", posted.status_code == 201
    yield "job", [spec[axis] for spec in specs] == [name]


_CASE: dict[str, object] = {
    "model": "mlp",
    "dataset": "digits",
    "strategy": "single",
    "world_size": 1,
    "global_batch_size": 32,
}


def _train(job: JobSpec) -> tuple[Ready, Started, TrainerResult]:
    """Train a job of one rank as an agent does, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder, gang(job, Path(folder)) as trainers:
        [trainer] = trainers
        started = trainer.wait_for(Started)
        [result] = results(trainers)
        [ready] = trainer.seen(Ready)
    return ready, started, result


def _metric(name: str, engine: sa.Engine) -> Iterator[tuple[str, bool]]:
    samples = _sampled()
    yield "sample", all(sample.extra.get(name, 0) >= 1 for sample in samples)
    with writing(engine) as session:
        factories.add_sweep(session, factories.job_spec(world_size=2))
        for agent_id, facts in FACTS.items():
            factories.add_agent(session, agent_id, facts=facts, lease_boot_id=f"boot of {agent_id}")
    agents = TwoAgents(engine)
    token = agents.start()
    agents.both_report(token, Samples(samples=samples))
    agents.end(token)
    series: Any = client_of(engine).get("/api/v1/jobs/1/series").json
    values = [
        [sample["extra"][name] for sample in rank["samples"] if name in sample["extra"]]
        for rank in series["samples"]
    ]
    yield "series of the API", values == [[sample.extra[name] for sample in samples]] * 2


def _sampled() -> tuple[Sample, ...]:
    """What an agent's sampler reads in its first seconds."""
    emitted: queue.SimpleQueue[tuple[Sample, ...]] = queue.SimpleQueue()
    metrics = create_metrics(METRICS, _WATCHED)
    sampler = Sampler(metrics, go_s=time.monotonic(), emit=emitted.put)
    sampler.start()
    samples = emitted.get()
    sampler.stop()
    return samples


def _page(name: str, engine: sa.Engine) -> Iterator[tuple[str, bool]]:
    with writing(engine) as session:
        factories.add_job(session)
    answer = client_of(engine).get(f"/{name}")
    yield "page", answer.status_code == 200 and "<li>waiting: 1</li>" in answer.text
    yield "layout", "Content-Security-Policy" in answer.headers and "<nav" in answer.text
    stranger = client_of(engine, FARM_API_TOKEN=TOKEN).get(f"/{name}")
    yield "signing in", "/login" in stranger.headers.get("Location", "")


def _tracker(name: str, engine: sa.Engine) -> Iterator[tuple[str, bool]]:
    jobs = add_tracked_sweep(engine)
    with tempfile.TemporaryDirectory() as folder:
        destination = f"{name} {folder}"
        yield "FARM_TRACKER", web_settings(FARM_TRACKER=destination).tracker == destination
        command = ("export", SWEEP_NAME, "--to", name, "--out", folder)
        url = engine.url.render_as_string(hide_password=False)
        errors = [_farm(*command, FARM_DATABASE_URL=url).stderr for _ in range(2)]
        yield "farm export --to", f"{len(jobs)} jobs sent to {name}\n" in errors[0]
        again = f"0 jobs sent to {name}, {len(jobs)} jobs there already\n"
        yield (
            "sent once",
            again in errors[1] and len(list(Path(folder).iterdir())) == len(jobs),
        )


def _study(name: str, engine: sa.Engine) -> Iterator[tuple[str, bool]]:
    with tempfile.TemporaryDirectory() as folder:
        home, out = Path(folder, "home"), Path(folder, "docs")
        done = _farm(
            *("reproduce", name, "--out", str(out)),
            FARM_HOME=str(home),
            FARM_WEB_PORT=str(free_port()),
            AGENT_TRAINER=FAKE_TRAINER,
        )
        yield "farm reproduce", done.stdout == f"{out / 'studies' / name}.md\n"
        data = (out / "studies" / f"{name}.csv").read_text()
        batches = [run["global_batch_size"] for run in read_runs(data, name=name)]
        yield "runs of its sweep", sorted(set(batches)) == [32, 256]
        page = (out / "studies" / f"{name}.md").read_text()
        yield "page", "| 32 |" in page and "disturbed" in page


def _published_study(name: str, engine: sa.Engine) -> Iterator[tuple[str, bool]]:
    client = client_of(engine)
    yield "page Data", "Training on two nodes" in client.get("/data").text
    url = engine.url.render_as_string(hide_password=False)
    done = _farm("import", name, "--json", FARM_DATABASE_URL=url)
    yield "farm import", json.loads(done.stdout)["added_count"] == 3
    listed: Any = client.get(f"/api/v1/measurements?origin={name}").json
    times_s = sorted(one["step_time_s"] for one in listed["items"])
    yield "measurements", times_s == [0.07, 0.12, 0.131]
    query = f"origin={name}&global_batch_size=64"
    answer: Any = client.get(f"/api/v1/recommendation?{query}").json
    yield "recommendation", answer["recommended"]["world_size"] == 2


def _farm(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the command `farm` of the copy."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FARM_", "AGENT_"))}
    return subprocess.run(
        [sys.executable, "-P", "-m", "farm.cli.main", *arguments],
        env={**kept, **settings},
        capture_output=True,
        text=True,
        check=True,
    )


def _predictor(name: str, engine: sa.Engine) -> Iterator[tuple[str, bool]]:
    two, four = (Configuration(world_size=n, global_batch_size=64) for n in (2, 4))
    seen = [
        Observation(measurement_id=i, configuration=two, step_time_s=time_s)
        for i, time_s in enumerate((0.1, 0.3, 0.2))
    ]
    known, unknown = PREDICTORS[name].fit(seen).predict([two, four])
    yield "estimate", (known.step_time_s, known.unknown_because) == (0.2, None)
    yield "reason", unknown.step_time_s is None and "4 machines" in (unknown.unknown_because or "")


def _emulator(name: str, engine: sa.Engine) -> Iterator[tuple[str, bool]]:
    site = Site(state_dir="", interface="lo", cpus=(), spared_ports=())
    yield "emulators of an agent", name in [emulator.name for emulator in create_emulators(site)]
    case = {**_CASE, "emulator": name, "one_way_delay_ms": 20, "strategy": "mwms_ring"}
    sweep = parse_sweep({**SWEEP, "case": [{**case, "world_size": 2}]})
    yield "sweep file", sweep.cases[0].emulator == name
    try:
        parse_sweep({**SWEEP, "case": [{**case, "emulator": "another"}]})
    except InvalidSpec as error:
        yield "refusal", error.value == "another" and name in error.expected


if __name__ == "__main__":
    _PLACES = {
        "strategy": _strategy,
        "model": _model,
        "data set": _data_set,
        "metric": _metric,
        "page": _page,
        "predictor": _predictor,
        "emulator": _emulator,
        "tracker": _tracker,
        "study": _study,
        "published study": _published_study,
    }
    sys.exit(look(_PLACES[sys.argv[1]], sys.argv[2]))

"""Times an answer of the recommender: fitting, in process, over HTTP, and by a command.

The measurements are made up: two strategies on 1 to 16 machines, several batch sizes and delays, by
a formula with some noise, 400 of them. Each question is another batch size and delay, so that
nearly all that competes is predicted; answers are as the API gives them, JSON included.

- The fit, with the calibration of its intervals: limit 10 s. The baseline is one fit of the
  predictor without that. Also of 1,000 measurements, without a limit.
- A warm answer in process, from an SQLite store: limit 20 ms at the 95th percentile. The baseline
  is the same answer without predictions: only what was measured as asked.
- Over HTTP, from the web server as `farm run web` starts it: limit 50 ms at the 95th percentile.
  The baseline is `/health/live`, which does nothing.
- `farm recommend`, from nothing to its end, where the fit is on disk: limit 2 s, the longest of
  some. The baseline is `farm origins`, which reads the same store and fits nothing.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import sqlalchemy as sa

from benchmarks.figures import BenchmarkFigure, root, run_benchmark, say
from benchmarks.web.web_server import Client, farm_environ, running_web
from farm.errors import FarmError
from farm.recommend.cache.fits import Fits
from farm.recommend.cache.knowledge import (
    FITS_FOLDER,
    RecommenderCache,
    fit_default,
    read_knowledge,
)
from farm.recommend.contracts import Objective, Question
from farm.recommend.predictors import DEFAULT_PREDICTOR, PREDICTORS
from farm.recommend.prices import load_prices
from farm.recommend.service import recommend
from farm.store.engine import make_engine, reading, writing
from farm.store.result_tables import MeasurementRow
from farm.store.schema import upgrade
from farm.text.display import duration, exact_milliseconds

ORIGIN = "made-up"
ROW_COUNT, MANY_ROW_COUNT, QUICK_ROW_COUNT = 400, 1000, 60
QUESTION_COUNT, QUICK_QUESTION_COUNT = 300, 20
COMMAND_COUNT, QUICK_COMMAND_COUNT = 7, 2
FIT_LIMIT_S, WARM_LIMIT_S, HTTP_LIMIT_S, COLD_LIMIT_S = 10.0, 0.020, 0.050, 2.0
_WORLD_SIZES = (1, 2, 3, 4, 6, 8, 12, 16)
_STRATEGIES = ("ring", "server")


def measure(given: argparse.Namespace) -> Sequence[BenchmarkFigure]:
    """Measure all four in one folder."""
    row_count = QUICK_ROW_COUNT if given.quick else ROW_COUNT
    count = QUICK_QUESTION_COUNT if given.quick else QUESTION_COUNT
    commands = QUICK_COMMAND_COUNT if given.quick else COMMAND_COUNT
    figures = []
    with tempfile.TemporaryDirectory(prefix="farm-recommend-") as name:
        home = Path(name)
        engine = make_engine(f"sqlite:///{home}/farm.db")
        upgrade(engine)
        try:
            for rows in (row_count,) if given.quick else (MANY_ROW_COUNT, row_count):
                say(f"a fit of {rows} measurements")
                fill(engine, row_count=rows)
                figures.append(fit_figure(engine, is_limited=rows == row_count))
            say(f"{count} answers in process")
            figures.append(warm_figure(engine, home, question_count=count))
        finally:
            engine.dispose()
        say(f"{count} answers over HTTP")
        figures.append(http_figure(home, question_count=count))
        say(f"{commands} commands")
        figures.append(cold_figure(home, command_count=commands))
    return figures


def fill(engine: sa.Engine, *, row_count: int) -> None:
    """Put measurements into the store, instead of those that are there."""
    rng = random.Random(1)
    pairs = math.ceil(row_count / (len(_WORLD_SIZES) * len(_STRATEGIES)))
    batches = [32 * 2**n for n in range(math.ceil(math.sqrt(pairs)))]
    delays_s = [0.01 * n for n in range(math.ceil(pairs / len(batches)))]
    cells = [
        (strategy, world_size, batch, delay_s)
        for batch in batches
        for delay_s in delays_s
        for strategy in _STRATEGIES
        for world_size in _WORLD_SIZES
    ]
    with writing(engine) as session:
        session.execute(sa.delete(MeasurementRow))
        session.execute(
            sa.insert(MeasurementRow),
            [_row(number, *cell, rng) for number, cell in enumerate(cells[:row_count])],
        )


def _row(
    number: int, strategy: str, world_size: int, batch: int, delay_s: float, rng: random.Random
) -> dict[str, object]:
    per_example_s, round_trips = 1e-4, 2 if strategy == "server" else 2 * math.log2(world_size)
    time_s = 0.002 + per_example_s * batch / world_size
    if world_size > 1:
        time_s += round_trips * 2 * delay_s + 0.004 * world_size**0.5
    return {
        "origin": ORIGIN,
        "source_key": f"row {number}",
        "created_at": dt.datetime.now(dt.UTC),
        "status": "ok",
        "model": "small_cnn",
        "dataset": "mnist",
        "training_pass": "forward_backward",
        "strategy": strategy,
        "instance_type": "t2.large",
        "world_size": world_size,
        "global_batch_size": batch,
        "one_way_delay_s": delay_s if world_size > 1 else 0.0,
        "step_time_s": time_s * rng.lognormvariate(0, 0.03),
        "steps_per_epoch": math.ceil(60_000 / batch),
        "details": {},
    }


def fit_figure(engine: sa.Engine, *, is_limited: bool) -> BenchmarkFigure:
    """Time the fit that answers, and one of the predictor alone."""
    with reading(engine) as session:
        knowledge = read_knowledge(session, origin=ORIGIN, model=None, dataset=None)
    [observed] = knowledge.observed.values()
    predictor = PREDICTORS[DEFAULT_PREDICTOR]
    # The first of all imports its libraries, which is no part of a fit.
    bare_s = min(_seconds(lambda: predictor.fit(observed.observations)) for _ in range(2))
    ours_s = _seconds(lambda: fit_default(observed.observations))
    return BenchmarkFigure(
        name=f"fit of {len(observed.observations)} measurements",
        unit="s",
        ours=ours_s,
        baseline=bare_s,
        against=f"one fit of '{DEFAULT_PREDICTOR}'",
        limit=f"at most {FIT_LIMIT_S:g} s" if is_limited else "",
        reached=ours_s <= FIT_LIMIT_S if is_limited else None,
    )


def warm_figure(engine: sa.Engine, home: Path, *, question_count: int) -> BenchmarkFigure:
    """Time answers of a process that has its model, and without predictions."""
    cache = RecommenderCache(Fits(fit_default, folder=home / FITS_FOLDER))
    prices = load_prices()
    option_counts = []

    def answer(question: Question, remembered: RecommenderCache | None) -> None:
        with reading(engine) as session:
            found = recommend(
                session, question=question, objective=Objective(), prices=prices, cache=remembered
            )
        json.dumps(found.to_json())
        option_counts.append(len(found.options))

    asked_questions = questions(question_count)
    answer(asked_questions[0], cache)
    ours_s = [_seconds(lambda q=q: answer(q, cache)) for q in asked_questions]  # type: ignore[misc] # bound early
    predicted_count = statistics.median(option_counts)
    measured_s = [_seconds(lambda q=q: answer(q, None)) for q in asked_questions]  # type: ignore[misc] # bound early
    p95_s = _p95(ours_s)
    return BenchmarkFigure(
        name="warm answer in process, p95",
        unit="s",
        ours=p95_s,
        baseline=_p95(measured_s),
        against="only what was measured, read anew",
        limit=f"at most {exact_milliseconds(WARM_LIMIT_S)} ms",
        reached=p95_s <= WARM_LIMIT_S,
        note=f"{question_count} questions with {predicted_count:g} options each, median "
        f"{duration(statistics.median(ours_s))}, longest {duration(max(ours_s))}",
    )


def http_figure(home: Path, *, question_count: int) -> BenchmarkFigure:
    """Time requests on one connection to the web server."""
    with running_web(home) as port:
        client = Client(port)
        paths = [
            f"/api/v1/recommendation?origin={ORIGIN}&global_batch_size={q.global_batch_size}"
            f"&one_way_delay_ms={q.one_way_delay_s * 1000:.3f}"
            for q in questions(question_count)
        ]
        client.get(paths[0])
        ours_s = [client.get(path).elapsed_s for path in paths]
        bare_s = [client.get("/health/live").elapsed_s for _ in paths]
        client.close()
    p95_s = _p95(ours_s)
    return BenchmarkFigure(
        name="warm answer over HTTP, p95",
        unit="s",
        ours=p95_s,
        baseline=_p95(bare_s),
        against="/health/live",
        limit=f"at most {exact_milliseconds(HTTP_LIMIT_S)} ms",
        reached=p95_s <= HTTP_LIMIT_S,
        note=f"median {duration(statistics.median(ours_s))}",
    )


def cold_figure(home: Path, *, command_count: int) -> BenchmarkFigure:
    """Time whole commands; the fit is on disk since the answers before."""
    options = ("--origin", ORIGIN, "--global-batch-size", "100", "--one-way-delay-ms", "15")
    ours_s = [_seconds(lambda: _farm(home, "recommend", *options)) for _ in range(command_count)]
    bare_s = [_seconds(lambda: _farm(home, "origins")) for _ in range(command_count)]
    return BenchmarkFigure(
        name="farm recommend, cold",
        unit="s",
        ours=max(ours_s),
        baseline=max(bare_s),
        against="farm origins",
        limit=f"at most {COLD_LIMIT_S:g} s",
        reached=max(ours_s) <= COLD_LIMIT_S,
        note=f"the longest of {command_count}, median {statistics.median(ours_s):.2f} s",
    )


def questions(count: int) -> list[Question]:
    """Return questions between the measured batch sizes and delays."""
    rng = random.Random(2)
    return [
        Question(
            origin=ORIGIN,
            global_batch_size=rng.randrange(33, 500),
            one_way_delay_s=round(rng.uniform(0.001, 0.04), 6),
        )
        for _ in range(count)
    ]


def _farm(home: Path, *arguments: str) -> None:
    command = [sys.executable, "-P", "-m", "farm.cli.main", *arguments]
    done = subprocess.run(
        command, env=farm_environ(home), cwd=root(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise FarmError(f"{' '.join(arguments)}: {done.stderr.strip()}")


def _seconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def _p95(times_s: Sequence[float]) -> float:
    return sorted(times_s)[math.ceil(0.95 * len(times_s)) - 1]


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__, measure))

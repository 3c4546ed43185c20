"""Times pages and API lists of a large farm, alone and with 40 viewers of live pages.

The store is a PostgreSQL with 100 agents, a sweep of 5,000 jobs (2,500 cells, most of them
measured), a job that has trained on eight machines for a day and still does, the published studies,
and 10 million samples of two weeks. The farm goes on while it is looked at: with every second come
a sample of every rank at work, step times and heartbeats, and some change of the sweep; every six
seconds a job ends and its measurement makes what was kept of the old ones stale.

One process serves, as `farm run web` starts it. A client on one connection asks for every page and
every GET of the API in turns. What counts is the time that the server was at work on the request,
waiting for the store and for its own other threads included, as it tells itself with each answer;
beside it stands the client's time from the request to the last byte.

- Pages, and what the API answers: limit 200 ms at the 95th percentile, the slowest of all. The
  baseline is `/health/live`, which does nothing.
- The page and the series of the job of a day, its charts drawn: 300 ms, and at most 2,000 points to
  a line.
- The same again while 40 viewers follow the sweep and that job: each holds a stream of events and
  reads its page again after an event, as browsers do.
- How long viewers wait to be told of a change: 2 s at the 95th percentile. No stream is refused.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import sqlalchemy as sa

from benchmarks.figures import BenchmarkFigure, run_benchmark, say
from benchmarks.large_farm.farm_at_work import FarmAtWork
from benchmarks.large_farm.farm_data import Filled, fill
from benchmarks.large_farm.farm_series import add_series
from benchmarks.large_farm.farm_size import LARGE, SMALL, Size
from benchmarks.server.ingest import postgres_database
from benchmarks.web.addresses import Address, AddressGroup, addresses
from benchmarks.web.viewers import Viewer, Viewers, delays_s
from benchmarks.web.web_server import Client, TimedAnswer, running_web
from farm.errors import FarmError
from farm.statistics import quantile
from farm.store.engine import make_engine, writing
from farm.store.schema import upgrade
from farm.text.display import duration, exact_milliseconds

ROUND_COUNT, QUICK_ROUND_COUNT = 60, 1
WATCHED_S, QUICK_WATCHED_S = 30.0, 10.0  # at the least: changes have to come and to be told
VIEWER_COUNT, QUICK_VIEWER_COUNT = 40, 4
LIMITS_S = {AddressGroup.PAGE: 0.2, AddressGroup.API: 0.2, AddressGroup.CHARTS: 0.3}
MOST_POINTS = 2000
TOLD_LIMIT_S = 2.0
_LIVE = "/health/live"
_READY_S = 180.0  # for the first predictions to be fitted
_NAMES = {
    AddressGroup.PAGE: "pages",
    AddressGroup.API: "API",
    AddressGroup.CHARTS: "charts of a job of a day",
}

Answers = Mapping[str, Sequence[TimedAnswer]]


@dataclass(frozen=True, slots=True)
class Server:
    """What is asked, and the store behind it."""

    port: int
    engine: sa.Engine
    filled: Filled
    addresses: Sequence[Address]


def measure(given: argparse.Namespace) -> list[BenchmarkFigure]:
    """Fill a store, serve it, and ask."""
    size = SMALL if given.quick else LARGE
    rounds = QUICK_ROUND_COUNT if given.quick else ROUND_COUNT
    viewer_count = QUICK_VIEWER_COUNT if given.quick else VIEWER_COUNT
    with serving(size) as server, FarmAtWork(server.engine, server.filled) as at_work:
        client = Client(server.port)
        warm_up(client, server.addresses)
        say(f"{len(server.addresses)} addresses, {rounds} times each")
        alone = ask(client, server.addresses, count=rounds)
        figures = figures_of(alone, server.addresses, "")
        figures.append(points_figure(client, server.addresses))
        say(f"{viewer_count} viewers")
        with Viewers(server.port, viewers_of(server.filled, viewer_count)) as watching:
            until_s = time.monotonic() + (QUICK_WATCHED_S if given.quick else WATCHED_S)
            watched = ask(client, server.addresses, count=rounds)
            time.sleep(max(0.0, until_s - time.monotonic()))
        figures += figures_of(watched, server.addresses, f", {viewer_count} viewers")
        figures += viewer_figures(watching, at_work.changed_at_s)
        client.close()
    return figures


@contextmanager
def serving(size: Size) -> Iterator[Server]:
    """Serve a store of that size from a database of its own."""
    with tempfile.TemporaryDirectory(prefix="farm-pages-") as name, postgres_database() as url:
        engine = make_engine(url)
        try:
            filled = filled_store(engine, size)
            with running_web(Path(name), FARM_DATABASE_URL=url) as port:
                yield Server(port, engine, filled, addresses(engine, filled))
        finally:
            engine.dispose()


def filled_store(engine: sa.Engine, size: Size) -> Filled:
    """Fill an empty database, and leave nothing for its background to do."""
    upgrade(engine)
    begun, now = time.perf_counter(), dt.datetime.now(dt.UTC)
    with writing(engine) as session:
        filled = fill(session, size, now=now)
    say(f"{size.job_count} jobs after {time.perf_counter() - begun:.0f} s")
    add_series(engine, filled.runs, filled.long_run, today=now.date())
    say(f"their series after {time.perf_counter() - begun:.0f} s")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM (ANALYZE)")
        connection.exec_driver_sql("CHECKPOINT")
        count = connection.scalar(sa.text("SELECT count(*) FROM samples"))
    say(f"{count:,} samples, filled in {time.perf_counter() - begun:.0f} s")
    return filled


def warm_up(client: Client, addresses: Sequence[Address]) -> None:
    """Ask everything once, and go on until the first predictions are there."""
    ask(client, addresses, count=1)
    preliminary = [a.path for a in addresses if a.path.startswith("/api/v1/recommendation")]
    deadline = time.monotonic() + _READY_S
    while preliminary and time.monotonic() < deadline:
        time.sleep(1.0)
        preliminary = [p for p in preliminary if json.loads(client.get(p).body)["is_preliminary"]]
    ask(client, addresses, count=1)


def ask(client: Client, addresses: Sequence[Address], *, count: int) -> Answers:
    """Ask for every address in turns; return by path what came of it, without the bodies."""
    answers: dict[str, list[TimedAnswer]] = {
        path: [] for path in (_LIVE, *(a.path for a in addresses))
    }
    for _ in range(count):
        for path, answered in answers.items():
            answered.append(dataclasses.replace(client.get(path), body=b""))
    return answers


def figures_of(answers: Answers, addresses: Sequence[Address], when: str) -> list[BenchmarkFigure]:
    """Return for each group of addresses its slowest one, by the server's time."""
    times_s = {path: [one.server_s for one in answered] for path, answered in answers.items()}
    elapsed_s = {path: [one.elapsed_s for one in answered] for path, answered in answers.items()}
    for address in sorted(addresses, key=lambda a: -_p95(times_s[a.path])):
        taken_s = times_s[address.path]
        say(
            f"{duration(_p95(taken_s)):>8} p95 {duration(statistics.median(taken_s)):>8} p50  "
            f"{duration(max(taken_s)):>8} longest; {duration(_p95(elapsed_s[address.path])):>8}"
            f" p95 at the client  {address.path}"
        )
    figures = []
    for group, limit_s in LIMITS_S.items():
        of_group = [a for a in addresses if a.group is group]
        slowest = max(of_group, key=lambda a: _p95(times_s[a.path]))
        taken_s = times_s[slowest.path]
        figures.append(
            BenchmarkFigure(
                name=f"{_NAMES[group]}{when}, slowest p95",
                unit="s",
                ours=_p95(taken_s),
                baseline=_p95(times_s[_LIVE]),
                against=_LIVE,
                limit=f"at most {exact_milliseconds(limit_s)} ms",
                reached=_p95(taken_s) <= limit_s,
                note=f"{slowest.route} of {len(of_group)}, {len(taken_s)} times each; its median "
                f"{duration(statistics.median(taken_s))}, median of all "
                f"{duration(_median_of_all(of_group, times_s))}; slowest p95 to the client's "
                f"last byte {duration(max(_p95(elapsed_s[a.path]) for a in of_group))}",
            )
        )
    return figures


def points_figure(client: Client, addresses: Sequence[Address]) -> BenchmarkFigure:
    """Count the points of the longest line that a chart of the long job has."""
    bodies = [client.get(a.path).body.decode() for a in addresses if a.group is AddressGroup.CHARTS]
    longest = max(longest_line(body) for body in bodies)
    return BenchmarkFigure(
        name="points of a line, at most",
        unit="points",
        ours=longest,
        baseline=None,
        against="none",
        limit=f"at most {MOST_POINTS:,}",
        reached=0 < longest <= MOST_POINTS,
        note=f"of {len(bodies)} pages and answers of a day of samples",
    )


def longest_line(body: str) -> int:
    """Return the number of points of the longest line on a page, or in an answer of the API."""
    if body.startswith("{"):
        series = json.loads(body)
        lines = [rank["samples"] for rank in series["samples"]]
        return max(len(line) for line in (*lines, series["steps"]))
    drawn = []
    for text in re.findall(r'<script type="application/json">(.*?)</script>', body, re.DOTALL):
        drawn += [len(trace.get("x", ())) for trace in json.loads(text)["data"]]
    return max(drawn, default=0)


def viewers_of(filled: Filled, count: int) -> list[Viewer]:
    """Let half of them follow the sweep, and half the job of a day."""
    pages = (("sweep", filled.sweep_id), ("job", filled.long_job_id))
    return [
        Viewer(page=f"/{kind}s/{row}", events=f"/api/v1/events?{urlencode({kind: row})}")
        for kind, row in (pages[n % 2] for n in range(count))
    ]


def viewer_figures(watching: Viewers, changed_at_s: Sequence[float]) -> list[BenchmarkFigure]:
    """Return how soon viewers were told, and how many were turned away."""
    of_sweep = [viewer for viewer in watching.viewers if "sweep=" in viewer.events]
    delays = delays_s(of_sweep, changed_at_s)
    if not delays:
        raise FarmError("no viewer was told of any change")
    looks_s = [time_s for viewer in watching.viewers for time_s in viewer.looks_s]
    count = len(watching.viewers)
    return [
        BenchmarkFigure(
            name="told of a change, p95",
            unit="s",
            ours=_p95(delays),
            baseline=None,
            against="none",
            limit=f"at most {TOLD_LIMIT_S:g} s",
            reached=_p95(delays) <= TOLD_LIMIT_S,
            note=f"median {statistics.median(delays):.2f} s; {len(looks_s)} pages read by viewers "
            f"after it, at the median in {duration(statistics.median(looks_s))}",
        ),
        BenchmarkFigure(
            name="viewers with a stream",
            unit="viewers",
            ours=count - watching.refused_count,
            baseline=None,
            against="none",
            limit=f"{count}",
            reached=watching.refused_count == 0,
        ),
    ]


def _p95(times_s: Sequence[float]) -> float:
    return quantile(sorted(times_s), 0.95)


def _median_of_all(addresses: Sequence[Address], times_s: Mapping[str, Sequence[float]]) -> float:
    return statistics.median(time_s for a in addresses for time_s in times_s[a.path])


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__, measure))

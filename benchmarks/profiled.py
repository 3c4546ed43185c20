"""The hot paths that `benchmarks.profiles` profiles, each ready to run repeatedly."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from benchmarks.large_farm.farm_data import Filled, fill
from benchmarks.large_farm.farm_size import LARGE
from benchmarks.server.ingest import postgres_database
from benchmarks.server.messages import AGENT_COUNT, batch_of
from benchmarks.server.rows import add_running_attempts
from benchmarks.web import recommend as recommending
from farm.broker.sending import Sender
from farm.collector.ingest import read_batch, take_batches
from farm.embedded.redis import start_redis
from farm.gang.lifecycle import AttemptState
from farm.gang.rendezvous import AttemptEnd
from farm.messages.agents import AgentFacts
from farm.recommend.cache.fits import Fits
from farm.recommend.cache.knowledge import FITS_FOLDER, RecommenderCache, fit_default
from farm.recommend.contracts import Objective
from farm.recommend.service import recommend
from farm.scheduler.outgoing import Rules
from farm.scheduler.placing import PlacingState
from farm.settings.server import load_settings
from farm.store.engine import make_engine, reading, writing
from farm.store.gangs.decisions import end_attempts
from farm.store.queue.waiting_queue import WaitingQueue
from farm.store.schema import upgrade
from farm.store.tables import AgentRow, AttemptRow
from farm.submission import plan, submit
from tests.factories import add_agent, agent_facts
from tests.stored.scheduler_round import run_round
from web.app import create_app

ROUND_AGENT_COUNT, ROUND_JOB_COUNT = 1000, 10_000
_ENDED_A_ROUND = 3
_LEASE = dt.timedelta(hours=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """`prepare` brings about what `run` meets, and is not profiled."""

    run: Callable[[], object]
    prepare: Callable[[], object] = lambda: None


@contextmanager
def _store() -> Iterator[sa.Engine]:
    with postgres_database() as url:
        engine = make_engine(url)
        try:
            upgrade(engine)
            yield engine
        finally:
            engine.dispose()


@contextmanager
def collector(folder: Path) -> Iterator[Turn]:
    """Store what fifty agents send in three seconds, and answer it."""
    with _store() as engine, start_redis(folder / "redis") as broker:
        with writing(engine) as session:
            series = add_running_attempts(session, agent_count=AGENT_COUNT)
        sender, rng = Sender(broker.url), random.Random(1)
        envelopes: list[object] = []
        numbers = itertools.count()

        def prepare() -> None:
            number = next(numbers)
            envelopes[:] = [batch_of(one, number, rng) for one in series]

        def take() -> None:
            batches = [read_batch(envelope) for envelope in envelopes]
            taken = take_batches(engine, batches, now=dt.datetime.now(dt.UTC))
            sender.send([(agent_id, confirm) for agent_id, confirm, _ in taken])

        yield Turn(prepare=prepare, run=take)
        sender.close()


@contextmanager
def scheduler_round(folder: Path) -> Iterator[Turn]:
    """Place jobs on the agents of a few gangs that have ended; all others are at work."""
    with _store() as engine:
        _fill_farm(engine)
        now = dt.datetime.now(dt.UTC)
        rules, rng = Rules(lease=_LEASE, reserve_after_s=60.0), random.Random(1)
        known = PlacingState(queue=WaitingQueue(epoch=now))

        def end_some() -> None:
            with writing(engine) as session:
                running = AttemptRow.ended_at.is_(None)
                tokens = session.scalars(sa.select(AttemptRow.id).where(running)).all()
                some = rng.sample(list(tokens), min(_ENDED_A_ROUND, len(tokens)))
                end_attempts(
                    session,
                    dict.fromkeys(some, AttemptEnd(state=AttemptState.FAILED)),
                    now=dt.datetime.now(dt.UTC),
                    policy=rules.policy,
                )
                session.execute(sa.update(AgentRow).values(unclean_token=None))
                at_work = sa.update(AttemptRow).where(running)
                session.execute(at_work.values(state=AttemptState.RUNNING))

        def run() -> None:
            run_round(engine, now=dt.datetime.now(dt.UTC), rules=rules, state=known)

        yield Turn(prepare=end_some, run=run)


def _fill_farm(engine: sa.Engine) -> None:
    cells = [
        {
            **{"model": "mlp", "dataset": "digits", "global_batch_size": [32, 64, 128, 256]},
            **{"strategy": "single" if n == 1 else "mwms_ring", "world_size": n, "steps": 300},
        }
        for n in (1, 2, 4, 8)
    ]
    sweep = {"name": "queue", "repetitions": ROUND_JOB_COUNT // 16, "case": cells}
    now = dt.datetime.now(dt.UTC)
    with writing(engine) as session:
        submit(session, plan(sweep), now=now)
        for number in range(ROUND_AGENT_COUNT):
            facts: AgentFacts = agent_facts(machine_id=f"machine-{number}")
            add_agent(session, f"agent-{number}", facts=facts, heartbeat_at=now)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")


def _page(address: Callable[[Filled], str]) -> Callable[[Path], AbstractContextManager[Turn]]:
    @contextmanager
    def page(folder: Path) -> Iterator[Turn]:
        with _store() as engine:
            with writing(engine) as session:
                filled = fill(session, LARGE, now=dt.datetime.now(dt.UTC))
            url = engine.url.render_as_string(hide_password=False)
            settings = load_settings({"FARM_HOME": str(folder), "FARM_DATABASE_URL": url})
            client = create_app(settings, engine=engine).test_client()
            yield Turn(run=lambda: client.get(address(filled)))

    return page


@contextmanager
def recommendation(folder: Path) -> Iterator[Turn]:
    """Answer questions of a store whose fit is there, another one each time."""
    engine = make_engine(f"sqlite:///{folder}/farm.db")
    upgrade(engine)
    recommending.fill(engine, row_count=recommending.ROW_COUNT)
    cache = RecommenderCache(Fits(fit_default, folder=folder / FITS_FOLDER))
    questions = itertools.cycle(recommending.questions(50))

    def answer() -> None:
        with reading(engine) as session:
            recommend(session, question=next(questions), objective=Objective(), cache=cache)

    yield Turn(run=answer)
    engine.dispose()


PATHS: dict[str, Callable[[Path], AbstractContextManager[Turn]]] = {
    "collector": collector,
    "round": scheduler_round,
    "sweep": _page(lambda filled: f"/sweeps/{filled.sweep_id}"),
    "job": _page(lambda filled: f"/jobs/{filled.measured_job_id}"),
    "recommendation": recommendation,
}

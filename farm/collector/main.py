"""The collector process: a Celery worker that takes reports and heartbeats of agents.

Heartbeats have a queue of their own. The transport alternates between it and the reports, so leases
do not expire behind a backlog of samples. Several collectors may run at once.
"""

from __future__ import annotations

import datetime as dt
import functools
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from celery.bootsteps import StartStopStep
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, IntegrityError

from farm.broker.celery_app import (
    HEARTBEAT_TASK,
    HEARTBEATS_QUEUE,
    REPORTS_QUEUE,
    REPORTS_TASK,
    make_app,
    run_worker,
)
from farm.broker.claim import Claim
from farm.broker.health_records import COLLECTOR, HealthReporter
from farm.broker.sending import Sender
from farm.broker.task_message import read_carried
from farm.broker.wake_up import WakeUp
from farm.collector.agent_queues import AgentQueues
from farm.collector.batch_reader import ArrivalRate, BatchReader
from farm.collector.ingest import (
    ElapsedTimes,
    MessageFilter,
    read_batch,
    read_beat,
    row_count,
    take_batches,
    take_beats,
)
from farm.collector.quotas import Quotas, make_quotas
from farm.errors import Unreachable
from farm.keys.keyring import Keyring
from farm.keys.signing_key import signing_key
from farm.messages.agents import Heartbeat
from farm.messages.commands import Command
from farm.messages.reports import ReportBatch
from farm.processes.garbage import collect_rarely
from farm.processes.service_manager import ServiceManager
from farm.settings.server import Settings
from farm.store.engine import TRUSTED_S, make_engine, reading
from farm.store.schema import await_schema
from farm.store.sweeps.bundles import bundle_piece

logger = logging.getLogger(__name__)

_Message = TypeVar("_Message", ReportBatch, Heartbeat)
# A store that is locked by another makes each message wait for seconds; the rest comes again.
_PATIENCE_S = 10.0
# Taken at once while most of what comes is held back.
_MORE_PORTIONS = 50
_TURN_S = 5.0
# Of messages for an agent: the confirmation of its beat, and one of its reports.
_MOST_WAITING = 2
# A worker that is well turns every few seconds, unless it waits for a lock of the database.
_TURNS_WITHIN_S = 60.0


def run(settings: Settings) -> None:
    """Collect until SIGTERM or SIGINT; the present message is finished first.

    Raises:
        InvalidSpec: the broker is beyond this machine, and there is no key to sign with.
        OtherFarm: broker or database belong to another farm.
        Unreachable: the database refuses the account, or has another schema. A database or a broker
            that is away is waited for instead.
    """
    manager = ServiceManager(os.environ)
    farm_key = signing_key(settings)
    engine = make_engine(settings.database_url, trusted_s=TRUSTED_S)
    await_schema(engine, waits=manager.sleep)
    app = make_app(settings.broker_url)
    collect_rarely()
    turns = WorkerTurns(manager)
    turns.watch(app)
    claim = Claim(engine, settings.broker_url)
    health = HealthReporter(
        COLLECTOR,
        settings.broker_url,
        shown=turns.shown,
        is_ours=claim.make(),
        claim=claim.renew,
    )
    keyring = None if farm_key is None else Keyring(engine, farm_key)
    quotas = make_quotas(
        are_names_proven=keyring is not None, collectors=lambda: health.process_count
    )
    register_tasks(app, engine, settings, keyring=keyring, health=health, quotas=quotas)
    own = None
    if keyring is not None:
        own = AgentQueues(
            settings.broker_url, agents=keyring.agent_ids, quotas=quotas, health=health
        )
        own.start()
    health.start()
    logger.info("collector started")
    run_worker(app, [HEARTBEATS_QUEUE, REPORTS_QUEUE], name="collector")
    if own is not None:
        own.stop()
    health.stop()
    claim.release()
    engine.dispose()
    logger.info("collector stopped")


def register_tasks(
    app: Any,
    engine: Engine,
    settings: Settings,
    *,
    keyring: Keyring | None = None,
    health: HealthReporter | None = None,
    quotas: Mapping[str, Quotas] | None = None,
) -> None:
    """Register the two Celery tasks that store the agents' messages.

    With a `keyring` unsigned messages are refused. Failures go to `health`, if given.
    `quotas`: by task, what each account may send.
    """
    reporter = health or HealthReporter(COLLECTOR, settings.broker_url)
    wake = WakeUp(settings.broker_url, keeps_connections=True)
    lease = dt.timedelta(seconds=settings.lease_s)
    sender = Sender(settings.broker_url)
    answer = functools.partial(_answer, sender, keyring)
    arrivals = ArrivalRate()
    elapsed = ElapsedTimes()
    if quotas is None:
        quotas = make_quotas(are_names_proven=keyring is not None)
    message_filter = MessageFilter(keyring=keyring, health=reporter, answer=answer, quotas=quotas)

    def reports(batches: Sequence[ReportBatch]) -> bool:
        taken = take_batches(engine, batches, now=dt.datetime.now(dt.UTC), elapsed=elapsed)
        if any(stored.moves_attempts for _, _, stored in taken):
            wake.send()
        # Copies of a batch have one answer.
        answer(list(dict.fromkeys((agent_id, confirm) for agent_id, confirm, _ in taken)))
        return any(stored.admitted_count + stored.late_count for _, _, stored in taken)

    def heartbeats(beats: Sequence[Heartbeat]) -> bool:
        taken = take_beats(engine, beats, now=dt.datetime.now(dt.UTC), lease=lease)
        if any(effect.is_newly_free for _, _, effect in taken):
            wake.send()
        answer([(agent_id, confirmed) for agent_id, confirmed, _ in taken])
        answer(_wanted_pieces(engine, sender, beats))
        return not all(effect.is_stale for _, _, effect in taken)

    def reader(task: str, queue: str) -> BatchReader:
        return BatchReader(settings.broker_url, queue=queue, task=task, arrivals=arrivals)

    accept = message_filter.accept
    _register(
        app,
        reader(REPORTS_TASK, REPORTS_QUEUE),
        functools.partial(accept, REPORTS_TASK, read=read_batch, row_count=row_count),
        functools.partial(_store, handle=reports, health=reporter),
    )
    _register(
        app,
        reader(HEARTBEAT_TASK, HEARTBEATS_QUEUE),
        functools.partial(accept, HEARTBEAT_TASK, read=read_beat),
        functools.partial(_store, handle=heartbeats, health=reporter),
    )


def _register(
    app: Any,
    reader: BatchReader,
    accept: Callable[[Sequence[object]], list[_Message]],
    store: Callable[[Sequence[_Message]], None],
) -> None:
    """Register the Celery task of a queue, which stores acceptable messages."""

    def take(carried: object) -> None:
        try:
            envelope = read_carried(carried)
        except ValueError as error:
            logger.warning("a message from somebody else was dropped: %s", error)
            return
        with reader.around(envelope) as envelopes:
            messages = accept(envelopes)
            # A flood that is held back must not keep the others behind it waiting.
            for _ in range(_MORE_PORTIONS):
                if 2 * len(messages) >= len(envelopes):
                    break
                envelopes = reader.more()
                messages += accept(envelopes)
                if not envelopes:
                    break
            store(messages)

    app.task(name=reader.task, shared=False)(take)


class WorkerTurns:
    """Notifies systemd while the worker's loop runs, or while it waits for the broker.

    While it connects, which may take minutes, Celery's worker does nothing else, and restarting it
    would not bring the broker back.
    """

    def __init__(self, manager: ServiceManager, *, within_s: float = _TURNS_WITHIN_S) -> None:
        self._manager = manager
        self._within_s = within_s
        self._excused_s = time.monotonic()

    def watch(self, app: Any) -> None:
        """Make the worker of a Celery app report its turns, between messages."""
        turns = self

        class Step(StartStopStep):  # type: ignore[misc] # Celery has no types
            """A step of Celery's consumer, which is started again with each connection."""

            requires = ("celery.worker.consumer:Tasks",)

            def start(self, parent: Any) -> None:
                parent.timer.call_repeatedly(_TURN_S, turns.note_turn)

            def stop(self, parent: Any) -> None:
                """Do nothing: Celery clears the timer with the connection."""

        app.steps["consumer"].add(Step)

    def note_turn(self) -> None:
        """Record a turn of the worker's loop."""
        self._excused_s = time.monotonic()

    def shown(self, is_seen: bool) -> None:
        """Note whether the broker answers. Called by the thread of the health reporter."""
        now = time.monotonic()
        if not is_seen:
            self._excused_s = now
        if now - self._excused_s <= self._within_s:
            self._manager.notify_watchdog()


def _answer(
    sender: Sender, keyring: Keyring | None, answers: Sequence[tuple[str, Command]]
) -> None:
    signer = keyring.signed if keyring is not None else None
    try:
        sender.send(answers, signer=signer)
    except Unreachable as error:
        # Agents send again what is not confirmed, and the store passes over what it has.
        logger.warning("%d confirmations not sent: %s", len(answers), error)


def _wanted_pieces(
    engine: Engine, sender: Sender, beats: Sequence[Heartbeat]
) -> list[tuple[str, Command]]:
    """Return the pieces of bundles that agents have requested.

    An agent that has not read its last piece gets none, so at most one waits in the broker.
    """
    wanted = {beat.agent_id: beat.wanted for beat in beats if beat.wanted is not None}
    pieces: list[tuple[str, Command]] = []
    try:
        for agent_id, piece in wanted.items():
            if sender.waiting_count(agent_id) <= _MOST_WAITING:
                with reading(engine) as session:
                    pieces.append((agent_id, bundle_piece(session, piece)))
    except Unreachable as error:  # they ask again
        logger.warning("pieces of bundles not sent: %s", error)
    return pieces


def _store(
    messages: Sequence[_Message],
    handle: Callable[[Sequence[_Message]], bool],
    health: HealthReporter,
) -> None:
    """Store messages together or, if that fails, one by one.

    `handle` returns whether it has stored anything: answering stale messages proves nothing.
    """
    if len(messages) > 1:
        try:
            if handle(messages):
                health.worked()
        except Unreachable as error:
            # Each of them would wait as long again.
            _not_stored(error, health, messages)
            return
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            logger.info("%d messages are taken one by one: %s", len(messages), reason)
        else:
            return
    begun_s = time.monotonic()
    for place, message in enumerate(messages):
        if time.monotonic() - begun_s > _PATIENCE_S:
            logger.warning("%d messages left to be sent again", len(messages) - place)
            break
        _store_one(message, handle, health)


def _store_one(
    message: _Message, handle: Callable[[Sequence[_Message]], bool], health: HealthReporter
) -> None:
    """Store one message; a failure does not stop the collector. Its agent sends it again."""
    try:
        if handle([message]):
            health.worked()
    except IntegrityError as error:
        # Two collectors met on a new row; the agent's next try finds it.
        reason = " ".join(str(error).split())[:200]
        logger.info("message met another one: %s", reason, extra=_sender(message))
    except (DBAPIError, Unreachable) as error:
        _not_stored(error, health, [message])
    except Exception as error:
        logger.exception("message not stored", extra=_sender(message))
        health.failed(repr(error))


def _not_stored(error: Exception, health: HealthReporter, messages: Sequence[object]) -> None:
    reason = " ".join(str(error).split())[:300]
    ids = _sender(messages[0]) if len(messages) == 1 else {}
    logger.warning("%d messages not stored: %s", len(messages), reason, extra=ids)
    health.failed(reason)


def _sender(message: object) -> dict[str, object]:
    """Return the sender of a message for the log, and the rank, if there is only one.

    It reads all reports of a batch, so it is called only after an error.
    """
    assert isinstance(message, ReportBatch | Heartbeat)
    ids: dict[str, object] = {"agent_id": message.agent_id}
    reports = message.reports if isinstance(message, ReportBatch) else ()
    ranks = {(report.token, report.rank) for report in reports}
    if len(ranks) != 1:
        return ids
    [(token, rank)] = ranks
    return {**ids, "attempt_id": token, "rank": rank}

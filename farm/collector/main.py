"""The collector's process: a Celery worker on the reports and the heartbeats.

Heartbeats have a queue of their own, which the transport serves in turn with the reports, so a
backlog of samples cannot kill leases. Several collectors may run at once.
"""

from __future__ import annotations

import datetime as dt
import functools
import gc
import logging
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, IntegrityError

from farm import __version__
from farm.collector.intake import take_heartbeat, take_reports
from farm.config import Settings
from farm.core.commands import BeatConfirmed, Command
from farm.core.messages import WIRE_VERSION, Stranger, stranger_in
from farm.core.signing import claimed_agent
from farm.errors import InvalidSpec, NotFound, Unreachable
from farm.keyring import Keyring
from farm.life_signs import COLLECTOR, SignOfLife
from farm.refusals import Refusals
from farm.signing_key import signing_key
from farm.store.engine import make_engine
from farm.store.schema import check_schema
from farm.wire import (
    HEARTBEAT_TASK,
    HEARTBEATS_QUEUE,
    REPORTS_QUEUE,
    REPORTS_TASK,
    Wake,
    make_app,
    run_worker,
    send_command,
)

logger = logging.getLogger(__name__)

_OBJECTS_BETWEEN_COLLECTIONS = 100_000


def run(settings: Settings) -> None:
    """Collect until SIGTERM or SIGINT; the message in hand is finished first.

    Raises:
        InvalidSpec: the broker is beyond this machine, and there is no key to sign with.
        Unreachable: the database does not answer or has another schema. A broker that is away is
            waited for instead.
    """
    farm_key = signing_key(settings)
    engine = make_engine(settings.database_url)
    check_schema(engine)
    app = make_app(settings.broker_url, owner="collector")
    _spare_the_garbage_collector()
    life = SignOfLife(COLLECTOR, settings.broker_url)
    keyring = None if farm_key is None else Keyring(engine, farm_key)
    register_tasks(app, engine, settings, keyring=keyring, life=life)
    life.start()
    logger.info("collector started")
    run_worker(app, [HEARTBEATS_QUEUE, REPORTS_QUEUE], name="collector")
    life.stop()
    engine.dispose()
    logger.info("collector stopped")


def _spare_the_garbage_collector() -> None:
    """Look for cycles rarely: thousands of objects come with a batch, and all die with it.

    Reference counts free them at once. Looking through them all the same, every 700 of them, was a
    quarter of what a batch costs.
    """
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 10, 10)


def register_tasks(
    app: Any,
    engine: Engine,
    settings: Settings,
    *,
    keyring: Keyring | None = None,
    life: SignOfLife | None = None,
) -> None:
    """Give the Celery app the two tasks by which agents reach the store.

    With a `keyring` nothing counts that is not signed. `life`, if given, learns how that goes.
    """
    life = life or SignOfLife(COLLECTOR, settings.broker_url)
    wake = Wake(settings.broker_url)
    lease = dt.timedelta(seconds=settings.lease_s)
    answer = functools.partial(_answer, app, keyring)

    def reports(envelope: object) -> bool:
        agent_id, confirm, stored = take_reports(engine, envelope, now=dt.datetime.now(dt.UTC))
        if stored.moves_attempts:
            wake.ring()
        answer(agent_id, confirm)
        return stored.admitted_count + stored.late_count > 0

    def heartbeat(envelope: object) -> bool:
        now = dt.datetime.now(dt.UTC)
        agent_id, confirmed, effect = take_heartbeat(engine, envelope, now=now, lease=lease)
        if effect.is_newly_free:
            wake.ring()
        answer(agent_id, confirmed)
        return not effect.is_stale

    refusals = Refusals()
    for name, handle in ((REPORTS_TASK, reports), (HEARTBEAT_TASK, heartbeat)):
        opened = handle if keyring is None else _opening(keyring, name, handle)
        app.task(name=name, shared=False)(_guarded(opened, answer, life, refusals))


def _opening(
    keyring: Keyring, task: str, handle: Callable[[object], bool]
) -> Callable[[object], bool]:
    """Let `handle` see nothing but what its sender has signed."""

    def opened(envelope: object) -> bool:
        return handle(keyring.opened(task, envelope))

    return opened


_Answer = Callable[[str, Command], None]


def _answer(app: Any, keyring: Keyring | None, agent_id: str, command: Command) -> None:
    signer = keyring.signed if keyring is not None else None
    try:
        send_command(app, agent_id, command, signer=signer)
    except (NotFound, Unreachable) as error:
        # The agent sends again what is not confirmed, and the store passes over what it has.
        logger.warning("confirmation not sent: %s", error, extra={"agent_id": agent_id})


def _guarded(
    handle: Callable[[object], bool], answer: _Answer, life: SignOfLife, refusals: Refusals
) -> Callable[[object], None]:
    """Let no message stop the collector. What was not confirmed is sent again by its agent.

    `handle` says whether it has stored anything: to answer what is stale proves nothing.
    """

    def task(envelope: object) -> None:
        stranger = stranger_in(envelope)
        if stranger is not None:
            _refuse(answer, stranger, life)
            return
        try:
            if handle(envelope):
                life.worked()
        except InvalidSpec as error:
            refusals.add(claimed_agent(envelope) or "unnamed", str(error))
        except IntegrityError as error:
            # Two collectors met on a new row; the agent's next try finds it.
            reason = " ".join(str(error).split())[:200]
            logger.info("message met another one: %s", reason, extra=_sender(envelope))
        except (DBAPIError, Unreachable) as error:
            reason = " ".join(str(error).split())[:300]
            logger.warning("message not stored: %s", reason, extra=_sender(envelope))
            life.failed(reason)
        except Exception as error:
            logger.exception("message not stored", extra=_sender(envelope))
            life.failed(repr(error))

    return task


def _refuse(answer: _Answer, stranger: Stranger, life: SignOfLife) -> None:
    """Say in our own log that an agent speaks another version, and let it say so in its own.

    It cannot read what we answer, and that is what it will log: every version looks at the number
    first, and names the one that it expected.
    """
    if life.met(stranger):
        logger.warning(
            "agent speaks wire version %d, and this server %d: install this server's benchfarm %s "
            "there; nothing of it is taken until then",
            stranger.version,
            WIRE_VERSION,
            __version__,
            extra={"agent_id": stranger.agent_id},
        )
        answer(stranger.agent_id, BeatConfirmed(boot_id="", counter=0, server_time_s=0.0))


def _sender(envelope: object) -> dict[str, object]:
    """Name the sender of a message that may be anything, and the rank, if it is all of one.

    What is signed is read only once its signature holds, and names no rank before. All reports of a
    batch are looked at, so only where something went wrong.
    """
    agent_id = claimed_agent(envelope)
    ids: dict[str, object] = {} if agent_id is None else {"agent_id": agent_id}
    message = envelope.get("message") if isinstance(envelope, dict) else None
    reports = message.get("reports") if isinstance(message, dict) else None
    ranks = {
        (report["token"], report["rank"])
        for report in (reports if isinstance(reports, list) else [])
        if isinstance(report, dict)
        and all(type(report.get(name)) is int for name in ("token", "rank"))
    }
    if len(ranks) != 1:
        return ids
    [(token, rank)] = ranks
    return {**ids, "attempt_id": token, "rank": rank}

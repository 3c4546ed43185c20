"""The scheduler's process: a round whenever somebody rings, and at least once a second.

Several schedulers may run at once; what one of them has locked, the others pass over.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import signal
import threading
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from farm.config import Settings
from farm.core.barriers import Limits
from farm.core.commands import Peers
from farm.core.noise import NoiseLimits, NoisePolicy
from farm.core.pace import Pace
from farm.core.retries import RetryPolicy
from farm.errors import FarmError, Unreachable
from farm.garbage import collect_rarely
from farm.keyring import Keyring
from farm.life_signs import SCHEDULER, SignOfLife
from farm.scheduler.housekeeping import housekeeping
from farm.scheduler.lengths import JobLengths
from farm.scheduler.outgoing import Outgoing, Rules
from farm.scheduler.placing import LastLook, Recollection, place_jobs
from farm.scheduler.rounds import lead_attempts
from farm.service_manager import ServiceManager
from farm.signing_key import signing_key
from farm.store.engine import make_engine
from farm.store.schema import check_schema
from farm.store.waiting_queue import WaitingQueue
from farm.wake import Wake
from farm.wire import Signer, make_app, send_commands

logger = logging.getLogger(__name__)

# The longest time between two rounds. Everything urgent rings; this is for what only time brings:
# leases that run out, limits that are passed, commands that were lost.
_ROUND_EVERY_S = 1.0


def rules_of(settings: Settings) -> Rules:
    """Return the scheduling rules that the settings ask for."""
    return Rules(
        lease=dt.timedelta(seconds=settings.lease_s),
        reserve_after_s=settings.reserve_after_s,
        limits=Limits(
            prepare_s=settings.prepare_timeout_s,
            start_s=settings.start_timeout_s,
            noise=NoiseLimits(policy=settings.noise_policy or NoisePolicy.VOID),
        ),
        policy=RetryPolicy(max_attempts=settings.max_attempts, wait_s=settings.retry_wait_s),
    )


def run(settings: Settings) -> None:
    """Schedule until SIGTERM or SIGINT.

    Raises:
        InvalidSpec: the broker is beyond this machine, and there is no key to sign with.
        Unreachable: the database does not answer or has another schema. A broker that is away is
            waited for instead.
    """
    manager = ServiceManager(os.environ)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    farm_key = signing_key(settings)
    engine = make_engine(settings.database_url)
    check_schema(engine)
    app = make_app(settings.broker_url, owner="scheduler")
    wake = Wake(settings.broker_url, keeps_connections=True)
    rules = rules_of(settings)
    signer = None if farm_key is None else Keyring(engine, farm_key).signed
    lengths = JobLengths(engine, home=settings.home)
    beside = (housekeeping(engine), lengths.thread())
    for thread in beside:
        thread.start()
    last_starts: dict[int, dt.datetime] = {}
    queue, last_look = WaitingQueue(epoch=dt.datetime.now(dt.UTC)), LastLook()
    pace = Pace()
    life = SignOfLife(SCHEDULER, settings.broker_url)
    life.start()
    collect_rarely()
    logger.info("scheduler started")
    while not stopping.is_set():
        manager.turned()
        known = Recollection(lengths.expected_s, last_starts, queue, last_look, pace)
        _round(engine, app, rules, known, signer=signer, life=life)
        if not stopping.is_set():
            wake.wait(_ROUND_EVERY_S)
    life.stop()
    for thread in beside:
        thread.stop()
    engine.dispose()
    logger.info("scheduler stopped")


def _round(
    engine: Engine,
    app: Any,
    rules: Rules,
    known: Recollection,
    *,
    signer: Signer | None,
    life: SignOfLife,
) -> None:
    try:
        now = dt.datetime.now(dt.UTC)
        # Gangs on their way do not wait until others have got theirs.
        outgoing = lead_attempts(engine, now=now, rules=rules)
        if not send_all(app, outgoing, signer=signer):
            return  # nor do others set out by a broker that is away
        asked_twice = sum(due.is_again and isinstance(due.command, Peers) for due in outgoing)
        now = dt.datetime.now(dt.UTC)  # leases count from here, however long sending took
        known.pace.asked_twice(asked_twice, now_s=now.timestamp())
        send_all(app, place_jobs(engine, now=now, rules=rules, known=known), signer=signer)
        life.worked()
    except (DBAPIError, Unreachable) as error:
        # The next round starts from the store again, whatever this one had begun.
        reason = " ".join(str(error).split())[:300]
        logger.warning("round failed: %s", reason)
        life.failed(reason)
    except Exception as error:
        logger.exception("round failed")
        life.failed(repr(error))


def send_all(app: Any, outgoing: Sequence[Outgoing], *, signer: Signer | None = None) -> bool:
    """Send what is due, in order; False where it fails: then it is due again before long."""
    if not outgoing:
        return True
    try:
        send_commands(app, [(due.agent_id, due.command) for due in outgoing], signer=signer)
    except FarmError as error:
        behind = len(outgoing) - 1
        logger.warning("command not sent, and %d behind: %s", behind, error, extra=outgoing[0].ids)
        return False
    return True

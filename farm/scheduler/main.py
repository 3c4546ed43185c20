"""The scheduler process. Two loops, each woken by events and at least once a second.

One loop advances the gangs at work, the other assigns gangs to waiting jobs. They are separate so
that a job just submitted need not wait until a dozen results are written. Neither relies on the
other: as between several schedulers, rows that one of them has locked are skipped by the others.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from sqlalchemy import Engine

from farm.broker.claim import Claim
from farm.broker.health_records import SCHEDULER, HealthReporter
from farm.broker.sending import Sender
from farm.broker.wake_up import WakeReason, WakeUp
from farm.gang.barriers import Limits
from farm.keys.keyring import Keyring
from farm.keys.signing_key import signing_key
from farm.measuring.noise import NoiseLimits, NoisePolicy
from farm.messages.commands import Peers
from farm.notifications.notifier import Notifier, collector_is_well
from farm.processes.garbage import collect_rarely
from farm.processes.service_manager import ServiceManager
from farm.scheduler.advancing import advance_active_attempts
from farm.scheduler.background_thread import BackgroundThread
from farm.scheduler.outgoing import CommandSender, Rules
from farm.scheduler.placing import JobLengths, PlacingState, place_jobs
from farm.settings.server import Settings
from farm.store.engine import TRUSTED_S, make_engine, writing
from farm.store.gangs.clock_steps import follow_clock
from farm.store.maintenance.partitions import make_partitions, missing_days
from farm.store.queue.waiting_queue import WaitingQueue
from farm.store.schema import await_schema

logger = logging.getLogger(__name__)

# The longest time between two turns. Everything urgent wakes the loops; this is for what only time
# brings: leases that run out, limits that are passed, commands that were lost.
_TURN_EVERY_S = 1.0
# A busy farm wakes the loops all the time, and what comes meanwhile is done together. Gangs wait at
# each of their barriers for the scheduler; a job that nobody waits for gets its gang in time.
_LEADING_REST_RATIO, _PLACING_REST_RATIO = 1.0, 2.0
# An agent that starts again is back before.
_LOST_AFTER_S = 60.0
# A change of the wall clock, beside the monotonic one, from one reading to the next. Time services
# slew by much less, and the scheduler reads its clock every second.
_STEP_S = 1.0
_PARTITIONS_EVERY_S = 3600.0
_PARTITIONS_AGAIN_S = 60.0  # where something was left to do


def rules_of(settings: Settings) -> Rules:
    """Return the scheduling rules of the settings."""
    return Rules(
        lease=dt.timedelta(seconds=settings.lease_s),
        reserve_after_s=settings.reserve_after_s,
        limits=Limits(
            prepare_s=settings.prepare_timeout_s,
            start_s=settings.start_timeout_s,
            noise=NoiseLimits(policy=settings.noise_policy or NoisePolicy.VOID),
        ),
        policy=settings.retry_policy,
    )


def run(settings: Settings) -> None:
    """Schedule until SIGTERM or SIGINT.

    Raises:
        InvalidSpec: the broker is beyond this machine, and there is no key to sign with.
        OtherFarm: broker or database belong to another farm.
        Unreachable: the database refuses the account, or has another schema. A database or a broker
            that is away is waited for instead.
    """
    manager = ServiceManager(os.environ)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    farm_key = signing_key(settings)
    engine = make_engine(settings.database_url, trusted_s=TRUSTED_S)

    def waits(seconds: float) -> bool:
        manager.notify_watchdog()
        return stopping.wait(seconds)

    if not await_schema(engine, waits=waits):
        engine.dispose()
        return
    claim = Claim(engine, settings.broker_url)
    health = HealthReporter(SCHEDULER, settings.broker_url, is_ours=claim.make(), claim=claim.renew)
    wake = WakeUp(settings.broker_url, keeps_connections=True)
    # A connection that has gone stale would look here like a broker that is away, so keys are read
    # over others, which are asked first.
    key_engine = make_engine(settings.database_url)
    signer = None if farm_key is None else Keyring(key_engine, farm_key).signed
    sender = CommandSender(Sender(settings.broker_url), signer)
    advancing, placing, lengths = _loops(engine, settings, sender=sender, health=health)
    threads = [advancing, placing, lengths, *_slow_threads(engine, settings)]
    health.start()
    for thread in threads:
        thread.start()
    collect_rarely()
    logger.info("scheduler started")
    manager.notify_watchdog()
    _attend(wake, advancing, placing, stopping=stopping, manager=manager, health=health)
    for thread in threads:
        thread.request_stop()
    for thread in threads:
        thread.stop()
    health.stop()
    claim.release()
    engine.dispose()
    key_engine.dispose()
    logger.info("scheduler stopped")


def _loops(
    engine: Engine, settings: Settings, *, sender: CommandSender, health: HealthReporter
) -> tuple[BackgroundThread, BackgroundThread, BackgroundThread]:
    """Return the threads that advance gangs, place jobs, and estimate how long jobs run."""
    rules = rules_of(settings)
    lengths = JobLengths(engine, home=settings.home)
    state = PlacingState(
        queue=WaitingQueue(epoch=dt.datetime.now(dt.UTC), policy=settings.retry_policy)
    )

    def follow(now: dt.datetime, step_s: float) -> None:
        with writing(engine) as session:
            follow_clock(session, now=now, step_s=step_s, lease=rules.lease, policy=rules.policy)
        if step_s:
            health.clock_stepped(step_s)

    clock = StepCorrectingClock(follow)

    def lead() -> float:
        if not health.is_ours:
            return _TURN_EVERY_S
        unanswered_count = advance_once(engine, sender, now=clock.now(), rules=rules)
        state.pace.note_unanswered(unanswered_count, now_s=clock.now().timestamp())
        placing.wake()  # agents may be free now
        return _TURN_EVERY_S

    def place() -> float:
        known = dataclasses.replace(state, expected_s=lengths.expected_s)
        if health.is_ours and advancing.trouble is None:  # or nobody would lead them
            place_once(engine, sender, now=clock.now(), rules=rules, known=known)
        return _TURN_EVERY_S

    advancing = BackgroundThread(
        "leading gangs", lead, again_after_s=_TURN_EVERY_S, rest_ratio=_LEADING_REST_RATIO
    )
    placing = BackgroundThread(
        "placing jobs", place, again_after_s=_TURN_EVERY_S, rest_ratio=_PLACING_REST_RATIO
    )
    return advancing, placing, lengths.thread()


def _attend(
    wake: WakeUp,
    advancing: BackgroundThread,
    placing: BackgroundThread,
    *,
    stopping: threading.Event,
    manager: ServiceManager,
    health: HealthReporter,
) -> None:
    """Wake the loops on request, and report their health, until the end."""
    turns = (0, 0)
    while not stopping.is_set():
        why = wake.wait(_TURN_EVERY_S)
        advancing.wake()
        placing.wake(is_urgent=why is WakeReason.REQUESTED)
        # Only while both turn: one that hangs is a scheduler that hangs.
        if advancing.turn_count > turns[0] and placing.turn_count > turns[1]:
            turns = advancing.turn_count, placing.turn_count
            manager.notify_watchdog()
            trouble = advancing.trouble or placing.trouble
            if trouble is None:
                health.worked()
            else:
                health.failed(trouble)


def _slow_threads(engine: Engine, settings: Settings) -> Iterator[BackgroundThread]:
    """Yield the threads for tasks without urgency: partitions, messages, experiment trackers."""
    yield housekeeping(engine)
    notifier = Notifier(
        engine,
        addresses=settings.notify_urls.split(),
        allowed=settings.notify_allow,
        lost_after_s=max(_LOST_AFTER_S, 2 * settings.lease_s),
        is_collector_well=partial(collector_is_well, settings.broker_url),
    )
    yield BackgroundThread("notifications", notifier.turn, again_after_s=_TURN_EVERY_S)
    if settings.tracker is not None:
        from farm.trackers.sending import LOOK_EVERY_S, TrackerExport

        follower = TrackerExport(
            engine, database_url=settings.database_url, tracker=settings.tracker
        )
        yield BackgroundThread("experiment tracker", follower.turn, again_after_s=LOOK_EVERY_S)


class StepCorrectingClock:
    """A wall clock that has stored times corrected by `follow` when it finds that it was set.

    `follow` is called with the new time and the step in seconds, negative if the clock was set
    back; and once at the start with 0, since the clock may have been set before. If it raises, it
    is called again at the next reading.
    """

    def __init__(
        self,
        follow: Callable[[dt.datetime, float], None],
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._follow = follow
        self._wall = wall
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._ahead_s: float | None = None  # the wall clock minus the monotonic one

    def now(self) -> dt.datetime:
        """Return the time; for several threads."""
        with self._lock:
            wall_s = self._wall()
            ahead_s = wall_s - self._monotonic()
            now = dt.datetime.fromtimestamp(wall_s, dt.UTC)
            step_s = 0.0 if self._ahead_s is None else ahead_s - self._ahead_s
            is_step = abs(step_s) > _STEP_S
            if is_step:
                direction = "back" if step_s < 0 else "forward"
                logger.warning("the clock was set %s by %.1f s", direction, abs(step_s))
            if is_step or self._ahead_s is None:
                self._follow(now, step_s)
            self._ahead_s = ahead_s
            return now


def advance_once(engine: Engine, sender: CommandSender, *, now: dt.datetime, rules: Rules) -> int:
    """Advance or end attempts, and send due commands; return how many were repeated."""
    outgoing = advance_active_attempts(engine, now=now, rules=rules)
    sender.send(outgoing)
    return sum(due.is_again and isinstance(due.command, Peers) for due in outgoing)


def place_once(
    engine: Engine, sender: CommandSender, *, now: dt.datetime, rules: Rules, known: PlacingState
) -> None:
    """Lease gangs to waiting jobs, and send their start commands."""
    if not sender.is_away:
        sender.send(place_jobs(engine, now=now, rules=rules, known=known))


def housekeeping(engine: Engine) -> BackgroundThread:
    """Return the thread that makes the store's partitions for the days to come.

    It needs locks that must delay nobody else.
    """

    def work() -> float:
        today = dt.datetime.now(dt.UTC).date()
        make_partitions(engine, today=today)
        return _PARTITIONS_AGAIN_S if missing_days(engine, today=today) else _PARTITIONS_EVERY_S

    return BackgroundThread("housekeeping", work, again_after_s=_PARTITIONS_AGAIN_S)

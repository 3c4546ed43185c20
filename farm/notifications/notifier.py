"""Finds events, and sends a message about each until it arrives.

A message is sent at least once. Each address has its own thread while messages are sent there, so a
receiver that hangs delays no other. After each failure the pause before the next try is longer.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from farm.broker.celery_app import open_client
from farm.broker.errors import translate_errors
from farm.broker.health_records import COLLECTOR, read_health_records
from farm.errors import FarmError, InvalidSpec
from farm.gang.retries import doubled_pause_s
from farm.notifications.addresses import (
    AllowedNetworks,
    NotReachable,
    Resolve,
    find_endpoint,
    is_service,
    masked,
    resolve,
)
from farm.notifications.events import DeliveryState, SendOutcome, make_secret
from farm.store.engine import reading, writing
from farm.store.notifications import (
    FIRST_LOOK,
    LONGEST_NOTIFICATION_PAUSE,
    ClaimedAddress,
    Message,
    add_targets,
    claim_addresses,
    has_targets,
    note_attempt,
    record,
    release_address,
    remove_address,
    remove_target,
    targets_of_farm,
)

logger = logging.getLogger(__name__)

_LOOK_EVERY_S = 2.0
GIVE_UP_AFTER = dt.timedelta(days=3)
_FIRST_PAUSE_S = 5.0
# How far back: an event may be seen after the look that it came before.
_LOOK_BACK = dt.timedelta(minutes=10)
_MOST_THREADS = 8
_MOST_MESSAGES = 100  # to one address, in one claim
# Longer than all that a thread does before it looks at its time again.
_CLAIM = dt.timedelta(minutes=3)
_WORK_S = 60.0
_BROKER_TIMEOUT_S = 2.0
WELL_FOR_S = 30.0


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Notifier:
    """Finds events and sends messages. Several may run on one store: the store keeps them apart."""

    def __init__(
        self,
        engine: Engine,
        *,
        addresses: Sequence[str],
        allowed: AllowedNetworks,
        lost_after_s: float,
        is_collector_well: Callable[[], bool],
        well_for_s: float = WELL_FOR_S,
        look_up: Resolve = resolve,
        now: Callable[[], dt.datetime] = _utc_now,
    ) -> None:
        """`addresses`: of the whole farm. `lost_after_s`: how long a lost agent was not heard.

        `well_for_s`: how long the collector must have worked, which else has heard no agent.
        """
        self._well_for_s = well_for_s
        self._engine = engine
        self._addresses = addresses
        self._allowed = allowed
        self._lost_after = dt.timedelta(seconds=lost_after_s)
        self._is_collector_well = is_collector_well
        self._look_up = look_up
        self._now = now
        self._since: dt.datetime | None = None
        self._well_since_s: float | None = None
        self._threads: set[threading.Thread] = set()

    def turn(self) -> float:
        """Find new events, and begin to send due messages; return when to do so again."""
        now = self._now()
        if self._since is None:
            with writing(self._engine) as session:
                self._follow_setting(session, now=now)
            self._since = now - FIRST_LOOK
        with reading(self._engine) as session:
            if not has_targets(session):
                self._since = now - _LOOK_BACK
                return _LOOK_EVERY_S
            # What a farm that sends nothing need not load.
            from farm.notifications.event_detection import (
                events_of_agents,
                events_of_budgets,
                events_of_sweeps,
            )

            found = [*events_of_sweeps(session, since=self._since)]
            found += events_of_budgets(session, since=self._since)
            lost = [*events_of_agents(session, now=now, lost_after=self._lost_after)]
        found += lost if self._may_be_lost(bool(lost)) else []
        if found:
            with writing(self._engine) as session:
                record(session, found, now=now)
        self._since = now - _LOOK_BACK
        self._begin_sending(now)
        return _LOOK_EVERY_S

    def wait_until_sent(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` for the threads that send."""
        until_s = time.monotonic() + timeout_s
        for thread in list(self._threads):
            thread.join(max(0.0, until_s - time.monotonic()))

    def _follow_setting(self, session: Session, *, now: dt.datetime) -> None:
        """Let the farm's own addresses be those of the setting."""
        known = {target.address: target.id for target in targets_of_farm(session)}
        for address, target_id in known.items():
            if address not in self._addresses:
                remove_target(session, target_id, now=now)
        new = [address for address in self._addresses if address not in known]
        secrets = [make_secret() for _ in new]
        add_targets(session, new, secrets, sweep_id=None, now=now)

    def _may_be_lost(self, is_any_silent: bool) -> bool:
        """Whether silent agents are lost, and it is not the collector that hears nothing."""
        if not is_any_silent or not self._is_collector_well():
            self._well_since_s = None
            return False
        now_s = time.monotonic()
        if self._well_since_s is None:
            self._well_since_s = now_s
        return now_s - self._well_since_s >= self._well_for_s

    def _begin_sending(self, now: dt.datetime) -> None:
        self._threads = {thread for thread in self._threads if thread.is_alive()}
        free_count = _MOST_THREADS - len(self._threads)
        if free_count <= 0:
            return
        with writing(self._engine) as session:
            claimed = claim_addresses(
                session, now=now, claim=_CLAIM, most=free_count, most_messages=_MOST_MESSAGES
            )
        for one in claimed:
            thread = threading.Thread(
                target=self._send_all, args=(one,), name="sending messages", daemon=True
            )
            self._threads.add(thread)
            thread.start()

    def _send_all(self, claimed: ClaimedAddress) -> None:
        try:
            self._send_messages(claimed)
        except Exception:
            # The claim runs out, and somebody tries again.
            logger.exception("messages to %s failed", masked(claimed.address))

    def _send_messages(self, claimed: ClaimedAddress) -> None:
        until_s = time.monotonic() + _WORK_S
        for message in claimed.messages:
            outcome = self._send(claimed.address, message)
            now = self._now()
            is_away = not outcome.is_available
            failure_count = 1 + (claimed.failure_count if is_away else message.attempt_count)
            pause = _pause(failure_count, least_s=outcome.pause_s)
            state = DeliveryState.WAITING
            if outcome.is_delivered:
                state = DeliveryState.DELIVERED
            elif outcome.is_gone or now - message.at > GIVE_UP_AFTER:
                state = DeliveryState.GIVEN_UP
            log = logger.info if outcome.is_delivered else logger.warning
            log("message %s to %s: %s", message.kind, masked(claimed.address), outcome.description)
            with writing(self._engine) as session:
                note_attempt(
                    session,
                    message.delivery_id,
                    state=state,
                    outcome=outcome.description,
                    due_at=now if outcome.is_delivered or is_away else now + pause,
                    now=now,
                )
                if is_away:
                    release_address(
                        session,
                        claimed.address,
                        failure_count=claimed.failure_count + 1,
                        due_at=now + pause,
                    )
                if outcome.is_gone:
                    remove_address(session, claimed.address, now=now)
            if is_away or outcome.is_gone:
                return
            if time.monotonic() > until_s:
                break
        with writing(self._engine) as session:
            release_address(session, claimed.address, failure_count=0, due_at=self._now())

    def _send(self, address: str, message: Message) -> SendOutcome:
        if is_service(address):
            from farm.notifications.services import send_by_service

            title = f"Benchfarm: {message.kind}"
            text = str(message.data.get("text", message.kind))
            return send_by_service(address, self._allowed, title=title, text=text)
        from farm.notifications.webhook import send

        try:
            endpoint = find_endpoint(address, self._allowed, look_up=self._look_up)
        except (NotReachable, InvalidSpec) as error:
            return SendOutcome(is_delivered=False, is_available=False, description=str(error))
        body = json.dumps(
            {"type": message.kind, "timestamp": message.at.isoformat(), "data": message.data}
        )
        return send(
            endpoint,
            message_id=message.message_id,
            body=body.encode(),
            secret=message.secret,
            timestamp_s=int(self._now().timestamp()),
        )


def _pause(failure_count: int, *, least_s: float) -> dt.timedelta:
    most_s = LONGEST_NOTIFICATION_PAUSE.total_seconds() / 2
    own_s = doubled_pause_s(failure_count, first_s=_FIRST_PAUSE_S, most_s=most_s)
    return dt.timedelta(seconds=max(own_s, min(least_s, most_s)))


def collector_is_well(broker_url: str) -> bool:
    """Whether a collector works; False also if the broker does not say."""
    try:
        with (
            translate_errors(broker_url),
            open_client(broker_url, timeout_s=_BROKER_TIMEOUT_S) as client,
        ):
            records = read_health_records(client)
    except FarmError:
        return False
    return any(one.process == COLLECTOR and one.trouble is None for one in records)

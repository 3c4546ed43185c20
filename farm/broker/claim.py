"""Records which farm a broker belongs to, and refuses a second farm.

Two farms on one broker would take and confirm each other's reports. The broker stores the farm's
id, the incarnation of its store, and a number of its own. The database stores that number, too, so
one store is not used with two brokers either.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import secrets
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from farm.broker.celery_app import open_client
from farm.broker.errors import translate_errors
from farm.broker.health_records import read_health_records
from farm.broker.url import redact
from farm.errors import FarmError, InvalidSpec, OtherFarm, Unreachable
from farm.store.engine import writing
from farm.store.identity import (
    TAKEOVER,
    BrokerChanged,
    look_at_identity,
    note_broker,
    own_identity,
    release_broker,
    take_over,
)
from farm.store.tables import FarmIdentity
from farm.values.codec import canonical_json, from_text
from farm.values.ranges import ShortText

logger = logging.getLogger(__name__)

KEY = "farm.owner"
_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The broker's record of the farm that it serves."""

    farm_id: ShortText
    incarnation: int
    broker_id: ShortText


class Claim:
    """A process's right to use a broker for the farm of its store."""

    def __init__(self, engine: sa.Engine, broker_url: str) -> None:
        self._engine = engine
        self._url = broker_url
        self._shown_url = redact(broker_url)
        self._broker_id: str | None = None

    def make(self) -> bool:
        """Claim the broker for the first time; return False if it is away and left to `renew`.

        Raises:
            OtherFarm: as for `renew`, but one that this store was used with just now is waited for.
            Unreachable: the database does not answer.
        """
        own_identity(self._engine)
        try:
            with (
                translate_errors(self._url),
                open_client(self._url, timeout_s=_TIMEOUT_S) as client,
            ):
                self.renew(client)
        except BrokerChanged as error:
            logger.warning("%s", error)
        except Unreachable as error:
            logger.warning("%s; it is waited for", error)
        else:
            return True
        return False

    def renew(self, client: Any) -> None:
        """Claim the broker, or look that it is still ours. An empty broker becomes ours.

        Raises:
            OtherFarm: it serves another farm, or this farm's store with another broker.
            Unreachable: the database does not answer.
        """
        own = own_identity(self._engine)
        owner = read_owner(client)
        if owner is None:
            made = _owner(own)
            client.set(KEY, canonical_json(made), nx=True)
            owner = read_owner(client) or made
        if refusal := refusal_of(owner, own.farm_id, own.incarnation):
            raise OtherFarm(f"broker {self._shown_url} {refusal}")
        if owner.incarnation < own.incarnation:  # ours was restored, and its original has ended
            if records := read_health_records(client):
                raise OtherFarm(
                    f"broker {self._shown_url} serves the store that this one was restored from, "
                    f"and {records[0].name} uses it: stop that, and start again after 15 s"
                )
            client.set(KEY, canonical_json(replace(owner, incarnation=own.incarnation)))
        note_broker(
            self._engine,
            own,
            owner.broker_id,
            former_id=self._broker_id,
            now=dt.datetime.now(dt.UTC),
        )
        self._broker_id = owner.broker_id

    def release(self) -> None:
        """Allow the farm to use another broker at once; do nothing if the store is away."""
        if self._broker_id is not None:
            with contextlib.suppress(Unreachable):
                release_broker(self._engine, self._broker_id)


def look_at_claim(engine: sa.Engine, client: Any) -> FarmIdentity | None:
    """Return which farm the store is of, None before its first run; nothing is claimed or written.

    Raises:
        OtherFarm: store or broker belong to another farm.
        Unreachable: the database does not answer.
    """
    own = look_at_identity(engine)
    owner = read_owner(client)
    if own and owner and (refusal := refusal_of(owner, own.farm_id, own.incarnation)):
        raise OtherFarm(f"the broker {refusal}")
    return own


def refusal_of(owner: Owner, farm_id: str, incarnation: int) -> str | None:
    """Return why this broker must not serve that farm's store; None: it may."""
    if owner.farm_id != farm_id:
        return (
            f"serves farm {owner.farm_id[:8]}, and the database is of farm {farm_id[:8]}: give "
            "each farm a Redis, or a database number of one, of its own; if the other farm is "
            f"gone, {TAKEOVER}"
        )
    if owner.incarnation > incarnation:
        return (
            "serves a store that was restored or moved from this one since: name that one in "
            f"FARM_DATABASE_URL; if this one replaces it, {TAKEOVER}"
        )
    return None


def read_owner(client: Any) -> Owner | None:
    """Return which farm a broker serves; None: none yet.

    Raises:
        OtherFarm: something else is under the key.
    """
    if client.type(KEY) not in (b"string", b"none"):
        raise _foreign_key()
    text = client.get(KEY)
    if text is None:
        return None
    try:
        return from_text(Owner, text)
    except InvalidSpec:
        raise _foreign_key() from None


def take_broker_over(engine: sa.Engine, broker_url: str, *, is_forced: bool) -> str:
    """Let the broker serve the store of `engine`; return the farm's id.

    Raises:
        FarmError: scheduler or collector of a farm still use the broker, unless `is_forced`.
        Unreachable: database or broker do not answer.
    """
    with translate_errors(broker_url), open_client(broker_url, timeout_s=_TIMEOUT_S) as client:
        if not is_forced and (records := read_health_records(client)):
            raise FarmError(
                f"{records[0].name} still uses broker {redact(broker_url)}: stop it and wait 15 s, "
                "or pass --force"
            )
        try:
            owner = read_owner(client)
        except OtherFarm:
            owner = None
        with writing(engine) as session:
            take_over(session, above=owner.incarnation if owner else 0)
        own = own_identity(engine)
        # Not deleted first: who is refused from now on must not claim it in between.
        client.set(KEY, canonical_json(_owner(own)))
        Claim(engine, broker_url).renew(client)
    return own.farm_id


def _owner(own: FarmIdentity) -> Owner:
    broker_id = secrets.token_hex(16)
    return Owner(farm_id=own.farm_id, incarnation=own.incarnation, broker_id=broker_id)


def _foreign_key() -> OtherFarm:
    return OtherFarm(
        f"key {KEY} of the broker was not written by a farm: give the farm a Redis, or a database "
        f"number of one, of its own, or {TAKEOVER}"
    )

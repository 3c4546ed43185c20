"""Limits how much each agent's account may send to the server in a minute.

An account is charged only for messages that it has signed or added to its own queue. A name inside
a message proves nothing: a stolen agent could use up another one's quota by it. Messages beyond the
quota are dropped before they are verified, and are not confirmed. An honest agent sends them again
later and loses nothing.

Without keys, which is possible on one machine only, the claimed name is charged, and the number of
new names is limited. That slows down a program that runs wild, but a program that claims another
agent's name uses up that agent's quota.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from farm.broker.celery_app import HEARTBEAT_TASK, REPORTS_TASK
from farm.processes.token_bucket import TokenBucket


@dataclass(frozen=True, slots=True)
class Quota:
    """`burst`: allowed at once after a pause; `per_minute`: allowed in the long run."""

    burst: float
    per_minute: float


# Bytes are those of a message as the store writes JSON: 18 MiB in ten minutes. Rows that fill a
# little more than half of a page make SQLite take twice as much, and a small row takes 66 bytes
# there and 120 in PostgreSQL. The worst of ten minutes, heartbeats included, were 41 MB in SQLite
# and 38 MB in PostgreSQL. An honest agent sends some 0.1 MB and 200 rows a minute, and one that
# returns with the backlog of an hour 5 MB at once. A job of 500 steps a second sends 0.75 MB a
# minute, samples of eight GPUs are 0.3 MB more, and a log has 4 MiB in all.
REPORT_QUOTAS = {
    "messages": Quota(600, 300),
    "bytes": Quota(8 * 2**20, 2**20),
    "rows": Quota(20_000, 6_000),
}
# One beat each 5 s, of some thousand bytes; with as many labels as it may have, of 40,000.
# PostgreSQL writes again what each beat changes.
HEARTBEAT_QUOTAS = {
    "messages": Quota(300, 300),
    "bytes": Quota(2**20, 2**19),
}
# Of names that nobody has proven: each may get rows in the store. A farm that starts has hundreds.
CLAIMED_NAMES = Quota(5_000, 60)
_NEW_NAMES = "new names"
_KEPT_S = 600.0  # a full bucket need not be remembered
_SHOWN_S = 120.0
# Of a burst: more is not on its way between the agents' own queues and the collector's tasks.
_MOST_AHEAD = 0.25


@dataclass(slots=True)
class _Account:
    """The quotas of an account by name; `at_s`: time of its last message.

    `ahead`: use that was charged in advance, and will not be charged again.
    """

    at_s: float
    buckets: dict[str, TokenBucket]
    ahead: dict[str, float]
    dropped_count: int = 0
    dropped_at_s: float = field(default=float("-inf"))


class Quotas:
    """The accounts' use of one queue, by a monotonic clock. For several threads.

    `names`: how many new names are accepted; None: any number, since they are verified.
    `collectors`: how many share the queue. Each gets a part of an account's messages, so each
    allows only its part of the quota.
    """

    def __init__(
        self,
        quotas: Mapping[str, Quota],
        *,
        names: Quota | None = None,
        collectors: Callable[[], int] = lambda: 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._quotas = quotas
        self._names = names
        self._new_names = None if names is None else TokenBucket(names.burst, names.per_minute)
        self._collectors = collectors
        self._clock = clock
        self._lock = threading.Lock()
        self._accounts: dict[str, _Account] = {}
        self._swept_at_s = clock()

    def exhausted(self, account: str) -> str | None:
        """Return the name of an exhausted quota of the account, and count a dropped message.

        A message that was charged in advance passes.
        """
        with self._lock:
            known = self._accounts.get(account)
            ahead = {} if known is None else known.ahead
            empty = next((name for name in self._spent(account) if ahead.get(name, 0.0) <= 0), None)
            if empty is not None and known is not None:
                self._drop(account, 1)
            return empty

    def allowed(self, account: str, *, most: int) -> int:
        """Return how many messages the account may send now, at most `most`; 0: none."""
        with self._lock:
            if next(self._spent(account), None) is not None:
                return 0
            known = self._accounts.get(account)
            left = (
                self._quotas["messages"].burst
                if known is None
                else known.buckets["messages"].left(known.at_s)
            )
            return max(1, min(most, int(left / self._collectors())))

    def drop(self, account: str, count: int) -> None:
        """Count messages of the account that were dropped."""
        with self._lock:
            self._drop(account, count)

    def charge(self, account: str, **used: float) -> None:
        """Charge use to the account's quotas, except what was charged in advance."""
        with self._lock:
            known = self._account(account)
            for name, amount in used.items():
                paid = min(amount, known.ahead.get(name, 0.0))
                known.ahead[name] = known.ahead.get(name, 0.0) - paid
                known.buckets[name].take(self._collectors() * (amount - paid), known.at_s)

    def charge_ahead(self, account: str, **used: float) -> None:
        """Charge expected use to the account's quotas in advance; `charge` then skips it."""
        with self._lock:
            known = self._account(account)
            for name, amount in used.items():
                known.buckets[name].take(self._collectors() * amount, known.at_s)
                most = _MOST_AHEAD * self._quotas[name].burst
                known.ahead[name] = min(most, known.ahead.get(name, 0.0) + amount)

    def dropped(self) -> dict[str, int]:
        """Return the number of dropped messages of each account that was limited recently."""
        with self._lock:
            since = self._clock() - _SHOWN_S
            return {
                name: known.dropped_count
                for name, known in self._accounts.items()
                if known.dropped_at_s >= since
            }

    def limit(self, name: str) -> str:
        """Describe the limit of a quota."""
        quota = self._names if name == _NEW_NAMES and self._names else self._quotas[name]
        return f"{quota.per_minute:,.0f} {name} a minute"

    def _spent(self, account: str) -> Iterator[str]:
        known = self._accounts.get(account)
        if known is None:
            if self._new_names and self._new_names.left(self._clock()) <= 0:
                yield _NEW_NAMES
            return
        now_s = known.at_s = self._clock()
        yield from (name for name, one in known.buckets.items() if one.left(now_s) <= 0)

    def _drop(self, account: str, count: int) -> None:
        known = self._account(account)
        known.dropped_count += count
        known.dropped_at_s = known.at_s

    def _account(self, account: str) -> _Account:
        now_s = self._clock()
        found = self._accounts.get(account)
        if found is None:
            self._sweep(now_s)
            if self._new_names is not None:
                self._new_names.take(self._collectors(), now_s)
            full = {n: TokenBucket(q.burst, q.per_minute) for n, q in self._quotas.items()}
            found = self._accounts[account] = _Account(now_s, full, {})
        found.at_s = now_s
        return found

    def _sweep(self, now_s: float) -> None:
        """Forget accounts that have been silent for long, such as removed ones."""
        if now_s - self._swept_at_s < _KEPT_S:
            return
        self._swept_at_s = now_s
        self._accounts = {n: a for n, a in self._accounts.items() if now_s - a.at_s < _KEPT_S}


def make_quotas(
    *,
    are_names_proven: bool,
    collectors: Callable[[], int] = lambda: 1,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Quotas]:
    """Return the quotas of each account, by task."""
    names = None if are_names_proven else CLAIMED_NAMES
    return {
        task: Quotas(quotas, names=names, collectors=collectors, clock=clock)
        for task, quotas in ((REPORTS_TASK, REPORT_QUOTAS), (HEARTBEAT_TASK, HEARTBEAT_QUOTAS))
    }

"""How much each account may send in a minute, so that none keeps the others from being heard.

Only what an account has signed is charged to it: a name that a message claims proves nothing, and
a stolen agent could use up another's share. What is beyond the quota is dropped before it is even
verified, and not confirmed: an honest agent sends it again, later, and loses nothing. Without keys,
on one machine alone, names are charged as they are claimed, and only so many new ones are heard: a
program that runs wild is held back, but one that claims another's name uses up that one's quota.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from farm.core.token_bucket import TokenBucket


@dataclass(frozen=True, slots=True)
class Quota:
    """`burst` at once after a pause, and `per_minute` for ever."""

    burst: float
    per_minute: float


# A program with an agent's key so brings 42 MiB and 80,000 rows into the store in ten minutes. An
# honest agent sends some 0.1 MB and 200 rows a minute; with a backlog of an hour, 5 MB at once.
REPORTS = {
    "messages": Quota(600, 300),
    "bytes": Quota(16 * 2**20, 3 * 2**20),
    "rows": Quota(20_000, 6_000),
}
# One beat each 5 s, of some thousand bytes.
HEARTBEATS = {
    "messages": Quota(300, 300),
    "bytes": Quota(2 * 2**20, 2 * 2**20),
}
# Of names that nobody has proven: each may get rows in the store. A farm that starts has hundreds.
CLAIMED_NAMES = Quota(5_000, 60)
_NEW_NAMES = "new names"
_KEPT_S = 600.0  # a full bucket need not be remembered
_SHOWN_S = 120.0


@dataclass(slots=True)
class _Account:
    """The quotas of an account by name; `at_s`: when it was last heard."""

    at_s: float
    buckets: dict[str, TokenBucket]
    dropped_count: int = 0
    dropped_at_s: float = field(default=float("-inf"))


class Quotas:
    """The accounts' use of one queue, by a monotonic clock. For one thread.

    `names`: how many accounts may be new; None: any number, since they are proven.
    """

    def __init__(
        self,
        quotas: Mapping[str, Quota],
        *,
        names: Quota | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._quotas = quotas
        self._names = names
        self._new_names = None if names is None else TokenBucket(names.burst, names.per_minute)
        self._clock = clock
        self._accounts: dict[str, _Account] = {}
        self._swept_at_s = clock()

    def exhausted(self, account: str) -> str | None:
        """Name the quota of which the account has nothing left, and count a message dropped."""
        empty = self.spent(account)
        if empty is not None and account in self._accounts:
            self.drop(account, 1)
        return empty

    def spent(self, account: str) -> str | None:
        """Name the quota of which the account has nothing left; None: it may go on."""
        known = self._accounts.get(account)
        if known is None:
            is_full = self._new_names and self._new_names.left(self._clock()) <= 0
            return _NEW_NAMES if is_full else None
        now_s = known.at_s = self._clock()
        return next((name for name, one in known.buckets.items() if one.left(now_s) <= 0), None)

    def drop(self, account: str, count: int) -> None:
        """Count messages of the account that were dropped."""
        known = self._account(account)
        known.dropped_count += count
        known.dropped_at_s = known.at_s

    def charge(self, account: str, **used: float) -> None:
        """Take from the account's quotas what it has used."""
        known = self._account(account)
        for name, amount in used.items():
            known.buckets[name].take(amount, known.at_s)

    def _account(self, account: str) -> _Account:
        now_s = self._clock()
        known = self._accounts.get(account)
        if known is None:
            self._sweep(now_s)
            if self._new_names is not None:
                self._new_names.take(1, now_s)
            full = {n: TokenBucket(q.burst, q.per_minute) for n, q in self._quotas.items()}
            known = self._accounts[account] = _Account(now_s, full)
        known.at_s = now_s
        return known

    def dropped(self) -> dict[str, int]:
        """Return how many messages were dropped of each account that was lately held back."""
        since = self._clock() - _SHOWN_S
        return {
            name: known.dropped_count
            for name, known in self._accounts.items()
            if known.dropped_at_s >= since
        }

    def limit(self, name: str) -> str:
        """Say what a quota allows."""
        quota = self._names if name == _NEW_NAMES and self._names else self._quotas[name]
        return f"{quota.per_minute:,.0f} {name} a minute"

    def _sweep(self, now_s: float) -> None:
        """Forget accounts that have been silent for long, such as removed ones."""
        if now_s - self._swept_at_s < _KEPT_S:
            return
        self._swept_at_s = now_s
        self._accounts = {n: a for n, a in self._accounts.items() if now_s - a.at_s < _KEPT_S}

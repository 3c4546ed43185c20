"""Four bugs, planted on purpose in processes of a test: the checker has to find each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def plant(name: str | None) -> None:
    """Break this process as PLANTED says; None leaves it whole."""
    if name is not None:
        PLANTED[name]()


def drop_fencing_check() -> None:
    """Take every report, whatever has become of its attempt and whoever has sent it."""
    from farm.store.reports import reports

    reports.refusal_of_report = lambda *args, **kwargs: None  # type: ignore[attr-defined]


def forget_on_publish() -> None:
    """Have the spool forget what it has handed out, without the collector's word."""
    from worker_agent.spool.spool import Spool

    pending = Spool.pending

    def hand_out(self: Spool, **limits: Any) -> Any:
        reports = pending(self, **limits)
        if reports:
            self.confirm(self.generation, reports[-1].number)
        return reports

    Spool.pending = hand_out  # type: ignore[method-assign]


def never_free_lease() -> None:
    """End attempts, and let their gangs' first agents stay leased to them."""
    from farm.scheduler import advancing
    from farm.store.gangs.decisions import end_attempts
    from farm.store.tables import AgentRow, RankRow

    def end(session: Any, ends: Any, *args: Any, **kwargs: Any) -> Any:
        jobs = end_attempts(session, ends, *args, **kwargs)
        for token in ends:
            agent = session.get_one(AgentRow, session.get_one(RankRow, (token, 0)).agent_id)
            agent.attempt_id, agent.lease_expires_at = token, kwargs["now"]
        return jobs

    advancing.end_attempts = end  # type: ignore[attr-defined]


def slow_clients_keep_threads() -> None:
    """Let the web server's threads read requests, as Gunicorn does, however long that takes."""
    from gunicorn.workers.gthread import ThreadWorker  # type: ignore[import-untyped] # it has none

    import web.server

    web.server.SlowClientWorker = ThreadWorker  # type: ignore[attr-defined] # its name


PLANTED: dict[str, Callable[[], None]] = {
    "dropped_fencing_check": drop_fencing_check,
    "spool_forgets_on_publish": forget_on_publish,
    "lease_never_freed": never_free_lease,
    "slow_clients_keep_threads": slow_clients_keep_threads,
}

"""Values that are found again by a ticket, such as drafts, uploaded files and open sessions."""

from __future__ import annotations

import datetime as dt

from web.backend import Tickets

NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def test_a_value_is_found_by_its_ticket_for_a_while() -> None:
    drafts = Tickets[str](most=200, kept_for=dt.timedelta(hours=2))
    ticket, other = drafts.keep("one", now=NOW), drafts.keep("other", now=NOW)
    assert ticket != other
    late = NOW + dt.timedelta(minutes=119)
    assert drafts.find(ticket, now=late) == "one"
    assert drafts.find(ticket, now=late + dt.timedelta(minutes=2)) is None
    assert drafts.find(ticket, now=NOW) is None  # and is gone
    assert drafts.find("", now=NOW) is None


def test_the_oldest_values_go_where_there_are_many_or_large_ones() -> None:
    drafts = Tickets[str](most=200, most_size=32_000_000, size_of=len)
    tickets = [drafts.keep("a text", now=NOW) for _ in range(300)]
    kept = [ticket for ticket in tickets if drafts.find(ticket, now=NOW)]
    assert kept == tickets[100:]
    large = [drafts.keep("x" * 10_000_000, now=NOW) for _ in range(5)]
    found = [drafts.find(ticket, now=NOW) is not None for ticket in large]
    assert found == [False] * 2 + [True] * 3
    assert drafts.find(tickets[-1], now=NOW) is None


def test_a_value_larger_than_the_limit_is_kept_alone() -> None:
    drafts = Tickets[str](most=200, most_size=3, size_of=len)
    small, large = drafts.keep("x", now=NOW), drafts.keep("xxxx", now=NOW)
    assert drafts.find(small, now=NOW) is None
    assert drafts.find(large, now=NOW) == "xxxx"


def test_what_is_forgotten_is_found_no_more() -> None:
    sessions = Tickets[int](most=10)
    ticket = sessions.keep(0, now=NOW)
    assert sessions.find(ticket, now=NOW + dt.timedelta(days=1000)) == 0
    sessions.forget(ticket)
    sessions.forget(ticket)
    assert sessions.find(ticket, now=NOW) is None

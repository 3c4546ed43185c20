"""Messages over the API and on pages: what was sent where, and what came of it."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.notifications.events import DeliveryState, EventKind
from farm.store.engine import reading, writing
from farm.store.notifications import DetectedEvent, add_targets, note_attempt, record
from farm.store.tables import JobRow, NotificationTarget, SweepRow
from tests.factories import NOW, add_sweep
from tests.web.new_sweep_pages import add_two_agents, enqueue, followed, look, row_count, text_of
from tests.web.web_client import client_of

ADDRESS = "https://hooks.example.org/services/s3cret"


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


def add_messages(engine: sa.Engine) -> list[int]:
    """Store two sweeps that have ended, each with a message; the first was answered."""
    sweep_ids = []
    for number in range(2):
        with writing(engine) as session:
            [job_id] = add_sweep(session, name=f"sweep {number}")
            sweep_id = session.get_one(JobRow, job_id).sweep_id
            add_targets(session, [ADDRESS], ["whsec_s3cret"], sweep_id=sweep_id, now=NOW)
            event = DetectedEvent(
                kind=EventKind.SWEEP_FAILED,
                subject=f"sweep {sweep_id}",
                at=NOW,
                data={},
                sweep_id=sweep_id,
            )
            assert record(session, [event], now=NOW) == 1
            sweep_ids.append(sweep_id)
    with writing(engine) as session:
        outcome = "500 <b>Internal Server Error</b>"
        note_attempt(session, 1, state=DeliveryState.WAITING, outcome=outcome, due_at=NOW, now=NOW)
    return sweep_ids


def test_messages_are_listed_newest_first_and_by_sweep(
    client: FlaskClient, engine: sa.Engine
) -> None:
    first, second = add_messages(engine)
    listed = client.get("/api/v1/notifications")
    assert "s3cret" not in listed.get_data(as_text=True)
    assert [one["sweep_id"] for one in (listed.json or {})["items"]] == [second, first]
    page = client.get("/api/v1/notifications?limit=1").json or {}
    assert [one["sweep_id"] for one in page["items"]] == [second]
    page = client.get(f"/api/v1/notifications?limit=1&cursor={page['next']}").json or {}
    assert (page["next"], [one["sweep_id"] for one in page["items"]]) == (None, [first])
    [one] = (client.get(f"/api/v1/notifications?sweep={first}").json or {})["items"]
    assert one == {
        "id": 1,
        "at": "2026-03-01T12:00:00Z",
        "type": "sweep.failed",
        "about": f"sweep {first}",
        "sweep_id": first,
        "address": "https://hooks.example.org/...",
        "state": "waiting",
        "attempt_count": 1,
        "last_at": "2026-03-01T12:00:00Z",
        "last_answer": "500 <b>Internal Server Error</b>",
    }
    assert (client.get("/api/v1/notifications?sweep=99").json or {})["items"] == []


def test_the_page_of_a_sweep_shows_its_messages_and_no_other(
    client: FlaskClient, engine: sa.Engine
) -> None:
    first, _second = add_messages(engine)
    page = client.get(f"/sweeps/{first}").get_data(as_text=True)
    assert "s3cret" not in page
    _, _, rest = page.partition('<section class="card" id="messages"')
    shown = rest.partition("</section>")[0]
    assert "https://hooks.example.org/..." in shown
    assert "500 &lt;b&gt;Internal Server Error&lt;/b&gt;" in shown
    assert shown.count("<tr>") == 2
    with writing(engine) as session:
        [job_id] = add_sweep(session)
        quiet = session.get_one(JobRow, job_id).sweep_id
    assert 'id="messages"' not in client.get(f"/sweeps/{quiet}").get_data(as_text=True)


def test_the_form_takes_addresses_and_names_the_one_at_fault(
    client: FlaskClient, engine: sa.Engine
) -> None:
    add_two_agents(engine)
    preview = followed(client, look(client, notify="https://1.1.1.1/s3cret"))
    page = client.get(enqueue(client, preview).headers["Location"])
    assert "Messages to https://1.1.1.1/... are signed with whsec_" in text_of(page)
    with reading(engine) as session:
        assert session.scalars(sa.select(NotificationTarget.address)).all() == [
            "https://1.1.1.1/s3cret"
        ]
        assert "s3cret" not in str(session.scalars(sa.select(SweepRow.spec)).one())
    for wrong in ("http://127.0.0.1/s3cret", "https://1.1.1.1/ s3cret"):
        refused = look(client, notify=wrong)
        assert refused.status_code == 422
        shown = refused.get_data(as_text=True)
        error = shown.partition('id="notify-error"')[2].partition("</")[0]
        assert "expected an address" in error
        assert "s3cret" not in error
    assert row_count(engine, SweepRow) == 1

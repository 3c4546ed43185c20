"""The pages of a new sweep as tests use them: the form, the preview, the button that enqueues."""

from __future__ import annotations

import datetime as dt
import html
import re
from collections.abc import Mapping

import sqlalchemy as sa
from flask.testing import FlaskClient
from werkzeug.test import TestResponse, encode_multipart

from farm.store.engine import reading, writing
from farm.store.tables import JobRow, SweepRow
from tests import factories
from tests.e2e.live_farm import wait_until
from tests.web.web_client import csrf_of
from tests.web.web_reading import read

EVIL = "<script>alert('x')</script>"
TOML = 'name = "from a file"\n[[case]]\nmodel = "mlp"\ndataset = "digits"\nstrategy = "single"\n'
TOML += "world_size = 1\nglobal_batch_size = [32, 64]\n"
FORM: dict[str, str | list[str]] = {
    "name": "by hand",
    "repetitions_by": "count",
    "repetitions": "2",
    "model": ["mlp"],
    "dataset": ["digits"],
    "strategy": ["single", "mwms_ring"],
    "world_size": "1, 2",
    "global_batch_size": "32, 64",
}


def add_two_agents(engine: sa.Engine) -> None:
    """Add two that live, each on a machine of its own."""
    with writing(engine) as session:
        for number in (1, 2):
            factories.add_agent(
                session,
                f"a{number}",
                heartbeat_at=dt.datetime.now(dt.UTC),
                facts=factories.agent_facts(
                    machine_id=f"m{number}", labels={"zone": "north"}, cpus=(0,)
                ),
            )


def text_of(answer: TestResponse) -> str:
    """What is read of an answer."""
    return read(answer.get_data(as_text=True))


def row_count(engine: sa.Engine, table: type[SweepRow] | type[JobRow] = SweepRow) -> int:
    """How many of them the store has."""
    with reading(engine) as session:
        return session.scalar(sa.select(sa.func.count()).select_from(table)) or 0


def look(client: FlaskClient, **fields: str | list[str]) -> TestResponse:
    """Send the form, in which some fields are changed, to be looked at."""
    data = {"csrf_token": csrf_of(client, "/sweeps/new"), **FORM, **fields}
    return client.post("/sweeps/preview", data=data)


def look_at_file(client: FlaskClient, text: str) -> TestResponse:
    """Send a sweep file to be looked at."""
    data = {"csrf_token": csrf_of(client, "/sweeps/new"), "sweep": text}
    return client.post("/sweeps/preview", data=data)


def send_form(client: FlaskClient, data: Mapping[str, object]) -> TestResponse:
    """Send a form that may have a file to be looked at."""
    # Given the file itself, the client leaves a large one open.
    boundary, body = encode_multipart({"csrf_token": csrf_of(client, "/sweeps/new"), **data})
    kind = f"multipart/form-data; boundary={boundary}"
    return client.post("/sweeps/preview", data=body, content_type=kind)


def followed(client: FlaskClient, answer: TestResponse) -> TestResponse:
    """Follow to the preview, and wait until it says what is expected."""
    assert answer.status_code == 303, text_of(answer)

    def made() -> TestResponse | None:
        page = client.get(answer.headers["Location"])
        assert page.status_code == 200, text_of(page)
        return None if "data-busy" in page.get_data(as_text=True) else page

    page = wait_until(made, "what is expected was worked out", within_s=240)
    assert page is not None
    return page


def enqueue(client: FlaskClient, preview: TestResponse) -> TestResponse:
    """Press the preview's button, as a browser would send its form."""
    page = preview.get_data(as_text=True)
    form = page.split('action="/sweeps"', 1)[1].split("</form>", 1)[0]
    fields = dict(re.findall(r'name="([a-z_]+)" value="([^"]*)"', form))
    return client.post("/sweeps", data={**fields, "sweep": file_of(page).replace("\n", "\r\n")})


def file_of(page: str) -> str:
    """The sweep file that a page shows."""
    shown = page.split("<textarea", 1)[1].split(">\n", 1)[1].split("</textarea>", 1)[0]
    return html.unescape(shown)


def value_of(page: str, name: str) -> str:
    """What stands in a field."""
    [value] = re.findall(rf'<input type="text" id="{name}" name="{name}" value="([^"]*)"', page)
    return html.unescape(value)


def ticked(page: str, name: str) -> list[str]:
    """What is chosen of several."""
    return re.findall(rf'name="{name}" value="([^"]*)" checked', page)

"""The page for a new sweep: its form, the look at what would become of it, and the queue."""

from __future__ import annotations

import html
import io
import re
import tomllib
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm import registry
from farm.store.engine import reading, writing
from farm.store.tables import JobRow, SweepRow
from tests import factories
from tests.web.new_sweep_pages import (
    EVIL,
    TOML,
    add_two_agents,
    enqueue,
    file_of,
    followed,
    look,
    look_at_file,
    row_count,
    text_of,
    ticked,
    value_of,
)
from tests.web.web_client import SWEEP, client_of, csrf_of


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


def test_the_form_offers_what_is_registered_with_a_line_about_each(client: FlaskClient) -> None:
    answer = client.get("/sweeps/new")
    text = text_of(answer)
    known = registry.catalogue()
    for summary in (
        *(model.summary for model in known.models.values()),
        *(dataset.summary for dataset in known.datasets.values()),
        *(strategy.summary for strategy in known.strategies.values()),
    ):
        assert summary in text
    assert "1 437 examples" in text.replace("\u202f", " ")
    page = answer.get_data(as_text=True)
    assert ticked(page, "strategy") == ["single", "mwms_ring"]
    assert value_of(page, "world_size") == "1, 2"


def test_what_the_form_shows_first_can_be_enqueued_as_it_is(
    client: FlaskClient, engine: sa.Engine
) -> None:
    add_two_agents(engine)
    page = client.get("/sweeps/new").get_data(as_text=True)
    form = page.split('action="/sweeps/preview" enctype="multipart/form-data">', 1)[1]
    form = form.split("</form>", 1)[0]
    sent: dict[str, list[str]] = {}
    for kind, name, value, is_checked in re.findall(
        r'<input type="(\w+)"(?: id="[^"]*")? name="(\w+)" value="([^"]*)"( checked)?', form
    ):
        if kind not in ("checkbox", "radio") or is_checked:
            sent.setdefault(name, []).append(html.unescape(value))
    preview = followed(client, client.post("/sweeps/preview", data=sent))
    text = text_of(preview)
    assert "Enqueue does a second machine help?" in text
    assert "Enqueue 12 jobs" in text
    assert "Cannot run on the agents" not in text
    assert row_count(engine) == 0
    answer = enqueue(client, preview)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/sweeps/1")
    assert row_count(engine, JobRow) == 12
    assert "12 jobs are in the queue" in text_of(client.get("/sweeps/1"))


def test_a_data_set_of_ones_own_can_be_typed_and_stays_chosen(
    client: FlaskClient, engine: sa.Engine
) -> None:
    add_two_agents(engine)
    mine = "data:flowers.npz@b005a2175131:16x16x3:5:2000:200"
    form = client.get("/sweeps/new").get_data(as_text=True)
    assert '<input type="text" id="own-dataset" name="dataset"' in form
    preview = followed(client, look(client, dataset=["digits", mine]))
    [case] = tomllib.loads(file_of(preview.get_data(as_text=True)))["case"]
    assert case["dataset"] == ["digits", mine]
    refused = look(client, dataset=[f"{mine}:1"])
    assert "dataset: expected a name that `farm data` prints" in text_of(refused)
    assert ticked(refused.get_data(as_text=True), "dataset") == [f"{mine}:1"]


def test_a_preview_names_what_cannot_run_and_what_waits_for_other_agents(
    client: FlaskClient, engine: sa.Engine
) -> None:
    add_two_agents(engine)
    text = text_of(followed(client, look(client, world_size="1 2 4", labels="zone=north")))
    assert "by hand" in text
    assert "world_size: expected at least 2 for strategy 'mwms_ring', got 1" in text
    assert "world_size: expected 1 for strategy 'single', got 4 (2 configurations)" in text
    assert "4 jobs : needs 4 agents with zone=north; the farm has 2" in text
    assert row_count(engine) == 0


def test_a_preview_shows_the_sweep_file_and_hands_it_out(client: FlaskClient) -> None:
    preview = followed(client, look(client, one_way_delay_ms="0, 20", labels="zone=a b"))
    page = preview.get_data(as_text=True)
    shown = file_of(page)
    assert tomllib.loads(shown)["case"][0]["one_way_delay_ms"] == [0, 20]
    [address] = re.findall(r'href="(/sweeps/preview/sweep.toml\?draft=[^"]*)"', page)
    file = client.get(html.unescape(address))
    assert file.mimetype == "application/toml"
    assert "attachment" in file.headers["Content-Disposition"]
    assert file.get_data(as_text=True) == shown
    again = client.post("/api/v1/sweeps", data=shown, content_type="application/toml")
    assert again.status_code == 201


def test_a_change_begins_with_what_was_chosen(client: FlaskClient) -> None:
    looked = look(client, name='a "name" </textarea>', seed="7", repetitions_by="auto")
    page = followed(client, looked).get_data(as_text=True)
    [change] = set(re.findall(r'href="(/sweeps/new\?draft=[^"]*)"', page))
    form = client.get(html.unescape(change)).get_data(as_text=True)
    assert value_of(form, "name") == 'a "name" </textarea>'
    assert (value_of(form, "seed"), value_of(form, "repetitions")) == ("7", "2")
    assert ticked(form, "model") == ["mlp"]
    assert ticked(form, "repetitions_by") == ["auto"]
    assert '<details id="more" open>' in form
    assert 'repetitions = "auto"' in file_of(form)


def test_a_file_fills_the_form_where_it_can(client: FlaskClient) -> None:
    sent = f"# why\n{TOML}".replace("\n", "\r\n")  # as browsers send lines
    page = followed(client, look_at_file(client, sent)).get_data(as_text=True)
    [change] = set(re.findall(r'href="(/sweeps/new\?draft=[^"]*)"', page))
    form = client.get(html.unescape(change)).get_data(as_text=True)
    assert value_of(form, "name") == "from a file"
    assert value_of(form, "global_batch_size") == "32, 64"
    assert file_of(form) == f"# why\n{TOML}"
    ring = TOML.split("\n", 1)[1].replace("single", "mwms_ring").replace("size = 1", "size = 2")
    looked = look_at_file(client, TOML + ring)
    page = followed(client, looked).get_data(as_text=True)
    [change] = set(re.findall(r'href="(/sweeps/new\?draft=[^"]*)"', page))
    form = client.get(html.unescape(change)).get_data(as_text=True)
    assert value_of(form, "name") == "does a second machine help?"  # the form as at first
    assert "mwms_ring" in file_of(form)


def test_a_stored_sweep_can_be_the_beginning_of_another(
    client: FlaskClient, engine: sa.Engine
) -> None:
    assert client.post("/api/v1/sweeps", json=SWEEP).status_code == 201
    form = client.get("/sweeps/new?like=1").get_data(as_text=True)
    assert value_of(form, "name") == "two cells"
    assert tomllib.loads(file_of(form)) == SWEEP
    assert client.post("/api/v1/sweeps", json={**SWEEP, "name": "3"}).status_code == 201
    assert client.get("/sweeps/new?like=3").status_code == 404
    assert client.get("/sweeps/new?like=two%20cells").status_code == 404


def test_world_sizes_beyond_the_live_agents_are_marked(
    client: FlaskClient, engine: sa.Engine
) -> None:
    assert "1, 2: more than the 0 that can work together now" in text_of(client.get("/sweeps/new"))
    add_two_agents(engine)
    page = client.get("/sweeps/new").get_data(as_text=True)
    assert re.search(r'id="world_size-beyond"[^>]* hidden>', page)
    assert "zone=north" in page  # suggested as a label
    refused = look(client, world_size="1, 8, 2, 4", global_batch_size="none")
    marked = r'id="world_size-beyond"[^>]* role="status">4, 8: more than the 2 that can work'
    assert re.search(marked, refused.get_data(as_text=True))


def test_a_sweep_file_can_be_enqueued_without_a_look(
    client: FlaskClient, engine: sa.Engine
) -> None:
    page = client.get("/sweeps/new").get_data(as_text=True)
    data = {"sweep": file_of(page), "csrf_token": csrf_of(client, "/sweeps/new")}
    answer = client.post("/sweeps", data=data)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/sweeps/1")
    assert row_count(engine, JobRow) == 8
    assert "8 jobs are in the queue" in text_of(client.get("/sweeps/1"))


@pytest.mark.parametrize("path", ["/sweeps", "/sweeps/preview"])
def test_an_uploaded_file_goes_before_the_text(
    client: FlaskClient, engine: sa.Engine, path: str
) -> None:
    data = {
        "sweep": "nonsense",
        "csrf_token": csrf_of(client, "/sweeps/new"),
        "file": (io.BytesIO(b"\xef\xbb\xbf" + TOML.encode()), "../../sweep.toml"),
    }
    answer = client.post(path, data=data, content_type="multipart/form-data")
    if path == "/sweeps/preview":
        answer = enqueue(client, followed(client, answer))
    assert answer.status_code == 303
    with reading(engine) as session:
        assert session.scalar(sa.select(SweepRow.name)) == "from a file"


def test_a_form_that_is_sent_twice_is_enqueued_once(client: FlaskClient, engine: sa.Engine) -> None:
    preview = followed(client, look(client))
    first, again = enqueue(client, preview), enqueue(client, preview)
    assert first.headers["Location"] == again.headers["Location"] == "/sweeps/1"
    assert row_count(engine) == 1
    assert "the form was sent twice" in text_of(client.get("/sweeps/1"))
    # Whoever loads the preview again means it.
    address = preview.request.path + "?" + preview.request.query_string.decode()
    assert enqueue(client, client.get(address)).headers["Location"] == "/sweeps/2"


def test_two_presses_at_once_are_one_sweep(client: FlaskClient, engine: sa.Engine) -> None:
    page = client.get("/sweeps/new").get_data(as_text=True)
    [key] = re.findall(r'name="key" value="([^"]*)"', page)
    data = {"sweep": TOML, "csrf_token": csrf_of(client, "/sweeps/new"), "key": key}
    cookie = client.get_cookie("benchfarm_8080")
    assert cookie is not None

    def press(_: int) -> str:
        browser = client.application.test_client()
        browser.set_cookie("benchfarm_8080", cookie.value)
        return browser.post("/sweeps", data=data).headers["Location"]

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(press, range(8))) == {"/sweeps/1"}
    assert row_count(engine) == 1


def test_a_preview_expects_what_the_farm_measured_at_the_prices_it_names(
    client: FlaskClient, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        for number, batch_size in enumerate((16, 32, 64, 128, 256, 512)):
            factories.add_measurement(
                session,
                f"row {number}",
                model="mlp",
                dataset="digits",
                strategy="single",
                global_batch_size=batch_size,
                step_time_s=0.001 + 0.001 * batch_size,
                instance_type="Standard_D2s_v3",
            )
    looked = look(client, strategy=["single"], world_size="1", budget_machine_hours="1e-6")
    text = text_of(followed(client, looked))
    assert "training, one after another" in text
    assert "budget 0.000001 machine hours less than the time of machines" in text
    assert "(90 %)" in text
    assert "Standard_D2s_v3" in text.split("Prices that were used", 1)[1]
    assert "USD" in text.split("Expected time and cost", 1)[1].split("cost", 1)[1][:40]
    assert "Jobs without an estimate" not in text


def test_jobs_of_which_nothing_is_known_are_counted(client: FlaskClient) -> None:
    text = text_of(followed(client, look(client)))
    assert "Jobs without an estimate 8 jobs" in text


def test_a_sweep_until_precise_says_how_many_jobs_it_may_become(client: FlaskClient) -> None:
    looked = look(client, repetitions_by="auto", precision_percent="1", max_repetitions="7")
    text = text_of(followed(client, looked))
    assert "12 up to 28" in text
    assert "known to ± 1.0 %" in text


def test_what_users_wrote_is_shown_and_never_run(client: FlaskClient) -> None:
    looked = look(client, name=EVIL, labels=f"zone={EVIL}")
    preview = followed(client, looked)
    page = preview.get_data(as_text=True)
    assert EVIL not in page
    assert html.escape(EVIL, quote=False)[:14] in page
    [change] = set(re.findall(r'href="(/sweeps/new\?draft=[^"]*)"', page))
    assert EVIL not in client.get(html.unescape(change)).get_data(as_text=True)


def test_the_pages_need_nothing_that_their_policy_forbids(
    client: FlaskClient, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        factories.add_measurement(session, "x")
    preview = followed(client, look(client, world_size="1, 2, 4", one_way_delay_ms="0 5"))
    for answer in (client.get("/sweeps/new"), preview, look(client, name="")):
        page = answer.get_data(as_text=True)
        assert "style=" not in page
        assert not re.search(r"<script(?! src=\"/static/)", page)
        assert not re.search(r"<[^>]* on[a-z]+=", page)
        ids = re.findall(r' id="([^"]*)"', page)
        assert len(ids) == len(set(ids))
        named = re.findall(r'aria-describedby="([^"]*)"', page)
        assert {name for names in named for name in names.split()} <= set(ids)
        labelled = set(re.findall(r'<label[^>]* for="([^"]*)"', page))
        fields = re.findall(r'<(?:input type="(?:text|number|file)"|select|textarea)[^>]*>', page)
        for field in fields:
            [name] = re.findall(r' id="([^"]*)"', field)
            assert name in labelled


def test_the_planner_is_one_click_away_once_something_is_measured(
    client: FlaskClient, engine: sa.Engine
) -> None:
    assert "Nothing is measured yet" in text_of(client.get("/sweeps/new"))
    with writing(engine) as session:
        factories.add_measurement(session, "x", origin="anwar2021")
        factories.add_measurement(session, "x")
    page = client.get("/sweeps/new").get_data(as_text=True)
    form = page.split('method="get" action="/advice/plan"', 1)[1].split("</form>", 1)[0]
    assert re.findall(r'<option value="([^"]*)">[^<]', form) == ["farm", "anwar2021"]
    assert set(re.findall(r' name="([a-z_]+)"', form)) == {
        "origin",
        "model",
        "dataset",
        "global_batch_size",
        "one_way_delay_ms",
    }

"""The page that answers a question, and the page that says what to measure next."""

from __future__ import annotations

import html
import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.store.engine import reading, writing
from farm.store.tables import JobRow
from tests import factories
from tests.e2e.live_farm import wait_until
from tests.web.web_client import client_of, csrf_of
from web.drawing.plotly import bundle

EVIL = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where models are kept: most tests ask of the same measurements, and a fit takes seconds."""
    return str(tmp_path_factory.mktemp("home"))


@pytest.fixture
def client(engine: sa.Engine, home: str) -> FlaskClient:
    return client_of(engine, FARM_HOME=home)


@pytest.fixture
def measured(engine: sa.Engine) -> None:
    """One workload on 1, 2 and 4 machines with a price, three batch sizes, and a failure."""
    with writing(engine) as session:
        for batch in (32, 64, 128):
            for world_size in (1, 2, 4):
                for repetition in (0, 1):
                    step_time_s = (0.01 * batch / world_size + 0.02 * (world_size > 1)) * (
                        1 + 0.01 * repetition
                    )
                    factories.add_measurement(
                        session,
                        f"{batch} {world_size} {repetition}",
                        strategy="single" if world_size == 1 else "mwms_ring",
                        world_size=world_size,
                        global_batch_size=batch,
                        repetition=repetition,
                        instance_type="m5.large",
                        step_time_s=step_time_s,
                        time_per_epoch_s=100 * step_time_s,
                        steps_per_epoch=100,
                    )
        factories.add_measurement(
            session,
            "too large",
            strategy="mwms_ring",
            world_size=2,
            global_batch_size=256,
            instance_type="m5.large",
            status="out_of_memory",
            step_time_s=None,
        )


def _page(client: FlaskClient, path: str, status: int = 200) -> str:
    answer = client.get(path, follow_redirects=True)
    assert answer.status_code == status, answer.get_data(as_text=True)[:2000]
    return answer.get_data(as_text=True)


def _text(page: str) -> str:
    """Return what is read of a page: without scripts and tags, spaces folded."""
    page = re.sub(r"<script.*?</script>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def _final(client: FlaskClient, path: str) -> str:
    """Return the page once what it waits for has been made."""

    def page() -> str | None:
        found = _page(client, path)
        return None if "data-busy" in found else found

    found = wait_until(page, f"{path} is complete")
    assert found is not None
    return found


def _link(page: str, element_id: str) -> str:
    return html.unescape(page.split(f'id="{element_id}" href="', 1)[1].split('"', 1)[0])


def test_the_form_is_there_before_anything_is_measured(client: FlaskClient) -> None:
    page = _page(client, "/advice")
    assert 'name="global_batch_size"' in page
    assert "Recommended" not in page
    assert 'aria-current="page">Advice' in page


def test_a_question_is_answered_with_charts_prices_and_evidence(
    client: FlaskClient, measured: None
) -> None:
    page = _final(client, "/advice?global_batch_size=128&beta=1&alpha=1")
    text = _text(page)
    assert "Recommended for batch 128, mlp on digits" in text
    assert "4 machines m5.large" in text
    assert "basis measured in 2 repetitions" in text
    assert "Pareto front" in text
    assert "m5.large us-east-1" in text
    assert "2026-01-01" in text
    assert "mwms_ring with world_size 2 of m5.large, batch 256" in text
    assert page.count('<figure class="plot"') == 3
    rows = re.findall(r'href="/data/measurements/(\d+)"', page)
    assert len(rows) == 2
    assert "340 ms a step" in _text(_page(client, f"/data/measurements/{rows[0]}"))


def test_every_condition_of_the_network_is_named(client: FlaskClient, engine: sa.Engine) -> None:
    with writing(engine) as session:
        for repetition in range(3):
            factories.add_measurement(
                session,
                f"lossy {repetition}",
                strategy="mwms_ring",
                world_size=2,
                repetition=repetition,
                global_batch_size=64,
                packet_loss_ratio=0.005,
                step_time_s=0.1,
            )
    text = _text(_final(client, "/advice?global_batch_size=64&packet_loss_percent=0.5"))
    assert "Recommended for batch 64, mlp on digits, 0 s one way, 0.50 % lost" in text
    assert text.count("64 0 s one way, 0.50 % lost 100 ms") == 3
    assert "world size 2, batch 64, 0 s one way, 0.50 % lost" in _text(
        _page(client, "/data/measurements/1")
    )


def test_what_tells_options_apart_is_named_once(client: FlaskClient, engine: sa.Engine) -> None:
    with writing(engine) as session:
        for placement, step_time_s in (("packed", 0.1), ("spread", 0.2)):
            factories.add_measurement(
                session,
                placement,
                strategy="ps_sync",
                placement=placement,
                world_size=4,
                server_count=1,
                step_time_s=step_time_s,
            )
    text = _text(_final(client, "/advice?global_batch_size=32"))
    assert "ps_sync, world size 4 and 1 server, packed" in text
    assert "packed, packed" not in text


def test_what_was_asked_stays_in_the_form_and_in_the_address(
    client: FlaskClient, measured: None
) -> None:
    path = "/advice?origin=farm&global_batch_size=64&beta=2&epochs=3&model=&strategy=mwms_ring"
    page = _final(client, path)
    assert 'name="global_batch_size" value="64"' in page
    assert 'name="beta" value="2"' in page
    assert re.search(r'name="strategy" value="mwms_ring" checked', page)
    link = _link(page, "plan")
    assert parse_qs(urlsplit(link).query) == {
        "origin": ["farm"],
        "global_batch_size": ["64"],
        "beta": ["2"],
        "epochs": ["3"],
        "strategy": ["mwms_ring"],
    }
    as_json = _link(page, "as-json")
    answer = client.get(as_json).json
    assert answer is not None
    assert answer["recommended"]["epoch_count"] == 3


def test_a_form_leads_to_the_shortest_address_that_asks_so(client: FlaskClient) -> None:
    sent = "/advice?global_batch_size=64&model=&strategy=mwms_ring&strategy=single&price:m5.large="
    answer = client.get(sent)
    assert answer.status_code == 303
    led_to = urlsplit(answer.headers["Location"])
    assert led_to.path == "/advice"
    assert parse_qs(led_to.query) == {"global_batch_size": ["64"], "strategy": ["mwms_ring,single"]}
    assert client.get(answer.headers["Location"]).status_code == 200


def test_ticked_names_stay_ticked(client: FlaskClient, measured: None) -> None:
    page = _final(client, "/advice?global_batch_size=64&strategy=mwms_ring,single")
    for name in ("mwms_ring", "single"):
        assert re.search(rf'name="strategy" value="{name}" checked', page)


def test_prices_can_be_given_for_one_question(client: FlaskClient, measured: None) -> None:
    path = "/advice?global_batch_size=128&beta=1"
    assert "at 0.096 USD an hour for each machine" in _text(_final(client, path))
    sent = client.get(f"{path}&price:m5.large=9.6")
    page = _final(client, sent.headers["Location"])
    assert "at 9.6 USD an hour for each machine" in _text(page)
    assert re.search(r'name="price:m5.large" value="9.6" [^>]*placeholder="0.096"', page)
    costs = []
    for link in (_link(_final(client, path), "as-json"), _link(page, "as-json")):
        answer = client.get(link).json
        assert answer is not None
        costs.append(answer["recommended"]["cost_usd"])
    assert costs[1] == pytest.approx(100 * costs[0])


def test_machines_without_a_named_type_have_a_cost_once_it_is_given(
    client: FlaskClient, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        factories.add_measurement(session, "x", time_per_epoch_s=3600.0, steps_per_epoch=36_000)
    page = _final(client, "/advice?global_batch_size=32")
    assert "no price is known: give one" in _text(page)
    assert 'name="price:unnamed"' in page
    priced = _final(client, "/advice?global_batch_size=32&price:unnamed=0.25")
    assert "cost 0.25 USD" in _text(priced)


def test_a_question_without_a_batch_size_is_told_so(client: FlaskClient, measured: None) -> None:
    page = _page(client, "/advice?origin=farm&model=mlp", 400)
    assert "global_batch_size: expected a value" in _text(page)
    assert _page(client, "/advice?origin=farm")  # as links to the form have it


def test_the_script_draws_what_the_server_drew(client: FlaskClient, measured: None) -> None:
    page = _final(client, "/advice?global_batch_size=64")
    data = re.findall(r'<script type="application/json">(.*?)</script>', page, flags=re.DOTALL)
    figure = json.loads(data[0])
    assert {trace["name"] for trace in figure["data"]} == {"single", "mwms_ring"}
    ring = next(trace for trace in figure["data"] if trace["name"] == "mwms_ring")
    assert ring["x"] == [2, 4]
    assert all(bar is not None for bar in ring["error_y"]["array"])


def test_while_predictions_are_made_the_page_says_so(engine: sa.Engine, measured: None) -> None:
    client = client_of(engine)  # which finds no model anywhere
    page = _page(client, "/advice?global_batch_size=48")
    assert "Predictions are being computed" in page
    assert "data-busy" in page
    assert '<meta http-equiv="refresh"' in page
    final = _text(_final(client, "/advice?global_batch_size=48"))
    assert "interpolated" in final
    assert "Predictions are being computed" not in final


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("global_batch_size=0", "global_batch_size: expected a whole number"),
        ("global_batch_size=64&alpha=x", "alpha: expected a number"),
        ("global_batch_size=64&alpha=0&beta=0", "alpha: expected alpha or beta above 0"),
        ("global_batch_size=64&one_way_delay_ms=1&jitter_ms=2", "jitter_ms: expected at most"),
        ("global_batch_size=64&epochs=2&target_accuracy=0.5", "epochs: expected nothing beside"),
        ("global_batch_size=64&world_sizes=a", "world_sizes: expected whole numbers"),
        ("global_batch_size=64&prices=m5.large", "prices: expected pairs of an instance type"),
        ("global_batch_size=64&price:m5.large=-1", "prices: expected pairs of an instance type"),
    ],
)
def test_a_mistake_is_named_in_the_form(
    client: FlaskClient, measured: None, query: str, message: str
) -> None:
    page = _page(client, f"/advice?{query}", status=400)
    assert message in _text(page)
    assert 'aria-invalid="true"' in page
    assert 'name="global_batch_size"' in page


@pytest.mark.parametrize(
    "query",
    ["nonsense=1", "alpha=1&alpha=2", "origin=%00", "model=" + "x" * 300, "model=a%0Ab"],
)
def test_a_query_that_no_form_sends_is_refused(client: FlaskClient, query: str) -> None:
    assert client.get(f"/advice?{query}").status_code == 400
    assert client.get(f"/advice/plan?{query}").status_code == 400


@pytest.mark.parametrize(
    "name", ["'; DROP TABLE measurements; --", "<b>", "nowhere", "%", "\\", "x" * 200]
)
def test_an_origin_that_is_not_there_is_said(client: FlaskClient, name: str) -> None:
    for path in ("/advice", "/advice/plan"):
        answer = client.get(path, query_string={"origin": name, "global_batch_size": "64"})
        assert answer.status_code == 404
        assert "<b>" not in answer.get_data(as_text=True)


def test_names_of_users_are_shown_and_never_run(client: FlaskClient, engine: sa.Engine) -> None:
    with writing(engine) as session:
        for world_size in (1, 2):
            factories.add_measurement(
                session,
                f"evil {world_size}",
                model=EVIL,
                dataset=EVIL,
                strategy=EVIL,
                instance_type=EVIL,
                world_size=world_size,
                time_per_epoch_s=1.0,
            )
    page = _final(client, "/advice?global_batch_size=32")
    assert EVIL not in page
    assert "&lt;script&gt;" in page
    assert "</script>alert" not in page


def test_the_page_needs_no_inline_style_or_script(client: FlaskClient, measured: None) -> None:
    answer = client.get("/advice?global_batch_size=64")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "style-src" not in policy
    page = answer.get_data(as_text=True)
    assert "style=" not in page
    assert not re.search(r'<script(?! src="/static/| type="application/json">)', page)
    assert not re.search(r"<[^>]* on[a-z]+=", page)
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert client.get("/").headers["Content-Security-Policy"] in policy


def test_what_to_measure_next_is_one_click_away(
    client: FlaskClient, engine: sa.Engine, measured: None
) -> None:
    page = _final(client, "/advice/plan?global_batch_size=64&world_sizes=2,3,4,6")
    text = _text(page)
    assert "Expected cost of a wrong choice" in text
    assert "cannot run it as it is" not in text
    sweep = html.unescape(page.split("<textarea", 1)[1].split(">\n", 1)[1].split("</textarea>")[0])
    assert "global_batch_size = 64" in sweep
    data = {"sweep": sweep, "csrf_token": csrf_of(client)}
    answer = client.post("/sweeps", data=data)
    assert answer.status_code == 303
    with reading(engine) as session:
        assert (session.scalar(sa.select(sa.func.count()).select_from(JobRow)) or 0) >= 1


def test_a_plan_without_any_measurement_says_what_is_needed(client: FlaskClient) -> None:
    page = _final(client, "/advice/plan?global_batch_size=64")
    assert "since nothing is measured yet" in _text(page)


def test_plotly_comes_from_its_package_and_is_kept(client: FlaskClient, measured: None) -> None:
    if bundle() is None:
        pytest.skip("plotly is not installed")
    page = _final(client, "/advice?global_batch_size=64")
    [address] = re.findall(r'src="(/static/plotly-[^"]*)"', page)
    plain = client.get(address)
    assert plain.status_code == 200
    assert b"plotly.js" in plain.data[:200]
    assert "immutable" in plain.headers["Cache-Control"]
    packed = client.get(address, headers={"Accept-Encoding": "gzip, br"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert len(packed.data) < len(plain.data) / 2
    assert 'class="no-inline-styles"' in page
    assert client.get("/static/plotly-0.0.0.min.js").status_code == 404
    assert client.get("/static/plotly-..%2f..%2fetc.min.js").status_code == 404


def test_a_disturbed_answer_says_so_first_and_is_not_green(
    client: FlaskClient, engine: sa.Engine
) -> None:
    flag = {"kind": "foreign_load", "message": "a1, rank 0: 60 % of its cores ...", "value": 0.6}
    with writing(engine) as session:
        for repetition in range(3):
            for network in ("wan", "lan"):
                factories.add_measurement(
                    session,
                    f"{network} {repetition}",
                    strategy="ring",
                    network=network,
                    world_size=2,
                    step_time_s=(0.1 if network == "lan" else 0.2) + repetition / 1e4,
                    steps_per_epoch=10,
                    flags=[flag],
                )
    page = _final(client, "/advice?global_batch_size=32")
    text = _text(page)
    assert text.index("Only disturbed measurements, 3 of 3, by other programs (3).") < text.index(
        "2 machines ring, world size 2, network lan"
    )
    assert '<div class="verdict open">' in page
    assert "6 of the 6 measurements behind the options were disturbed" in text
    rows = text.split("Remark ")[1]
    assert rows.startswith("lan 32 ring 2 ")
    assert " wan 32 ring 2 " in rows

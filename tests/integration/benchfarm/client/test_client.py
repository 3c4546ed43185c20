"""The client against the real web application: every operation, refusals, cuts, settings."""

from __future__ import annotations

import html
import json
import os
import pickle
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from sqlalchemy import select
from sqlalchemy.orm import Session

import benchfarm
from benchfarm.client import (
    ClientError,
    Farm,
    NoSuchThing,
    NotAuthorized,
    NotConnected,
    RequestRefused,
    WrongServer,
)
from benchfarm.client.answers import FarmAdvice
from benchfarm.client.connect import config_file
from benchfarm.client.frames import frame_of
from farm.configuration.bundle import read_archive
from farm.gang.lifecycle import JobState
from farm.keys.api_tokens import Scope
from farm.store.engine import reading, writing
from farm.store.result_tables import MeasurementRow
from farm.store.tables import BundlePieceRow, JobRow, NotificationTarget, SweepRow
from tests.client_queries import api_document
from tests.factories import NOW, add_measurement, add_sweep, job_spec
from tests.fakes.server import wait_until
from tests.integration.benchfarm.client.conftest import Connect
from tests.web.web_client import SWEEP, make_api_token, seed

# No parser of JSON goes so deep.
_DEEP = [
    httpx.Response(200, content=b"[" * 100_000, headers={"Content-Type": "application/json"}),
    httpx.Response(
        400, content=b"[" * 100_000, headers={"Content-Type": "application/problem+json"}
    ),
]
SWEEP_TOML = """
name = "two cells"
[[case]]
model = "mlp"
dataset = "digits"
strategy = "single"
world_size = 1
global_batch_size = [32, 64]
"""


class Recorder(httpx.BaseTransport):
    """Notes the requests that pass."""

    def __init__(self, server: httpx.BaseTransport) -> None:
        self._server = server
        self.requests: list[tuple[str, str]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append((request.method, request.url.path))
        return self._server.handle_request(request)


class Cutting(httpx.BaseTransport):
    """Cuts the connection after the server has answered, the first `count` times of a method."""

    def __init__(self, server: httpx.BaseTransport, method: str, count: int) -> None:
        self._server = server
        self._method = method
        self.left = count

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._server.handle_request(request)
        if request.method == self._method and self.left:
            self.left -= 1
            answer.read()
            raise httpx.ReadError("the connection was cut", request=request)
        return answer


def test_every_operation_of_the_api_has_a_method(
    engine: sa.Engine, connected: Connect, tmp_path: Path
) -> None:
    seeded = seed(engine)
    passed: list[Recorder] = []

    def between(server: httpx.BaseTransport) -> httpx.BaseTransport:
        passed.append(Recorder(server))
        return passed[-1]

    farm = connected(between=between)
    sweep, job = farm.sweep(seeded.sweep_id), farm.job(seeded.measured)
    assert job.wait().state == "succeeded"
    with pytest.raises(ClientError, match="still running"):
        farm.job(seeded.running).wait(timeout_s=0)
    assert len(list(farm.sweeps())) == 1
    assert [j.id for j in farm.jobs(state="failed")] == [seeded.failed]
    farm.preview(SWEEP)
    farm.submit(SWEEP).cancel()
    with pytest.raises(RequestRefused):
        farm.send_bundle(b"no archive")
    farm.measurements(sweep=sweep.id)
    farm.recommend(model="mlp", dataset="digits", global_batch_size=64)
    farm.plan()
    farm.origins()
    with pytest.raises(NoSuchThing):
        farm.suspicious("nobody")
    farm.agents()
    assert list(farm.notifications(sweep=sweep.id)) == []
    farm.drain("a2")
    farm.resume("a2")
    job.series()
    job.series(full=True)
    job.steps()
    job.log()
    assert list(job.history()["sweep_id"]) == [sweep.id]
    for change in (farm.job(seeded.failed).retry, farm.job(seeded.waiting).cancel):
        change()
    sweep.plot(Figure().subplots())
    archive = sweep.bundle(tmp_path / "sweep.zip")
    assert "report.html" in zipfile.ZipFile(archive).namelist()
    with pytest.raises(ClientError, match="File exists"):
        sweep.bundle(archive)
    for steer in (sweep.pause, sweep.resume, sweep.retry, sweep.cancel):
        steer()

    paths = api_document()["paths"]
    expected = {(method.upper(), path) for path, found in paths.items() for method in found}
    called = {
        (method, path)
        for method, actual in passed[0].requests
        for path in paths
        if re.fullmatch(re.sub(r"\{\w+\}", r"[^/]+", path), actual)
        and not (path.endswith("{sweep_id}") and actual.endswith("/preview"))
    }
    assert called == expected


def test_a_sweep_names_who_gets_a_message(
    engine: sa.Engine, connected: Connect, tmp_path: Path
) -> None:
    farm = connected()
    own, another = "https://1.1.1.1/s3cret", "https://1.0.0.1/s3cret"
    path = tmp_path / "sweep.toml"
    path.write_text(f'notify = "{own}"\n{SWEEP_TOML}')
    sweep = farm.submit(path, notify=[another])
    masked = ["https://1.1.1.1/...", "https://1.0.0.1/..."]
    assert [one["address"] for one in sweep.notify] == masked
    with reading(engine) as session:
        targets = session.scalars(select(NotificationTarget).order_by(NotificationTarget.id)).all()
    assert [one.address for one in targets] == [own, another]
    assert [one.secret for one in targets] == [one["secret"] for one in sweep.notify]
    assert farm.submit(SWEEP).notify == ()
    assert len(farm.submit(SWEEP, notify=own).notify) == 1
    assert "notify" not in SWEEP
    for wrong in ("http://127.0.0.1/s3cret", "s3cret"):
        with pytest.raises(RequestRefused) as refused:
            farm.submit(SWEEP, notify=[wrong])
        assert refused.value.field == "notify[0]"
        assert "s3cret" not in str(refused.value)


def test_a_sweep_is_a_path_a_text_or_an_object(connected: Connect, tmp_path: Path) -> None:
    farm = connected()
    file = tmp_path / "sweep.toml"
    file.write_text(SWEEP_TOML)
    for source in (file, str(file), SWEEP_TOML, SWEEP):
        sweep = farm.submit(source)
        assert sweep.detail["name"] == "two cells"
        assert [job.state for job in sweep.jobs] == ["waiting", "waiting"]
        assert sweep.skipped == []


def test_a_script_beside_the_sweep_file_is_sent_along(
    engine: sa.Engine, connected: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("import helper\n")
    (tmp_path / "helper.py").write_text("print('one step')\n")
    (tmp_path / "scripts.toml").write_text(
        'name = "mine"\n[[case]]\nscript = "train.py"\nworld_size = 1\nglobal_batch_size = 8\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    sweep = connected(make_api_token(engine, scope=Scope.SUBMIT)).submit("scripts.toml")
    assert len(sweep.jobs) == 1
    with reading(engine) as session:
        [sent] = session.scalars(select(BundlePieceRow.content))  # short: one piece
    names = set(read_archive(sent).files)
    assert {"train.py", "helper.py"} <= names


@pytest.mark.parametrize("cuts", [1, 3])
def test_a_sweep_whose_answer_was_lost_is_enqueued_once(
    engine: sa.Engine, connected: Connect, cuts: int
) -> None:
    farm = connected(between=lambda server: Cutting(server, "POST", cuts))
    sweep = farm.submit(SWEEP)
    with reading(engine) as session:
        assert session.scalars(select(SweepRow.id)).all() == [sweep.id]


def test_a_server_that_never_answers_is_named(connected: Connect) -> None:
    farm = connected(between=lambda server: Cutting(server, "POST", 10**6), patience_s=0.5)
    with pytest.raises(NotConnected, match=r"http://127\.0\.0\.1 does not answer .*was cut"):
        farm.submit(SWEEP)


class Timing(httpx.BaseTransport):
    """Notes how long each request waits for the server to say something."""

    def __init__(self, server: httpx.BaseTransport) -> None:
        self._server = server
        self.waits: list[tuple[str, float]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.waits.append((request.url.path, request.extensions["timeout"]["read"]))
        return self._server.handle_request(request)


def _timed(connected: Connect) -> tuple[Farm, Timing]:
    made: list[Timing] = []

    def between(server: httpx.BaseTransport) -> Timing:
        made.append(Timing(server))
        return made[0]

    return connected(between=between), made[0]


def test_a_server_that_accepts_and_says_nothing_is_found_out_sooner_at_first(
    connected: Connect,
) -> None:
    farm, timing = _timed(connected)
    assert list(farm.sweeps()) == []
    [(_, first_s), (_, later_s)] = timing.waits
    assert first_s == 10
    assert later_s == 60


def test_a_wait_with_a_limit_waits_no_longer_for_the_server(connected: Connect) -> None:
    farm, timing = _timed(connected)
    sweep = farm.submit(SWEEP)
    timing.waits.clear()
    with pytest.raises(ClientError, match=r"is still waiting after 0\.2 s"):
        sweep.wait(timeout_s=0.2)
    of_events = [wait_s for path, wait_s in timing.waits if path.endswith("/events")]
    of_sweep = [wait_s for path, wait_s in timing.waits if not path.endswith("/events")]
    assert of_events
    assert max(of_events) <= 0.2
    assert len(of_sweep) > 1
    assert max(of_sweep) <= 2


def test_a_wait_of_hours_reads_events_until_the_server_ends_them(connected: Connect) -> None:
    farm, timing = _timed(connected)
    sweep = farm.submit(SWEEP)
    sweep.cancel()
    assert sweep.wait(timeout_s=3600).state == "finished"
    assert timing.waits[-1] == (f"/api/v1/sweeps/{sweep.id}", 60)


def test_a_name_that_is_no_utf8_is_refused_in_one_line(connected: Connect) -> None:
    farm = connected()
    for call in (
        lambda: farm.drain("\udc80"),
        lambda: farm.suspicious("\udc80"),
        lambda: farm.measurements(origin="\udc80"),
    ):
        with pytest.raises(ClientError, match=r"'\\udc80': expected a text in UTF-8"):
            call()
    with pytest.raises(RequestRefused, match="UTF-8"):
        farm.submit('name = "\udc80"\n')


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([2**70, -1, None], [float(2**70), -1.0, None]),
        ([2**70, 0.5], [float(2**70), 0.5]),
        ([10**400, 1], [str(10**400), "1"]),
        ([2**70, "x"], [str(2**70), "x"]),
        (["\ud800", "é"], ["\\ud800", "é"]),
    ],
)
def test_what_arrow_has_no_type_for_becomes_floats_or_text(
    values: list[object], column: list[object]
) -> None:
    table = frame_of([{"\ud800": value} for value in values], "pyarrow")
    assert table.column("\\ud800").to_pylist() == column


def test_a_refusal_says_which_field_and_what_is_expected(connected: Connect) -> None:
    farm = connected()
    with pytest.raises(RequestRefused, match=r"world_size.*got 0") as caught:
        farm.submit({**SWEEP, "case": [{**SWEEP["case"][0], "world_size": 0}]})  # type: ignore[index]
    assert caught.value.field == "case[0].world_size"
    assert caught.value.status == 422
    with pytest.raises(RequestRefused, match="TOML"):
        farm.submit("name = \n")
    with pytest.raises(ClientError, match=r"'absent.toml': No such file"):
        farm.submit("absent.toml")
    for unlike in ("\0", {"name": float("nan")}, {"name": object()}):
        with pytest.raises(ClientError, match=r"null byte|not JSON"):
            farm.submit(unlike)
    with pytest.raises(NoSuchThing, match="sweep 99"):
        farm.sweep(99)


def test_a_token_that_may_only_read_is_told_so(engine: sa.Engine, connected: Connect) -> None:
    token = make_api_token(engine, scope=Scope.READ)
    farm = connected(token)
    assert list(farm.sweeps()) == []
    with pytest.raises(NotAuthorized, match="scope") as caught:
        farm.submit(SWEEP)
    assert caught.value.status == 403
    with pytest.raises(NotAuthorized, match="BENCHFARM_TOKEN"):
        connected()
    with pytest.raises(NotConnected, match="copy it again"):
        connected("tök\nen")


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, html="<p>a page</p>"),
        httpx.Response(404, text="nothing here"),
        httpx.Response(200, json={"info": {"title": "another"}}),
        httpx.Response(200, json=[]),
        httpx.Response(200, content=b"{", headers={"Content-Type": "application/json"}),
        httpx.Response(400, content=b"{", headers={"Content-Type": "application/problem+json"}),
        httpx.Response(400, content=b"7", headers={"Content-Type": "application/problem+json"}),
        *_DEEP,
    ],
    ids=[
        "page",
        "404",
        "another API",
        "a list",
        "half",
        "half a problem",
        "a number",
        "deep",
        "a deep problem",
    ],
)
def test_another_server_is_no_farm(connected: Connect, answer: httpx.Response) -> None:
    with pytest.raises(WrongServer, match=r"http://127\.0\.0\.1"):
        connected(between=lambda _: httpx.MockTransport(lambda _: answer))


def test_an_answer_that_cannot_be_unpacked_is_of_no_farm() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(
            200, stream=httpx.ByteStream(b"no gzip"), headers={"Content-Encoding": "gzip"}
        )

    with pytest.raises(WrongServer, match=r"http://farm"):
        benchfarm.connect("http://farm", transport=httpx.MockTransport(answer))


@pytest.mark.parametrize(
    "retry_after",
    ["Mon, 01 Jan 2026 00:00:00 +999999999999999999", "Mon, 01 Jan 2026 9999999999999:00:00 GMT"],
)
def test_a_wait_that_no_calendar_has_is_none(retry_after: str) -> None:
    busy = httpx.Response(503, headers={"Retry-After": retry_after})
    with pytest.raises(NotConnected, match="503"):
        benchfarm.connect(
            "http://farm", patience_s=0, transport=httpx.MockTransport(lambda _: busy)
        )


def test_a_redirect_is_named_and_not_followed() -> None:
    moved = httpx.Response(308, headers={"Location": "https://farm.example.org/api"})
    with pytest.raises(WrongServer, match=r"leads to https://farm\.example\.org/api: connect to"):
        benchfarm.connect("http://farm", transport=httpx.MockTransport(lambda _: moved))


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_proxy_whose_server_is_away_is_no_other_server(status: int) -> None:
    page = httpx.Response(status, html="<p>later</p>")
    with pytest.raises(NotConnected, match=f"answers {status} .* is the farm's web server running"):
        benchfarm.connect(
            "http://farm", patience_s=0, transport=httpx.MockTransport(lambda _: page)
        )


class Changed(httpx.BaseTransport):
    """Changes each object of the server's answers, as a server of another version might."""

    def __init__(
        self, server: httpx.BaseTransport, change: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> None:
        self._server = server
        self._change = change

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._server.handle_request(request)
        if request.url.path.endswith("/openapi.json"):
            return answer
        body = json.loads(answer.read(), object_hook=self._change)
        return httpx.Response(answer.status_code, json=body)


@pytest.mark.parametrize(
    "use",
    [
        lambda farm: farm.submit(SWEEP),
        lambda farm: farm.preview(SWEEP)["jobs"],
        lambda farm: farm.sweep(1).wait(),
        lambda farm: farm.sweep(1).skipped,
        lambda farm: farm.sweep(1).cells(),
        lambda farm: farm.sweep(1).plot(),
        lambda farm: farm.job(1).state,
        lambda farm: farm.job(1).series(),
        lambda farm: farm.job(1).steps(),
        lambda farm: farm.job(1).log(),
        lambda farm: farm.recommend(model="mlp", dataset="digits", global_batch_size=64).headline,
        lambda farm: farm.origins(),
        lambda farm: farm.send_bundle(b"PK"),
        lambda farm: farm.agents(),
    ],
)
def test_what_a_server_of_another_version_does_not_say_is_named(
    engine: sa.Engine, connected: Connect, use: Callable[[Farm], object]
) -> None:
    seed(engine)
    farm = connected(between=lambda server: Changed(server, lambda _: {"title": "of old"}))
    with pytest.raises(WrongServer, match="version"):
        use(farm)


def test_what_a_newer_server_says_beside_is_passed_over(
    engine: sa.Engine, connected: Connect
) -> None:
    with writing(engine) as session:
        sweep_id = _add_measured_sweep(session)
    farm = connected(between=lambda server: Changed(server, lambda found: {**found, "new": 1}))
    assert farm.sweep(sweep_id).plot(Figure().subplots()).get_ylabel() == "Step time"


def test_an_answer_is_a_mapping_like_any_other(connected: Connect) -> None:
    answer = connected().preview(SWEEP)
    assert "no such field" not in answer
    assert answer.get("no such field") is None
    with pytest.raises(KeyError, match="the farm's answer has no 'no such field'"):
        answer["no such field"]


@pytest.mark.parametrize("kind", [RequestRefused, NotAuthorized, NoSuchThing])
def test_a_refusal_reaches_the_process_that_asked(kind: type[RequestRefused]) -> None:
    there = pickle.loads(pickle.dumps(kind("no such sweep", status=404, field="sweep")))
    assert type(there) is kind
    assert (str(there), there.status, there.field) == ("no such sweep", 404, "sweep")


@pytest.mark.slow
def test_a_users_own_program_is_checked_against_the_types(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import benchfarm\n"
        "farm = benchfarm.connect()\n"
        "answer = farm.recommend(global_batch_size='256')\n"
        "reveal_type(answer.headline)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", program.name]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert 'incompatible type "str"; expected "int"' in checked.stdout
    assert 'Revealed type is "str"' in checked.stdout
    assert "Found 1 error" in checked.stdout


@pytest.mark.parametrize("answer", [[], {}, {"items": 3, "next": None}, {"items": [{}, 1]}])
def test_a_list_of_another_form_is_of_no_farm(connected: Connect, answer: Any) -> None:
    class Odd(httpx.BaseTransport):
        def __init__(self, server: httpx.BaseTransport) -> None:
            self._server = server

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            is_list = request.url.path.endswith("/measurements")
            return (
                httpx.Response(200, json=answer)
                if is_list
                else self._server.handle_request(request)
            )

    with pytest.raises(WrongServer, match="/measurements"):
        connected(between=Odd).measurements()


@pytest.mark.parametrize(
    "url",
    ["", "farm", "ftp://farm", "http://", "http://[::1", "farm:8080", "http://me:secret@farm"],
)
def test_an_address_that_is_none_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(NotConnected, match="expected the farm's address"):
        benchfarm.connect(url or " ")


def _addressed(monkeypatch: pytest.MonkeyPatch, **arguments: str) -> tuple[str, str | None]:
    """Return where a connection goes, and with which token."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"info": {"title": "Benchfarm", "version": "1"}})

    benchfarm.connect(**arguments, transport=httpx.MockTransport(answer)).close()  # type: ignore[arg-type]
    return str(seen[0].url.copy_with(path="")), seen[0].headers.get("Authorization")


def test_address_and_token_come_from_arguments_environment_or_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = config_file(os.environ)
    file.parent.mkdir()
    assert _addressed(monkeypatch) == ("http://127.0.0.1:8080", None)
    file.write_text('url = "http://file"\ntoken = "of the file"\n')
    assert _addressed(monkeypatch) == ("http://file", "Bearer of the file")
    # The file's token is that of the file's farm.
    assert _addressed(monkeypatch, url="http://other") == ("http://other", None)
    monkeypatch.setenv("BENCHFARM_URL", "http://env")
    assert _addressed(monkeypatch) == ("http://env", None)
    monkeypatch.setenv("BENCHFARM_TOKEN", "of the environment")
    assert _addressed(monkeypatch) == ("http://env", "Bearer of the environment")
    assert _addressed(monkeypatch, token="mine") == ("http://env", "Bearer mine")
    monkeypatch.delenv("BENCHFARM_URL")
    for text in ("url = ", 'address = "x"', "url = 5", "\0"):
        file.write_text(text)
        with pytest.raises(NotConnected, match=r"client\.toml"):
            benchfarm.connect()


@pytest.mark.parametrize(
    "text", ['tokn = "secret"', '[farm]\ntoken = "secret"', 'token = ["secret"]', "token = secret"]
)
def test_a_file_that_is_wrong_shows_no_token(text: str) -> None:
    file = config_file(os.environ)
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(NotConnected, match=r"client\.toml") as caught:
        benchfarm.connect()
    assert "secret" not in str(caught.value)


def test_an_empty_variable_is_as_if_it_were_not_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = config_file(os.environ)
    file.parent.mkdir()
    file.write_text('url = "http://file"\ntoken = "of the file"\n')
    for name in ("BENCHFARM_URL", "BENCHFARM_TOKEN"):
        monkeypatch.setenv(name, "")
    assert _addressed(monkeypatch) == ("http://file", "Bearer of the file")
    # Never what happens to lie in the working folder.
    monkeypatch.chdir(tmp_path)
    assert config_file({"HOME": "", "XDG_CONFIG_HOME": ""}).is_absolute()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "nothing://127.0.0.1:1"),
        ("ALL_PROXY", "http://[::1"),
        ("SSL_CERT_FILE", "/not/there.pem"),
    ],
)
def test_a_proxy_or_certificates_that_are_wrong_are_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(NotConnected, match="proxy or certificates"):
        benchfarm.connect("https://127.0.0.1:1", patience_s=0)


def test_measurements_become_a_frame_of_each_library(engine: sa.Engine, connected: Connect) -> None:
    seeded = seed(engine)
    sweep = connected().sweep(seeded.sweep_id)
    frame = sweep.measurements()
    assert list(frame["job_id"]) == [seeded.measured, seeded.single]
    assert list(frame["step_time_s"]) == [0.2, 0.4]
    assert frame["step_time_s"].dtype == "float64"
    assert {"flags", "fingerprint", "step_time_low_s", "attempt_id", "cpu_ratio"} <= set(frame)
    table: Any = sweep.measurements(library="pyarrow")
    assert table.column("world_size").to_pylist() == [2, 1]
    with pytest.raises(ClientError, match="expected one of pandas"):
        sweep.measurements(library="numpy")  # type: ignore[arg-type]
    assert sweep.cells().shape[0] == 4


def test_a_frame_says_which_measurements_were_disturbed(
    engine: sa.Engine, connected: Connect
) -> None:
    seeded = seed(engine)
    of_importer = {"kind": "suspicious", "message": "as published"}
    of_farm = {"kind": "steal", "message": "20 % of its time went elsewhere", "value": 0.2}
    with writing(engine) as session:
        for job_id, flags in ((seeded.measured, [of_importer]), (seeded.single, [of_farm])):
            query = select(MeasurementRow).where(MeasurementRow.job_id == job_id)
            session.scalars(query).one().flags = flags
    frame = connected().sweep(seeded.sweep_id).measurements()
    assert frame["is_disturbed"].to_list() == [False, True]
    assert frame["is_disturbed"].dtype == "bool"


def test_one_can_calculate_with_numbers_that_no_row_knows(
    engine: sa.Engine, connected: Connect
) -> None:
    sweep = connected().sweep(seed(engine).sweep_id)
    cells = sweep.cells()
    width_s = cells["step_time_high_s"] - cells["step_time_low_s"]
    assert width_s.isna().all()
    assert width_s.dtype == "float64"
    assert sweep.measurements()["instance_type"].isna().all()  # a text, of which nothing is known
    assert sweep.measurements()["instance_type"].dtype == object


def test_no_measurements_are_an_empty_frame(connected: Connect) -> None:
    assert connected().measurements(model="mlp").empty


def test_a_connection_that_was_closed_says_so(connected: Connect) -> None:
    with connected() as farm:
        farm.close()
        with pytest.raises(NotConnected, match="connect"):
            list(farm.sweeps())


def test_many_pages_are_read_as_one_list(connected: Connect) -> None:
    farm = connected()
    ids = [farm.submit(SWEEP).id for _ in range(3)]
    assert [sweep.id for sweep in farm.sweeps()] == ids[::-1]
    large = farm.submit({**SWEEP, "repetitions": 300})
    jobs = large.jobs
    assert len(jobs) == 600
    assert len({job.id for job in jobs}) == 600


@pytest.mark.parametrize("full", [False, True])
def test_a_series_has_every_second_of_every_rank(
    engine: sa.Engine, connected: Connect, full: bool
) -> None:
    seeded = seed(engine)
    frame = connected().job(seeded.measured).series(full=full)
    assert list(frame["rank"]) == [0] * 9 + [1] * 9
    assert list(frame["tick"]) == [0, 1, 2, 3, 4, 6, 7, 8, 9] * 2
    assert set(frame["cpu_ratio"]) == {0.5}
    assert frame["net_tx_bytes_per_s"].isna().all()


def test_waiting_ends_with_the_sweep_or_says_why_it_does_not(
    connected: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    farm = connected()
    sweep = farm.submit(SWEEP)
    with pytest.raises(ClientError, match=r"sweep \d+ is still waiting after 0 s"):
        sweep.wait(timeout_s=0)
    sweep.pause()
    with pytest.raises(ClientError, match="is paused: resume"):
        sweep.wait()
    sweep.resume()
    sweep.cancel()
    assert sweep.wait(progress=True) is sweep
    assert capsys.readouterr().err == f"sweep {sweep.id}: 2 of 2 jobs\n"
    assert sweep.jobs[0].wait().state == "cancelled"


def test_waiting_ends_when_the_budget_is_used_up(engine: sa.Engine, connected: Connect) -> None:
    sweep = connected().submit({**SWEEP, "budget_machine_hours": 2})
    with writing(engine) as session:
        session.get_one(SweepRow, sweep.id).budget_used_up_at = NOW
    with pytest.raises(ClientError, match=r"is used up, and 2 jobs wait: resume\(budget_machine_"):
        sweep.wait()
    with pytest.raises(RequestRefused, match="is used up"):
        sweep.resume()
    sweep.resume(budget_machine_hours=3)
    assert sweep.refresh()["budget_machine_s"] == 3 * 3600
    sweep.cancel()
    sweep.wait()


def _add_measured_sweep(session: Session) -> int:
    """Add a sweep of one and of two ranks, three times each; return its id."""
    specs = [
        job_spec(world_size=world_size, repetition=number)
        for world_size in (1, 2)
        for number in range(3)
    ]
    jobs = [session.get_one(JobRow, job_id) for job_id in add_sweep(session, *specs)]
    for job, spec in zip(jobs, specs, strict=True):
        job.state = JobState.SUCCEEDED
        add_measurement(
            session,
            f"job {job.id}",
            job_id=job.id,
            strategy=spec.strategy,
            world_size=spec.world_size,
            step_time_s=(0.1 + 0.001 * spec.repetition) / spec.world_size,
        )
    return jobs[0].sweep_id


def test_a_sweep_is_drawn_with_the_intervals_of_its_cells(
    engine: sa.Engine, connected: Connect
) -> None:
    with writing(engine) as session:
        sweep_id = _add_measured_sweep(session)
    sweep = connected().sweep(sweep_id)
    axes = sweep.plot(Figure().subplots(), along="world_size")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("World size", "Step time")
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2"]
    cells = sweep.cells()
    [intervals] = [one for one in axes.collections if isinstance(one, LineCollection)]
    segments = intervals.get_segments()
    assert [segment[0, 0] for segment in segments] == [1, 2]
    assert [segment[:, 1].tolist() for segment in segments] == [
        pytest.approx(ends)
        for ends in zip(cells["step_time_low_s"], cells["step_time_high_s"], strict=True)
    ]
    sweep.plot(Figure().add_axes((0.1, 0.1, 0.8, 0.8)))  # of no grid


def test_a_sweep_with_nothing_to_draw_says_why(connected: Connect) -> None:
    farm = connected()
    one_cell = {**SWEEP, "case": [{**SWEEP["case"][0], "global_batch_size": 32}]}  # type: ignore[index]
    with pytest.raises(ClientError, match="varies no number"):
        farm.submit(one_cell).plot()
    waiting = farm.submit(SWEEP)
    with pytest.raises(ClientError, match="no cell has a known step time yet"):
        waiting.plot()
    with pytest.raises(RequestRefused, match=r"metric: expected one of step_time.*'speed'"):
        waiting.plot(metric="speed")
    with pytest.raises(
        RequestRefused, match=r"along: expected one of global_batch_size.*'world_size'"
    ):
        waiting.plot(along="world_size")


def test_an_answer_draws_itself_as_sure_as_it_is(engine: sa.Engine, connected: Connect) -> None:
    seed(engine)
    farm = connected()

    def predicted() -> FarmAdvice | None:
        advice = farm.recommend(model="mlp", dataset="digits", global_batch_size=64)
        return advice if advice["cautions"] else None

    # A busy machine answers without predictions at first.
    advice = wait_until(predicted, "there are predictions")
    shown = advice._repr_html_()
    assert advice["recommended"] is not None
    parts = (
        f"Recommended: {advice.headline}",
        *advice["cautions"],
        *advice["warnings"],
        "<table>",
    )
    assert all(part in html.unescape(shown) for part in parts)
    assert advice.options().shape[0] == len(advice["options"])
    axes = advice.plot()
    assert axes.get_title() == f"Recommended: {advice.headline}"
    nothing = farm.recommend(model="vgg16", dataset="digits", global_batch_size=64)
    assert nothing.headline.startswith("nothing, because ")
    assert nothing._repr_html_()
    assert farm.preview(SWEEP)._repr_html_().startswith("<table>")


def test_what_an_answer_says_is_no_markup(connected: Connect) -> None:
    farm = connected()
    sweep = farm.submit({**SWEEP, "name": "<script>alert(1)</script>"})
    assert "<script>" not in sweep.detail._repr_html_()

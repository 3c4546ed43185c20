"""A training script on the page of a new sweep: one that agents have, or one that is sent."""

from __future__ import annotations

import datetime as dt
import io
import stat
import zipfile
from collections.abc import Mapping

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient
from werkzeug.datastructures import FileStorage
from werkzeug.test import TestResponse

from farm.configuration.bundle import MAX_SCRIPT_BUNDLE_BYTES
from farm.keys.api_tokens import Scope
from farm.store.engine import reading, writing
from farm.store.tables import BundleRow, JobRow
from tests import factories
from tests.web.new_sweep_pages import (
    FORM,
    enqueue,
    followed,
    look,
    row_count,
    send_form,
    text_of,
    value_of,
)
from tests.web.web_client import TOKEN, client_of, csrf_of, make_api_token, sign_in

SCRIPT = {
    "script": "train.py",
    "args": "--batch {per_rank_batch_size} --hidden {hidden}",
    "parameters": "hidden=256,1024",
    "repetitions": "1",
}


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    client = client_of(engine, FARM_API_TOKEN=TOKEN)
    assert sign_in(client, TOKEN).status_code == 303
    return client


def send(client: FlaskClient, name: str, content: bytes, **fields: str) -> TestResponse:
    """Send the form with a file."""
    upload = FileStorage(io.BytesIO(content), name)
    return send_form(client, {**FORM, **SCRIPT, **fields, "script_files": upload})


def zipped(files: Mapping[str, bytes | int]) -> bytes:
    """A compressed ZIP file; a number is a kind of file in place of its content."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            member = zipfile.ZipInfo(path)
            member.compress_type = zipfile.ZIP_DEFLATED
            if isinstance(content, int):
                member.external_attr = content << 16
            archive.writestr(member, b"/etc/passwd" if isinstance(content, int) else content)
    return made.getvalue()


def models(engine: sa.Engine) -> set[str]:
    with reading(engine) as session:
        return set(session.scalars(sa.select(JobRow.model)))


def test_a_script_that_agents_have_is_offered_and_enqueued(
    client: FlaskClient, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        facts = factories.agent_facts(capabilities=("script:train.py", "python:hf"), cpus=(0,))
        factories.add_agent(session, "a1", heartbeat_at=dt.datetime.now(dt.UTC), facts=facts)
    page = client.get("/sweeps/new").get_data(as_text=True)
    assert '<datalist id="known-script"><option value="train.py"></datalist>' in page
    assert '<datalist id="known-python"><option value="hf"></datalist>' in page
    preview = followed(client, look(client, **SCRIPT))
    assert "Enqueue 8 jobs" in text_of(preview)
    enqueue(client, preview)
    given = "-- --batch {per_rank_batch_size} --hidden {hidden}"
    assert models(engine) == {
        f"script:train.py {{hidden}}={hidden} {given}" for hidden in (256, 1024)
    }


def test_one_file_is_sent_with_the_form(client: FlaskClient, engine: sa.Engine) -> None:
    preview = followed(client, send(client, "train.py", b"print(1)", script=""))
    enqueue(client, preview)
    assert all(model.startswith("bundle:train.py@") for model in models(engine))
    assert row_count(engine, JobRow) == 8


def test_a_folder_is_sent_as_archivers_make_it(client: FlaskClient, engine: sa.Engine) -> None:
    files = {"own/src/train.py": b"1", "own/.env": b"secret", "own/net.py": b"2", "__MACOSX/x": b""}
    made = zipped({"own/": b"", **files})
    answer = send(client, "own.zip", made, script="")
    assert answer.status_code == 422
    assert "script: expected the script's path in its files: net.py, src/train" in text_of(answer)
    # What was sent need not be sent again, and the folder around it may stand before the path.
    sha256 = value_of(answer.get_data(as_text=True), "bundle_sha256")
    answer = look(client, **SCRIPT | {"script": "own/src/train.py"}, bundle_sha256=sha256)
    enqueue(client, followed(client, answer))
    assert all(model.startswith("bundle:src/train.py@") for model in models(engine))
    with reading(engine) as session:
        assert session.scalars(sa.select(BundleRow.byte_count)).one() < 300


def test_what_was_sent_can_be_changed_without_sending_it_again(client: FlaskClient) -> None:
    sent = send(client, "train.py", b"print(1)")
    draft = sent.headers["Location"].partition("?")[2]
    page = client.get(f"/sweeps/new?{draft}").get_data(as_text=True)
    for name, text in SCRIPT.items():
        assert value_of(page, name) == text
    again = look(client, **SCRIPT, bundle_sha256=value_of(page, "bundle_sha256"))
    assert again.status_code == 303


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        ("x.zip", {"train.py": stat.S_IFLNK}, "ordinary files alone"),
        ("x.zip", {"../train.py": b""}, "a path below"),
        ("x.zip", {"train.py": bytes(21_000_000)}, "at most 20.0 MB unpacked"),
        ("x.zip", {}, "at least the script"),
        ("x.zip", None, "a ZIP file"),
        ("x.tar.gz", None, "a Python file or a ZIP file, got 'x.tar.gz'"),
        ("a b.py", None, "a path such as train.py"),
    ],
)
def test_files_that_no_agent_would_take_are_refused_at_their_field(
    name: str,
    files: Mapping[str, bytes | int] | None,
    message: str,
    client: FlaskClient,
    engine: sa.Engine,
) -> None:
    answer = send(client, name, b"no archive" if files is None else zipped(files))
    assert answer.status_code == 422
    assert message in text_of(answer)
    assert 'id="script_files-error"' in answer.get_data(as_text=True)
    with reading(engine) as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(BundleRow)) == 0


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("parameters", "hidden", "expected words such as hidden=256,1024 lr=1e-3"),
        ("parameters", "hidden='", "No closing quotation"),
        ("environment", "PATH=/tmp", "decides which program runs"),
        ("args", "{hiden} {hidden}", "did you mean 'hidden'?"),
        ("launcher", "slurm", "one of torch, tensorflow, none"),
        ("script", "../train.py", "a file's name"),
        ("script_sha256", "12", "64 hexadecimal digits"),
        ("steps", "some", 'or "all"'),
    ],
)
def test_a_field_that_does_not_fit_says_so_and_keeps_what_was_typed(
    field: str, text: str, message: str, client: FlaskClient
) -> None:
    answer = look(client, **{**SCRIPT, field: text})
    assert answer.status_code == 422
    page = answer.get_data(as_text=True)
    assert f'id="{field}-error"' in page
    assert message in text_of(answer)
    if field != "launcher":
        assert value_of(page, field) == text


def test_an_open_farm_takes_no_files_from_nobody_knows_whom(engine: sa.Engine) -> None:
    client = client_of(engine)
    answer = send(client, "train.py", b"print(1)")
    assert answer.status_code == 403
    assert "farm token create" in text_of(answer)


@pytest.mark.parametrize(
    ("scope", "is_own_form", "status", "bundle_count"),
    [
        (None, True, 303, 0),  # to the page that signs in
        (Scope.READ, True, 403, 0),
        (Scope.SUBMIT, False, 403, 0),
        (Scope.SUBMIT, True, 303, 1),
    ],
)
def test_only_who_may_submit_a_sweep_may_send_files(
    scope: Scope | None, is_own_form: bool, status: int, bundle_count: int, engine: sa.Engine
) -> None:
    client = client_of(engine, FARM_API_TOKEN=TOKEN)
    csrf_token = csrf_of(client, "/login")
    if scope is not None:
        sign_in(client, make_api_token(engine, scope=scope))
        with client.session_transaction() as session:
            csrf_token = session.setdefault("csrf", "of this test")
    answer = client.post(
        "/sweeps/preview",
        data={
            **FORM,
            **SCRIPT,
            "csrf_token": csrf_token if is_own_form else "of another site",
            "script_files": FileStorage(io.BytesIO(b"print(1)"), "train.py"),
        },
    )
    assert answer.status_code == status, text_of(answer)
    with reading(engine) as store:
        assert len(store.scalars(sa.select(BundleRow.sha256)).all()) == bundle_count


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.zip", zipped({"a/b.txt": b""}), "of which it has none"),
        ("x.zip", zipped({"train.py": b"#" * 2_000_000}), "at most 1.05 MB of Python"),
        ("train.py", b"#" * 2_000_000, "at most 1.05 MB of Python"),
    ],
)
def test_what_is_no_script_of_a_usual_size_is_refused(
    name: str, content: bytes, message: str, client: FlaskClient
) -> None:
    answer = send(client, name, content)
    assert answer.status_code == 422
    assert message in text_of(answer)


def test_a_bundle_that_the_server_lacks_is_refused_before_it_is_enqueued(
    client: FlaskClient,
) -> None:
    for sha256 in ("0" * 64, "0" * 12, "no such"):
        answer = look(client, **SCRIPT, bundle_sha256=sha256)
        assert answer.status_code == 422
        assert "choose the script's files again" in text_of(answer)
        assert 'id="bundle_sha256-error"' in answer.get_data(as_text=True)


def test_a_form_of_more_than_a_bundle_may_be_is_refused(client: FlaskClient) -> None:
    assert send(client, "x.zip", bytes(MAX_SCRIPT_BUNDLE_BYTES + 2 * 2**20)).status_code == 413

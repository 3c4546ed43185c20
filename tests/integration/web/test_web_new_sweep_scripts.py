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
from werkzeug.test import TestResponse

from farm.store.engine import reading, writing
from farm.store.tables import BundleRow, JobRow
from tests import factories
from tests.new_sweep_pages import (
    FORM,
    ON_ONE_DATABASE,
    enqueue,
    followed,
    look,
    row_count,
    text_of,
    value_of,
)
from tests.web_client import TOKEN, client_of, csrf_of, sign_in

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
    data = {"csrf_token": csrf_of(client), **FORM, **SCRIPT, **fields}
    return client.post(
        "/sweeps/preview", data={**data, "script_files": (io.BytesIO(content), name)}
    )


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
        facts = factories.agent_facts(capabilities=("script:train.py", "torch"), cpus=(0,))
        factories.add_agent(session, "a1", heartbeat_at=dt.datetime.now(dt.UTC), facts=facts)
    page = client.get("/sweeps/new").get_data(as_text=True)
    assert '<datalist id="known-scripts"><option value="train.py"></datalist>' in page
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
    assert "script: expected the script's path in own.zip: net.py, src/train.py" in text_of(answer)
    answer = send(client, "own.zip", made, script="src/train.py")
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


@ON_ONE_DATABASE
@pytest.mark.parametrize(
    ("name", "files", "said"),
    [
        ("x.zip", {"train.py": stat.S_IFLNK}, "ordinary files alone"),
        ("x.zip", {"../train.py": b""}, "a path below"),
        ("x.zip", {"train.py": bytes(21_000_000)}, "at most 20.0 MB unpacked"),
        ("x.zip", {"a/b.txt": b""}, "of which the archive has none"),
        ("x.zip", {}, "at least the script"),
        ("x.zip", None, "a ZIP file"),
        ("a b.py", None, "a path such as train.py"),
    ],
)
def test_files_that_no_agent_would_take_are_refused_at_their_field(
    name: str,
    files: Mapping[str, bytes | int] | None,
    said: str,
    client: FlaskClient,
    engine: sa.Engine,
) -> None:
    answer = send(client, name, b"no archive" if files is None else zipped(files))
    assert answer.status_code == 422
    assert said in text_of(answer)
    page = answer.get_data(as_text=True)
    assert 'id="script_files-error"' in page or 'id="script-error"' in page
    with reading(engine) as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(BundleRow)) == 0


@ON_ONE_DATABASE
@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("parameters", "hidden", "expected words such as hidden=256,1024 lr=1e-3"),
        ("parameters", "hidden='", "No closing quotation"),
        ("environment", "PATH=/tmp", "decides what is run"),
        ("args", "{hiden} {hidden}", "did you mean 'hidden'?"),
        ("launcher", "slurm", "one of torch, tensorflow, none"),
        ("script", "../train.py", "a file's name"),
        ("steps", "some", 'or "all"'),
    ],
)
def test_a_field_that_does_not_fit_says_so_and_keeps_what_was_typed(
    field: str, text: str, said: str, client: FlaskClient
) -> None:
    answer = look(client, **{**SCRIPT, field: text})
    assert answer.status_code == 422
    page = answer.get_data(as_text=True)
    assert f'id="{field}-error"' in page
    assert said in text_of(answer)
    if field != "launcher":
        assert value_of(page, field) == text


@ON_ONE_DATABASE
def test_an_open_farm_takes_no_files_from_nobody_knows_whom(engine: sa.Engine) -> None:
    client = client_of(engine)
    answer = send(client, "train.py", b"print(1)")
    assert answer.status_code == 403
    assert "farm token create" in text_of(answer)

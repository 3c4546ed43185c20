"""A script's files over HTTP: taken once, named by a sweep, and refused where they are none."""

from __future__ import annotations

import io
import zipfile

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.configuration.bundle import MAX_SCRIPT_BUNDLE_BYTES, ScriptBundle
from farm.store.engine import reading
from farm.store.tables import BundleRow, JobRow
from tests.web.web_client import TOKEN, client_of

BUNDLE = ScriptBundle({"src/train.py": b"print(1)", "net.py": b"x"})
CASE = {
    "script": "src/train.py",
    "bundle_sha256": BUNDLE.sha256,
    "world_size": [1, 2],
    "global_batch_size": 64,
    "steps": 5,
}
SWEEP = {"name": "mine", "case": [CASE]}


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    """Of somebody with a token: only these may send scripts without a connection of their own."""
    client = client_of(engine, FARM_API_TOKEN=TOKEN)
    client.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {TOKEN}"
    return client


def count(engine: sa.Engine) -> int:
    with reading(engine) as session:
        return int(session.scalar(sa.select(sa.func.count()).select_from(BundleRow)) or 0)


def test_a_sweep_names_a_bundle_that_was_sent(client: FlaskClient, engine: sa.Engine) -> None:
    refused = client.post("/api/v1/sweeps", json=SWEEP)
    assert refused.status_code == 422
    assert refused.get_json()["field"] == "bundle_sha256"
    for _ in range(2):
        sent = client.post("/api/v1/bundles", data=BUNDLE.archive, content_type="application/zip")
        assert sent.status_code == 201
        assert sent.get_json() == {
            "bundle_sha256": BUNDLE.sha256,
            "byte_count": len(BUNDLE.archive),
            "files": ["net.py", "src/train.py"],
        }
    assert count(engine) == 1
    lacking = {**SWEEP, "case": [{**CASE, "script": "train.py"}]}
    other = client.post("/api/v1/sweeps", json=lacking)
    assert other.status_code == 422
    assert other.get_json()["field"] == "script"
    assert "net.py, src/train.py" in other.get_json()["detail"]
    submitted = client.post("/api/v1/sweeps", json=SWEEP)
    assert submitted.status_code == 201
    with reading(engine) as session:
        models = set(session.scalars(sa.select(JobRow.model)))
    assert models == {f"bundle:src/train.py@{BUNDLE.sha256[:12]}"}


def test_an_open_farm_takes_no_script_from_nobody_knows_whom(engine: sa.Engine) -> None:
    refused = client_of(engine).post(
        "/api/v1/bundles", data=BUNDLE.archive, content_type="application/zip"
    )
    assert refused.status_code == 403
    assert "farm token create" in refused.get_data(as_text=True)
    assert count(engine) == 0


def test_what_an_archiver_made_without_compression_is_taken(client: FlaskClient) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("train.py", "print(1)")
    sent = client.post("/api/v1/bundles", data=made.getvalue(), content_type="application/zip")
    assert sent.status_code == 201


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"no archive", "application/zip", 422),
        (b"", "application/zip", 422),
        (BUNDLE.archive, "application/json", 415),
        (BUNDLE.archive, "text/plain", 415),
        (bytes(MAX_SCRIPT_BUNDLE_BYTES + 1), "application/zip", 413),
    ],
)
def test_what_is_none_is_refused_and_not_stored(
    body: bytes, content_type: str, status: int, client: FlaskClient, engine: sa.Engine
) -> None:
    refused = client.post("/api/v1/bundles", data=body, content_type=content_type)
    assert refused.status_code == status
    assert count(engine) == 0

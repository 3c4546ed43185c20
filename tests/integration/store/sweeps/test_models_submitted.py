"""Models at the door: too large for the farm's memory, and files that only agents have."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.store.engine import reading
from farm.store.queue.waiting import waiting_jobs
from farm.store.tables import BundleRow, JobRow
from tests.commands.farm_command import FarmCommand
from tests.factories import agent_facts
from tests.web.new_sweep_pages import (
    add_two_agents,
    followed,
    look,
    look_at_file,
    row_count,
    text_of,
)
from tests.web.web_client import client_of

# 50,000 x 1.28 MB of activations; the agents have 8 GiB.
LARGE = """
name = "too large"
[[case]]
model = "vgg16"
dataset = "synthetic_cifar10"
strategy = "single"
world_size = 1
global_batch_size = [64, 50000]
"""
FIELD_SAYS = "fit into 8.59 GB, the most that an agent has; with 50000 examples"
CASE = {
    **{"model": "vgg16", "dataset": "synthetic_cifar10", "strategy": "single"},
    **{"world_size": 1, "global_batch_size": [64, 50000]},
}
SWEEP: dict[str, Any] = {"name": "too large", "case": [CASE]}
FILE_SWEEP = {"name": "mine", "case": [{**CASE, "model": "file:mine.py", "global_batch_size": 64}]}

# Of what no database has a part in.
ON_SQLITE = pytest.mark.parametrize("database_kind", ["sqlite"])


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


def written(folder: Path, text: str) -> str:
    file = folder / "sweep.toml"
    file.write_text(text)
    return str(file)


@ON_SQLITE
def test_the_command_refuses_what_no_agent_has_the_memory_for(
    farm: FarmCommand, engine: sa.Engine, tmp_path: Path
) -> None:
    assert agent_facts().hardware.memory_bytes == 8 * 2**30
    add_two_agents(engine)
    line = farm.refusal("submit", written(tmp_path, LARGE), status=2)
    assert FIELD_SAYS in line
    assert row_count(engine) == 0
    output = farm.text("submit", written(tmp_path, f"skip_impossible = true\n{LARGE}"))
    assert output.startswith("sweep 1: 1 job enqueued\nleft out: model=vgg16")


@ON_SQLITE
def test_without_agents_nothing_is_known_and_nothing_refused(
    farm: FarmCommand, tmp_path: Path
) -> None:
    assert farm.text("submit", written(tmp_path, LARGE)) == "sweep 1: 2 jobs enqueued\n"


@ON_SQLITE
@pytest.mark.parametrize("address", ["/api/v1/sweeps", "/api/v1/sweeps/preview"])
def test_the_api_refuses_it_and_names_the_field(
    client: FlaskClient, engine: sa.Engine, address: str
) -> None:
    add_two_agents(engine)
    answer = client.post(address, json=SWEEP)
    assert answer.status_code == 422
    assert answer.get_json()["field"] == "model"
    assert FIELD_SAYS in answer.get_json()["detail"]
    assert row_count(engine) == 0
    left_out = client.post(address, json={**SWEEP, "skip_impossible": True}).get_json()
    assert left_out["job_count"] == 1
    assert FIELD_SAYS in left_out["skipped"][0]


@ON_SQLITE
def test_the_page_refuses_a_file_with_it_and_leaves_it_out_of_a_form(
    client: FlaskClient, engine: sa.Engine
) -> None:
    add_two_agents(engine)
    answer = look_at_file(client, LARGE)
    assert answer.status_code == 422
    assert FIELD_SAYS in text_of(answer)
    form = {"model": ["vgg16"], "dataset": ["synthetic_cifar10"], "strategy": ["single"]}
    answer = look(client, **form, world_size="1", global_batch_size="64, 50000")
    assert FIELD_SAYS in text_of(followed(client, answer))


def test_a_users_model_waits_for_agents_that_have_it(
    client: FlaskClient, engine: sa.Engine
) -> None:
    add_two_agents(engine)
    assert client.post("/api/v1/sweeps", json=FILE_SWEEP).get_json()["job_count"] == 1
    with reading(engine) as session:
        [job] = waiting_jobs(session, now=dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1))
    assert job.requires == {"model:mine.py"}
    answer = look(client, model=["file:mine.py"], strategy=["single"], world_size="1")
    assert "no agent has capability 'model:mine.py'" in text_of(followed(client, answer))


def test_a_script_that_is_in_the_folder_travels_with_the_sweep(
    farm: FarmCommand, engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text("print(1)")
    case = '[[case]]\nscript = "train.py"\nworld_size = [1]\nglobal_batch_size = 64\nsteps = 5\n'
    file = written(folder, f'name = "mine"\n{case}')
    done = farm.run("submit", file)
    assert done.exit_code == 0
    assert "train.py travels in a bundle of 2 files" in done.output
    with reading(engine) as session:
        [model] = session.scalars(sa.select(JobRow.model))
        [bundle] = session.scalars(sa.select(BundleRow))
    assert model == f"bundle:train.py@{bundle.sha256[:12]}"
    farm.text("submit", "--dry-run", file)
    assert row_count(engine) == 1


def test_a_script_that_is_not_here_is_one_that_agents_have(
    farm: FarmCommand, engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = '[[case]]\nscript = "train.py"\nworld_size = [1]\nglobal_batch_size = 64\nsteps = 5\n'
    farm.text("submit", written(tmp_path, f'name = "mine"\n{case}'))
    with reading(engine) as session:
        assert list(session.scalars(sa.select(JobRow.model))) == ["script:train.py"]

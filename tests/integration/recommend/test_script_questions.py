"""A question about a script of the user's: its newest version, another, never several pooled."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.errors import InvalidSpec, NotFound
from farm.recommend.contracts import Objective, Question
from farm.recommend.service import recommend
from farm.store.engine import reading, writing
from tests.commands.farm_command import FarmCommand
from tests.factories import add_measurement
from tests.web.web_client import client_of

OLD, NEW = "a" * 12, "b" * 12
COMMAND = "--batch-size '{per_rank_batch_size}'"


def add(engine: sa.Engine, *models: str, world_sizes: tuple[int, ...] = (1, 2)) -> None:
    with writing(engine) as session:
        for model in models:
            for world_size in world_sizes:
                add_measurement(
                    session,
                    f"{hash(model)} {world_size}",
                    model=model,
                    dataset="script",
                    strategy="torch_script",
                    world_size=world_size,
                    global_batch_size=64,
                    step_time_s=0.1 / world_size,
                )


def ask(engine: sa.Engine, **given: Any) -> tuple[set[int], tuple[str, ...]]:
    question = Question(global_batch_size=64, **given)
    with reading(engine) as session:
        answer = recommend(session, question=question, objective=Objective())
    return {i for option in answer.options for i in option.measurement_ids}, answer.warnings


@pytest.fixture
def versions(engine: sa.Engine) -> sa.Engine:
    add(engine, f"bundle:src/train.py@{OLD} {COMMAND}", f"bundle:src/train.py@{NEW} {COMMAND}")
    return engine


@pytest.mark.parametrize("name", ["src/train.py", "train.py", "./src/train.py"])
def test_the_newest_version_is_meant_and_older_ones_are_mentioned(
    versions: sa.Engine, name: str
) -> None:
    ids, warnings = ask(versions, script=name)
    assert ids == {3, 4}
    [warning] = [text for text in warnings if OLD in text]
    assert NEW in warning


def test_a_name_that_two_folders_have_is_not_guessed(versions: sa.Engine) -> None:
    add(versions, f"bundle:other/train.py@{NEW} {COMMAND}")
    assert ask(versions, script="src/train.py")[0] == {3, 4}
    with pytest.raises(InvalidSpec, match=r"one of other/train\.py, src/train\.py"):
        ask(versions, script="train.py")


@pytest.mark.parametrize("digits", [OLD, OLD[:4], OLD + "0" * 52])
def test_another_version_is_asked_for_by_its_sum(versions: sa.Engine, digits: str) -> None:
    ids, _ = ask(versions, script="src/train.py", script_sha256=digits)
    assert ids == {1, 2}


def test_what_was_not_measured_is_named(versions: sa.Engine) -> None:
    with pytest.raises(NotFound, match=r"other\.py"):
        ask(versions, script="other.py")
    with pytest.raises(NotFound, match=NEW):
        ask(versions, script="src/train.py", script_sha256="c" * 64)


def test_several_commands_of_a_version_are_not_pooled(versions: sa.Engine) -> None:
    add(versions, f"bundle:src/train.py@{NEW} --hidden 9")
    with pytest.raises(InvalidSpec, match="--hidden 9"):
        ask(versions, script="src/train.py")


def test_a_parameter_of_ones_own_is_fixed_in_a_question(engine: sa.Engine) -> None:
    given = "--hidden {hidden} --lr {lr}"
    for lr, hidden in (("1e-3", 256), ("1e-3", 1024), ("0.1", 256)):
        add(engine, f"bundle:train.py@{NEW} {{hidden}}={hidden} {{lr}}={lr} -- {given}")
    with pytest.raises(InvalidSpec) as refused:
        ask(engine, script="train.py")
    assert "hidden=1024 or hidden=256; lr=0.1 or lr=1e-3" in str(refused.value)
    with pytest.raises(InvalidSpec, match=r"expected lr=0\.1 or lr=1e-3"):
        ask(engine, script="train.py", script_parameters=("hidden=256",))
    ids, _ = ask(engine, script="train.py", script_parameters=("hidden=256", "lr=0.001"))
    assert ids == {1, 2}
    assert ask(engine, script="train.py", script_parameters=("hidden=1024",))[0] == {3, 4}
    with pytest.raises(InvalidSpec, match="expected one of hidden=1024, hidden=256, lr="):
        ask(engine, script="train.py", script_parameters=("heads=8",))


def test_a_script_and_a_model_or_a_sum_alone_contradict() -> None:
    with pytest.raises(InvalidSpec, match="either script or model"):
        Question(global_batch_size=64, script="train.py", model="mlp")
    for alone in ({"script_sha256": OLD}, {"script_parameters": ("hidden=9",)}):
        with pytest.raises(InvalidSpec, match="nothing without script"):
            Question(global_batch_size=64, **alone)


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


def test_the_api_and_its_page_answer_alike(versions: sa.Engine, client: FlaskClient) -> None:
    query = "script=src/train.py&global_batch_size=64"
    answer = client.get(f"/api/v1/recommendation?{query}")
    assert answer.status_code == 200
    assert answer.get_json()["recommended"]["world_size"] == 2
    assert client.get(f"/advice?{query}").status_code == 200
    absent = client.get("/api/v1/recommendation?script=other.py&global_batch_size=64")
    assert absent.status_code == 404
    both = client.get(f"/api/v1/recommendation?{query}&model=mlp")
    assert (both.status_code, both.get_json()["field"]) == (400, "script")


def test_the_commands_answer_alike(
    versions: sa.Engine, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = FarmCommand(versions, tmp_path / "home", monkeypatch)
    output = farm.text(
        "recommend", "--script", "src/train.py", "--global-batch-size", "64", "--json"
    )
    assert NEW in output
    planned = farm.run("plan", "--script", "src/train.py", "--script-sha256", OLD)
    assert OLD in planned.output
    assert NEW in planned.output  # as the version that is left out

"""Models of a user's own: what may be named, who is offered it, and what is read of it."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

from farm import registry
from farm.configuration.model_files import file_of, files_of, trouble_of
from farm.configuration.spec import JobSpec
from farm.errors import InvalidSpec
from farm.messages.trainer_lines import FailureKind
from farm.submission import plan
from farm.trainers.failures import RankFailed
from farm.trainers.model_files.model_file import ModelFile, read_model_file
from worker_agent.config import MOST_OFFERED, ModelFolder, load_config

SOURCE = b"def build(example_shape, class_count): ...\n"


def spec(model: str) -> JobSpec:
    return JobSpec(
        model=model, dataset="digits", strategy="single", world_size=1, global_batch_size=8, steps=1
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    for name in ("mine.py", "other.py"):
        file = tmp_path / name
        file.write_bytes(SOURCE)
        file.chmod(0o644)
    return tmp_path


def all_of(folder: Path) -> ModelFolder:
    return ModelFolder(path=folder, allowed=frozenset({"*"}))


# --- names ------------------------------------------------------------------------------------


def test_a_job_with_a_file_needs_agents_that_have_it() -> None:
    assert spec("file:mine.py").required_capabilities == {"model:mine.py"}
    assert spec("mlp").required_capabilities == set()
    assert files_of({"network", "model:mine.py"}) == {"file:mine.py"}


@pytest.mark.parametrize(
    "name",
    [
        *("file:", "file:mine", "file:../mine.py", "file:a/mine.py", "file:/etc/mine.py"),
        *("file:.py", "file:.mine.py", "file:a.b.py", "file:mine.py\n", "file:a\\mine.py"),
        *("file:-mine.py", "file:*", f"file:{'a' * 97}.py"),
    ],
)
def test_a_name_that_leads_elsewhere_is_refused_when_it_is_submitted(name: str) -> None:
    with pytest.raises(InvalidSpec, match=r"ends in \.py"):
        file_of(name)
    case = {
        **{"model": name, "dataset": "digits", "strategy": "single"},
        **{"world_size": 1, "global_batch_size": 8},
    }
    with pytest.raises(InvalidSpec) as refused:
        plan({"name": "n", "case": [case]})
    assert refused.value.field == "case[0].model"


def test_a_file_can_be_submitted_though_the_server_does_not_have_it() -> None:
    case = {
        **{"model": ["file:mine.py", "mlp"], "dataset": "digits", "strategy": "single"},
        **{"world_size": 1, "global_batch_size": 8},
    }
    jobs = plan({"name": "n", "case": [case]}).expansion.jobs
    assert {job.model for job in jobs} == {"file:mine.py", "mlp"}


# --- what an agent offers ---------------------------------------------------------------------


def test_only_what_is_allowed_is_offered(folder: Path) -> None:
    assert all_of(folder).names() == ("mine.py", "other.py")
    chosen = ModelFolder(path=folder, allowed=frozenset({"mine.py", "gone.py"}))
    assert chosen.names() == ("mine.py",)
    assert chosen.path_of("mine.py") == folder / "mine.py"
    assert chosen.path_of("other.py") is None
    assert ModelFolder(path=folder).names() == ()
    assert ModelFolder(path=folder).path_of("mine.py") is None


def test_heartbeats_stay_short_whatever_the_folder_has(folder: Path) -> None:
    for number in range(MOST_OFFERED):
        (folder / f"m{number:03}.py").touch(mode=0o644)
    assert len(all_of(folder).names()) == MOST_OFFERED


@pytest.mark.parametrize("name", ["../mine.py", "a/mine.py", "/mine.py", "..", ".mine.py", "*"])
def test_no_command_reaches_beyond_the_folder(folder: Path, name: str) -> None:
    assert all_of(folder).path_of(name) is None


def test_what_others_could_have_written_is_not_offered(folder: Path) -> None:
    (folder / "mine.py").chmod(0o666)
    (folder / "link.py").symlink_to(folder / "other.py")
    (folder / "folder.py").mkdir()
    os.mkfifo(folder / "pipe.py")
    (folder / "no-model.txt").write_text("")
    (folder / "two.dots.py").write_text("")
    assert all_of(folder).names() == ("other.py",)


def test_nothing_of_a_folder_that_others_may_write_is_offered(folder: Path) -> None:
    folder.chmod(0o777)
    assert all_of(folder).names() == ()
    assert all_of(folder).path_of("mine.py") is None


def test_files_belong_to_root_or_to_the_agents_user() -> None:
    mode = stat.S_IFREG | 0o644
    assert trouble_of(mode=mode, owner=0, own_uid=1000) is None
    assert trouble_of(mode=mode, owner=1000, own_uid=1000) is None
    assert "belongs to user 1001" in str(trouble_of(mode=mode, owner=1001, own_uid=1000))
    assert "chmod go-w" in str(trouble_of(mode=mode | 0o020, owner=0, own_uid=0))
    folder = stat.S_IFDIR | 0o755
    assert trouble_of(mode=folder, owner=0, own_uid=0, is_folder=True) is None
    assert "no regular file" in str(trouble_of(mode=folder, owner=0, own_uid=0))


def test_the_agents_settings_name_the_folder_and_the_files(folder: Path) -> None:
    given = {"AGENT_ID": "a", "AGENT_MODEL_DIR": str(folder), "AGENT_MODELS": "mine.py, gone.py"}
    assert load_config(given).models.names() == ("mine.py",)
    assert load_config({"AGENT_ID": "a"}).models.names() == ()
    with pytest.raises(InvalidSpec, match="without a folder"):
        load_config({**given, "AGENT_MODELS": "../mine.py"})


# --- what a trainer reads ---------------------------------------------------------------------


def test_a_file_is_read_with_its_hash_and_its_size_is_not_known(folder: Path) -> None:
    model = registry.model("file:mine.py", file=folder / "mine.py")
    assert isinstance(model, ModelFile)
    assert model.facts.name == "file:mine.py"
    assert model.sha256 == hashlib.sha256(SOURCE).hexdigest()
    assert model.describe((8, 8, 1), 10) is None


def test_a_file_that_is_not_there_or_not_safe_is_missing_on_this_agent(folder: Path) -> None:
    (folder / "mine.py").chmod(0o622)
    (folder / "link.py").symlink_to(folder / "other.py")
    (folder / "long.py").write_bytes(b"#" * 1_000_001)
    for name, why in [
        ("mine.py", "can be written by others"),
        ("link.py", "symbolic links"),
        ("long.py", "longer than"),
        ("gone.py", "No such file"),
    ]:
        with pytest.raises(RankFailed, match=why) as failed:
            read_model_file(name, folder / name)
        assert failed.value.kind is FailureKind.MODEL_MISSING
    with pytest.raises(RankFailed, match="AGENT_MODELS"):
        registry.model("file:mine.py")

"""Which files travel with a script, and how a sweep names what travels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from farm import script_folder
from farm.errors import InvalidSpec
from farm.script_folder import find_module, find_script, with_bundles

HOME = Path("/nonexistent/home")
REPOSITORY = Path(__file__).parents[3]


def written(folder: Path, *names: str) -> Path:
    """Write files that hold their names; return the script."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder / "train.py"


def test_keys_hidden_files_environments_and_what_is_ignored_stay_behind(tmp_path: Path) -> None:
    script = written(
        tmp_path / "own",
        *("train.py", "data/labels.csv", "nets/small.py", "big/model.bin", "notes.log"),
        *(".env", ".git/config", "server.pem", "id_rsa", "nets/__pycache__/small.pyc"),
        *("env/pyvenv.cfg", "env/lib/x.py", "node_modules/x.js"),
    )
    written(tmp_path / "own", "nets/big/model.bin", "root.txt", "nets/root.txt")
    (tmp_path / "own/.farmignore").write_text("# large\nbig/\n*.log\n/root.txt\n")
    files = find_script(script, home=HOME).bundle.files
    assert list(files) == ["data/labels.csv", "nets/root.txt", "nets/small.py", "train.py"]
    assert files["nets/small.py"] == b"nets/small.py"


def test_of_a_repository_what_git_tracks_is_copied_and_always_the_script(tmp_path: Path) -> None:
    own = tmp_path / "own"
    script = written(own, "train.py", "tracked.py", "scratch.py", "sub/tracked.py")
    subprocess.run(["git", "init", "-q", str(own)], check=True)
    subprocess.run(["git", "-C", str(own), "add", "tracked.py", "sub"], check=True)
    assert list(find_script(script, home=HOME).bundle.files) == [
        "sub/tracked.py",
        "tracked.py",
        "train.py",
    ]


def test_another_content_is_another_bundle_and_the_same_content_the_same(tmp_path: Path) -> None:
    script = written(tmp_path / "own", "train.py", "net.py")
    first = find_script(script, home=HOME).bundle.sha256
    os.utime(script, (0, 0))
    script.chmod(0o666)
    assert find_script(script, home=HOME).bundle.sha256 == first
    (tmp_path / "own/net.py").write_text("changed")
    second = find_script(script, home=HOME).bundle.sha256
    (tmp_path / "own/net.py").rename(tmp_path / "own/nets.py")
    assert len({first, second, find_script(script, home=HOME).bundle.sha256}) == 3


def test_a_script_below_the_working_folder_brings_all_of_that_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "src/train.py", "data/x.csv", "train.py")
    monkeypatch.chdir(tmp_path)
    found = find_script(Path("src/train.py"), home=HOME)
    assert (found.name, list(found.bundle.files)) == (
        "src/train.py",
        ["data/x.csv", "src/train.py", "train.py"],
    )
    monkeypatch.chdir(tmp_path / "data")
    assert find_script(Path("../src/train.py"), home=HOME).name == "train.py"


def test_scripts_of_a_sweep_that_are_here_travel_and_others_are_the_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "train.py", "named.py")
    monkeypatch.chdir(tmp_path)
    cases = [
        {"script": "train.py", "steps": 5},
        {"script": "named.py", "script_sha256": "0" * 64},
        {"script": "absent.py"},
        {"model": "mlp"},
        {"script": 3},
    ]
    sweep, found = with_bundles({"name": "x", "case": cases}, home=lambda: HOME)
    [one] = found
    assert isinstance(sweep, dict)
    first, *others = sweep["case"]
    assert first == {"script": "train.py", "steps": 5, "bundle_sha256": one.bundle.sha256}
    assert others == cases[1:]
    for odd in ({"case": 3}, 3, None, {"case": [3]}):
        assert with_bundles(odd, home=lambda: HOME) == (odd, [])


def test_links_are_followed_within_the_folder_alone(tmp_path: Path) -> None:
    script = written(tmp_path / "own", "train.py", "net.py")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "own/link").symlink_to(tmp_path / "secret")
    (tmp_path / "own/same.py").symlink_to("net.py")
    (tmp_path / "link.py").symlink_to(script)
    for name in (script, tmp_path / "link.py"):
        files = find_script(name, home=HOME).bundle.files
        assert list(files) == ["net.py", "same.py", "train.py"]
        assert files["same.py"] == b"net.py"


def test_odd_files_beside_a_script_do_no_harm(tmp_path: Path) -> None:
    script = written(tmp_path / "own", "train.py")
    os.mkfifo(tmp_path / "own/pipe")
    os.mkfifo(tmp_path / "own/.farmignore")
    (tmp_path / "own" / os.fsdecode(b"\xff.txt")).write_text("")
    assert list(find_script(script, home=HOME).bundle.files) == ["train.py"]


def test_an_ignore_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    script = written(tmp_path / "own", "train.py")
    (tmp_path / "own/.farmignore").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSpec, match="a file of text in UTF-8"):
        find_script(script, home=HOME)


@pytest.mark.parametrize(
    ("line", "message"),
    [("!train.py", "what is left out"), ("x", "another folder than the script's")],
)
def test_what_cannot_be_done_for_the_files_is_said(line: str, message: str, tmp_path: Path) -> None:
    script = written(tmp_path / "own", "train.py")
    (tmp_path / "own/.farmignore").write_text(line)
    with pytest.raises(InvalidSpec, match=message):
        find_script(script, home=HOME if line.startswith("!") else tmp_path / "own")


def test_too_much_is_refused_and_the_largest_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_folder, "MAX_SCRIPT_BUNDLE_BYTES", 20)
    script = written(tmp_path / "own", "train.py")
    (tmp_path / "own/large.bin").write_bytes(b"x" * 100)
    with pytest.raises(InvalidSpec, match=r"largest: large\.bin") as refused:
        find_script(script, home=HOME)
    assert ".farmignore" in str(refused.value)


def test_a_folder_that_is_gone_is_named(own: Path) -> None:
    script = written(own.parent, "train.py")
    own.rmdir()
    for name in (script, Path("../train.py")):
        with pytest.raises(InvalidSpec, match="script"):
            find_script(name, home=HOME)


def test_a_script_that_no_agent_would_run_is_refused(tmp_path: Path) -> None:
    script = written(tmp_path / "own", "train.py")
    script.write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(InvalidSpec, match="of Python"):
        find_script(script, home=HOME)


@pytest.mark.parametrize("name", ["absent.py", "train.txt", "a b.py", ".", "x" * 300 + ".py"])
def test_what_is_no_script_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("")
    (tmp_path / "a b.py").write_text("")
    with pytest.raises(InvalidSpec, match="script"):
        find_script(tmp_path / name, home=HOME)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder."""
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_a_module_is_started_by_a_script_beside_its_package(own: Path) -> None:
    written(own, "net/__init__.py", "net/train.py", "net/__main__.py", "data.csv")
    found = find_module("net.train", home=HOME)
    assert found.name == "run-net-train.py"
    assert set(found.bundle.files) == {
        *("data.csv", "run-net-train.py", "net/__init__.py", "net/__main__.py", "net/train.py")
    }
    assert find_module("net", home=HOME).name == "run-net.py"


def test_a_module_runs_as_python_itself_runs_it(own: Path) -> None:
    written(own, "net/__init__.py")
    text = (
        "import pickle, sys\nfrom . import __name__ as package\nclass Own: pass\n"
        "pickle.dumps(Own())\nprint(__name__, __spec__.name, package, *sys.argv[1:])"
    )
    (own / "net/__init__.py").write_text("")
    (own / "net/train.py").write_text(text)
    found = find_module("net.train", home=HOME)
    script = own / found.name
    script.write_bytes(found.bundle.files[found.name])
    ran = subprocess.run(
        [sys.executable, "-m", "benchfarm.run", str(script), "--width", "3"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert ran.stdout == "__main__ net.train net --width 3\n"


@pytest.mark.parametrize("name", ["absent", "net.absent", "torch.nn", "", "..own.net", "net/train"])
def test_what_is_no_module_of_the_folder_is_refused(name: str, own: Path) -> None:
    written(own, "net/__init__.py", "net/train.py")
    with pytest.raises(InvalidSpec, match="a module in"):
        find_module(name, home=HOME)


def test_the_farms_own_folder_stays_behind(own: Path) -> None:
    script = written(own, "train.py", "home/farm.db", "homes.txt")
    assert list(find_script(script, home=own / "home").bundle.files) == ["homes.txt", "train.py"]

"""The farm's commands of the documents, typed one after the other at a farm of processes.

Only the trainers are fake, and a first sweep is in the store as if it had been measured. What is
left out is below, each with who runs it instead or why nobody does here; a command that is neither
run nor listed fails. The other programs' are in `test_documented_shell`.
"""

from __future__ import annotations

import csv
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from farm.cli.main import main
from farm.store.engine import make_engine, writing
from farm.store.schema import upgrade
from tests.e2e.documents.documents import DOCS, ROOT, SWEEP, typed, typed_of
from tests.e2e.documents.measured_sweep import add_measured_sweep
from tests.e2e.live_farm import LiveFarm, live_farm
from tests.own_data_files import write_image_folder, write_npz, write_token_file

# The beginning of a command, and why it is not typed here.
LEFT_OUT = {
    "farm up": "runs until Ctrl-C: tests/integration/embedded/test_embedded_farm.py",
    "farm lab": "needs root: tests/lab/test_command.py, tests/lab/test_lab.py",
    "farm reproduce": "takes long: tests/integration/cli/start/test_cli_reproduce_loopback.py and, "
    "as root, tests/lab/test_reproduce.py, with sweeps of their own; each page is typed",
    "farm evaluate": "takes minutes: tests/integration/cli/advice/test_cli_evaluate.py",
    "farm measure": "starts a farm: tests/e2e/start/test_measure.py, and "
    "tests/e2e/documents/test_examples.py",
    "farm export 1 --to mlflow": "needs its server: tests/integration/trackers/test_mlflow.py",
    "farm submit next.toml": "its jobs need netem: tests/integration/cli/advice/test_cli_plan.py",
}
_BY_HAND = "typed on a booted root: tests/e2e/deploy/test_booted_by_hand.py"
_SHELL_TESTS = "tests/e2e/documents/test_documented_shell.py"
_SHELL = f"typed: {_SHELL_TESTS}"
# Programs of others, and what else a line may begin with.
OTHERS = {
    "make": f"each target is there: {_SHELL_TESTS}; CI runs demo, test and more",
    "python": f"takes long; its options are there: {_SHELL_TESTS}",
    **dict.fromkeys(("curl", "umask"), _SHELL),
    "echo": f"a token's header, {_SHELL}; a line of chrony's settings, on a VM of a cloud",
    **dict.fromkeys(("deploy/cloud-init/fill.py", "git", "ssh"), _SHELL),
    "deploy/install.sh": "on booted roots: tests/e2e/deploy/test_booted_farm.py",
    "docker": "needs its engine: tests/e2e/deploy/test_compose.py does the same in podman",
    "cp": "makes the compose file's settings, as tests/e2e/deploy/test_compose.py does",
    **dict.fromkeys(
        ("podman", "podman-compose"), "builds images: tests/e2e/deploy/test_compose.py"
    ),
    **dict.fromkeys(("pg_dump", "createdb", "pg_restore"), _BY_HAND),
    **dict.fromkeys(("useradd", "python3", "install", "systemctl", "systemd-run"), _BY_HAND),
    "export": f"where a database is, {_BY_HAND}; a region of AWS",
    "sudo": f"as postgres, {_BY_HAND}; of `farm lab` and `farm reproduce`: tests/lab/test_lab.py",
    **dict.fromkeys(("aws", "az"), "needs an account; options were looked up by hand"),
    **dict.fromkeys(("for", "done"), "around an account's commands"),
    **dict.fromkeys(("apt", "apt-get", "pip"), "installs packages on the machine"),
}


def is_left_out(command: str) -> bool:
    is_named = any(command == left or command.startswith(f"{left} ") for left in LEFT_OUT)
    return is_named and not command.endswith(" --page-only")


@pytest.fixture
def farm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveFarm]:
    with live_farm(tmp_path, agent_count=1, server={"FARM_MAX_ATTEMPTS": "50"}) as farm:
        for name, value in {
            "FARM_DATABASE_URL": farm.database_url,
            "FARM_BROKER_URL": farm.redis.url,
            "FARM_HOME": str(tmp_path),
            "FARM_SIGNING_KEY_FILE": str(tmp_path / "signing.key"),
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)
        with writing(farm.engine) as session:
            add_measured_sweep(session)
        yield farm


def write_files(folder: Path) -> None:
    """What the documents' commands read."""
    # A store of a farm that has been stopped.
    (folder / "me").mkdir()
    engine = make_engine(f"sqlite:///{folder}/me/farm.db")
    upgrade(engine)
    with writing(engine) as session:
        add_measured_sweep(session)
    engine.dispose()
    shutil.copytree(DOCS / "studies", folder / "docs/studies")
    (folder / "sweep.toml").write_text(SWEEP)
    with (folder / "mine.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["world_size", "global_batch_size", "step_time_s"])
        rows.writerows([n, 256, 0.1 / n] for n in (1, 2, 4))
    write_npz(folder / "flowers.npz")
    write_image_folder(folder / "photos")
    write_token_file(folder / "words.bin")
    (folder / "queries.csv").write_text("world_size,global_batch_size\n2,16000\n")


def as_here(command: str, folder: Path) -> str:
    """With this test's places in the place of those that stand for a reader's."""
    return (
        command.replace("/var/backups/benchfarm", str(folder))
        .replace("/home/me/.local/share/benchfarm", f"{folder}/me")
        # To a real one: tests/integration/cli/test_cli_db.py.
        .replace("postgresql://benchfarm@HOST/benchfarm", f"sqlite:///{folder}/copied.db")
        # Without a name service; nothing is sent there, since no scheduler runs.
        .replace("https://example.org/hook", "https://1.1.1.1/hook")
    )


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("farm")
def test_every_command_of_the_documents_does_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path)
    failed = []
    for command in typed_of("farm"):
        if is_left_out(command):
            continue
        with monkeypatch.context() as store:
            if command.startswith("farm db restore "):  # into an empty one, as they say
                store.setenv("FARM_DATABASE_URL", f"sqlite:///{tmp_path}/restored.db")
            words = shlex.split(as_here(command, tmp_path))[1:]
            result = CliRunner().invoke(main, words, input="y\n")
        # The doctor does what it says where it finds something wrong, such as a disk that is full.
        if result.exit_code not in ((0, 1) if command.startswith("farm doctor") else (0,)):
            failed.append(f"{command}: {result.exit_code}: {result.output[-400:]}")

    assert failed == []


def test_nothing_is_left_out_that_no_document_has_or_no_test_runs() -> None:
    commands = typed_of("farm")
    assert all(any(f"{c} ".startswith(f"{left} ") for c in commands) for left in LEFT_OUT)
    for why in (*LEFT_OUT.values(), *OTHERS.values()):
        for file in re.findall(r"tests/\S+\.py", why):
            assert (ROOT / file).exists(), file


def test_every_other_line_begins_with_a_program_that_is_listed() -> None:
    # An assignment, also of what a program prints; a program of the farm's own environment.
    first = {words[0] for words in typed()} - {"farm"}
    unknown = {word for word in first if "=" not in word and not word.startswith(("(", "/opt/"))}

    assert unknown == OTHERS.keys()

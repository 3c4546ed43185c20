"""The commands of the documents, typed one after the other at a farm of processes.

Only the trainers are fake. What is left out is below, each with who runs it instead or why nobody
does here; a command that is neither run nor listed fails.
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
from tests.e2e.live_farm import LiveFarm, live_farm

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = [
    *(ROOT / "README.md", ROOT / "deploy" / "README.md"),
    *sorted(DOCS.glob("*.md")),
    *sorted((DOCS / "clouds").glob("*.md")),
    *sorted((DOCS / "studies").glob("*.md")),
]
# The beginning of a command, and why it is not typed here.
LEFT_OUT = {
    "farm up": "tests/integration/test_embedded_farm.py",
    "farm lab": "needs root: tests/lab/test_command.py",
    "farm reproduce": "takes long: tests/integration/test_cli_reproduce.py; a page is typed",
    "farm evaluate": "takes minutes: tests/integration/test_cli_evaluate.py",
    "farm plan": "takes minutes of fits: tests/integration/test_cli_plan.py",
    "farm submit next.toml": "the file that farm plan writes",
    "farm plot 1 --kind map": "needs several widths: tests/integration/test_cli_plot.py",
    "farm plot 1 --kind lines": "needs several delays: the same",
    "farm plot 1 --kind bars": "the same",
    "farm plot 1 --kind series": "of another job: the same",
    "farm recommend --global-batch-size 256 --world-sizes": "prices: test_cli_recommend.py",
    "farm recommend --global-batch-size 256 --target-accuracy": "accuracies: the same",
    "farm db copy": "names a PostgreSQL of its own: tests/integration/test_cli_db.py",
}
# Programs of others, and what else a line may begin with.
OTHERS = {
    "make": "CI calls what the README promises: tests/unit/test_docs.py",
    "python": "benchmarks and the campaign take long; names: tests/unit/test_docs.py",
    "curl": "the API: tests/integration/test_web_openapi.py",
    "echo": "a token's header for curl, or a line of chrony's settings",
    "deploy/install.sh": "on booted roots: tests/e2e/test_booted_farm.py",
    "deploy/cloud-init/fill.py": "tests/unit/test_deploy_clouds.py",
    "git": "makes the archive that fill.py is given",
    "docker": "needs its engine; the file: tests/unit/test_deploy.py",
    **dict.fromkeys(("podman", "podman-compose"), "builds images: tests/e2e/test_compose.py"),
    "pg_dump": "tests/integration/test_store_backup.py",
    "pg_restore": "tests/integration/test_store_backup.py",
    **dict.fromkeys(("aws", "az"), "needs an account; options were looked up by hand"),
    **dict.fromkeys(("apt", "apt-get", "pip", "python3"), "installs packages"),
    **dict.fromkeys(("useradd", "install", "systemctl", "systemd-run"), "installs on the machine"),
    **dict.fromkeys(("sudo", "ssh", "createdb"), "somebody else's machine or account"),
    **dict.fromkeys(("umask", "export", "cp", "for", "done"), "the shell's"),
}
SWEEP = """
name = "documented"

[[case]]
model = "small_cnn"
dataset = "digits"
strategy = "single"
world_size = 1
global_batch_size = [64, 256]
steps = 20
"""


def typed() -> Iterator[list[str]]:
    """The words of every line in the documents' blocks of shell, without comments."""
    for document in DOCUMENTS:
        for block in re.findall(r"^ *```(?:ba)?sh\n(.*?)^ *```", document.read_text(), re.M | re.S):
            for line in block.replace("\\\n", " ").splitlines():
                if words := shlex.split(line, comments=True):
                    yield words


def is_left_out(command: str) -> bool:
    is_named = any(command == left or command.startswith(f"{left} ") for left in LEFT_OUT)
    return is_named and not command.endswith(" --page-only")


def documented() -> list[str]:
    """Every command of ours, once each."""
    return list(dict.fromkeys(shlex.join(words) for words in typed() if words[0] == "farm"))


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
        yield farm


def write_files(folder: Path) -> None:
    """What the documents' commands read."""
    shutil.copytree(DOCS / "studies", folder / "docs/studies")
    (folder / "sweep.toml").write_text(SWEEP)
    with (folder / "mine.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["world_size", "global_batch_size", "step_time_s"])
        rows.writerows([n, 256, 0.1 / n] for n in (1, 2, 4))
    (folder / "queries.csv").write_text("world_size,global_batch_size\n2,16000\n")


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("farm")
def test_every_command_of_the_documents_does_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path)
    failed = []
    for command in documented():
        if is_left_out(command):
            continue
        here = command.replace("/var/backups/benchfarm", str(tmp_path))
        with monkeypatch.context() as store:
            if command.startswith("farm db restore "):  # into an empty one, as they say
                store.setenv("FARM_DATABASE_URL", f"sqlite:///{tmp_path}/restored.db")
            result = CliRunner().invoke(main, shlex.split(here)[1:], input="y\n")
        # The doctor does what it says where it finds something wrong, such as a disk that is full.
        if result.exit_code not in ((0, 1) if command.startswith("farm doctor") else (0,)):
            failed.append(f"{command}: {result.exit_code}: {result.output[-400:]}")

    assert failed == []


def test_nothing_is_left_out_that_no_document_has_or_no_test_runs() -> None:
    commands = documented()
    assert all(any(f"{c} ".startswith(f"{left} ") for c in commands) for left in LEFT_OUT)
    for why in (*LEFT_OUT.values(), *OTHERS.values()):
        for file in re.findall(r"tests/\S+\.py", why):
            assert (ROOT / file).exists(), file


def test_every_other_line_begins_with_a_program_that_is_listed() -> None:
    # An assignment, also of what a program prints; a program of the farm's own environment.
    first = {words[0] for words in typed()} - {"farm"}
    unknown = {word for word in first if "=" not in word and not word.startswith(("(", "/opt/"))}

    assert unknown == OTHERS.keys()

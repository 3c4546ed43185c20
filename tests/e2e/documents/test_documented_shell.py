"""What the documents tell a reader to type beside the farm's own commands, as a shell has it."""

from __future__ import annotations

import base64
import hashlib
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks.__main__ import TABLE
from benchmarks.figures import new_parser
from farm.store.engine import writing
from tests.chaos.__main__ import main as chaos
from tests.compose.farm import ENDING, SERVERS
from tests.compose.images import TARGETS
from tests.e2e.documents.documents import DOCS, ROOT, block_with, typed_of
from tests.e2e.documents.measured_sweep import add_measured_sweep
from tests.e2e.live_farm import live_farm
from tests.e2e.web_process import web_process
from tests.services.redis_server import RedisServer

SWEEP = """
name = "documented"

[[case]]
model = "small_cnn"
dataset = "digits"
strategy = "single"
world_size = 1
global_batch_size = 64
steps = 20
"""
# What curl ends with when a stream has been open for as long as it was told.
_TIMED_OUT = 28


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def type_in_shell(lines: Sequence[str], folder: Path, settings: Mapping[str, str]) -> str:
    """Run lines as one shell does that ends at the first that fails; return what it prints."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FARM_", "AGENT_"))}
    programs = f"{folder / 'bin'}:{Path(sys.executable).parent}"
    done = subprocess.run(
        ["bash", "-xeo", "pipefail", "-c", "\n".join(lines)],
        cwd=folder,
        env={**kept, **settings, "HOME": str(folder), "PATH": f"{programs}:{kept['PATH']}"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs("bash", "curl", "jq")
@pytest.mark.timeout(300)
def test_the_guides_requests_are_answered(tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP)
    (tmp_path / ".curlrc").write_text("silent\nfail-with-body\nmax-time = 60\n")
    with live_farm(tmp_path, agent_count=1) as farm:
        with writing(farm.engine) as session:
            add_measured_sweep(session)
        settings = {"FARM_DATABASE_URL": farm.database_url, "FARM_HOME": str(tmp_path)}
        with web_process(farm.database_url, home=tmp_path, broker_url=farm.redis.url) as address:
            lines = [
                line.replace("http://127.0.0.1:8080", address)
                # A stream that stays open.
                + (f" --max-time 3 || [ $? = {_TIMED_OUT} ]" if " -N " in line else "")
                for line in block_with(DOCS / "guide.md", "curl ")
            ]
            output = type_in_shell(lines, tmp_path, settings)
    assert '"agent-1"' in output
    assert "[[case]]" in (tmp_path / "next.toml").read_text()
    assert (tmp_path / "farm.header").stat().st_mode & 0o077 == 0


@needs("bash", "git")
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout of git")
def test_user_data_of_vms_are_made_of_a_checkout(tmp_path: Path) -> None:
    """The server is this machine: `ssh SERVER sudo` does here what it would do there."""
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    for name, line in {"ssh": 'shift; exec "$@"', "sudo": 'exec "$@"'}.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
    settings = {
        "GIT_DIR": str(ROOT / ".git"),
        "FARM_DATABASE_URL": f"sqlite:///{tmp_path}/farm.db",
        "FARM_HOME": str(tmp_path),
        # As agents know it, and as this machine makes accounts there.
        "FARM_BROKER_URL": "redis://server:hush@10.0.0.2:6379/0",
        "FARM_PLAINTEXT": "broker",
        "FARM_SIGNING_KEY_FILE": str(tmp_path / "signing.key"),
    }
    page = DOCS / "clouds/README.md"
    lines = [*block_with(page, "git "), "farm db upgrade", *block_with(page, "ssh ")]
    redis = RedisServer(tmp_path)
    redis.start()
    try:
        type_in_shell(lines, tmp_path, {**settings, "FARM_BROKER_ADMIN_URL": redis.url})
    finally:
        redis.kill()

    archive = (tmp_path / "benchfarm.tar.gz").read_bytes()
    assert hashlib.sha256(archive).hexdigest() in (tmp_path / "server.yaml").read_text()
    agent = base64.b64encode((tmp_path / "vm-1.env").read_bytes()).decode()
    assert agent in (tmp_path / "vm-1.yaml").read_text()
    assert (tmp_path / "vm-1.yaml").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("command", typed_of("make"))
def test_there_is_what_a_reader_is_told_to_make(command: str) -> None:
    done = subprocess.run(
        [*shlex.split(command), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [c for c in typed_of("python") if "-m benchmarks" in c])
def test_a_benchmark_takes_the_options_that_a_reader_is_told(command: str) -> None:
    _, _, module, *arguments = shlex.split(command)
    if module != "benchmarks":
        options = getattr(importlib.import_module(module), "add_options", None)
        new_parser("", options).parse_args(arguments)
    elif "--write" in arguments:  # names: tests/unit/repository/test_docs.py
        assert TABLE.is_in(ROOT / arguments[arguments.index("--write") + 1])


@pytest.mark.parametrize("command", [c for c in typed_of("python") if "-m tests.chaos" in c])
def test_the_campaign_takes_the_options_that_a_reader_is_told(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends after its list where it is asked for one, too."""
    assert chaos([*shlex.split(command)[3:], "--list"]) == 0
    kinds = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert set(re.findall(r"--only '(.+?)'", command)) <= set(kinds)


def test_every_module_that_a_reader_is_told_to_run_is_looked_at() -> None:
    modules = {shlex.split(command)[2].partition(".")[0] for command in typed_of("python")}
    assert modules == {"benchmarks", "tests"}


def test_podman_is_told_to_start_what_its_own_test_starts_in_that_order() -> None:
    """tests/e2e/deploy/test_compose.py has options beside these, since it reaches no registry."""
    built = [shlex.split(command) for command in typed_of("podman")]
    assert [words[words.index("--target") + 1] for words in built] == list(TARGETS)
    assert [words[-3:] for words in built] == [["-t", f"benchfarm-{name}", "."] for name in TARGETS]
    started = [shlex.split(command)[5:] for command in typed_of("podman-compose")]
    last = ["--scale", "agent=2", "agent"]
    assert started == [["redis", "postgres"], *([name] for name in ENDING), [*SERVERS], last]

"""What `deploy/install.sh` makes of the system that it finds: its packages, Python and Redis."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from tests.commands.installer_script import DEPLOY, installer
from tests.e2e.deploy.booted_system import PACKAGES

UBUNTU = 'ID={id}\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n'
# As Ubuntu 22.04 has them, and no other Python.
OLD_PYTHON = (
    'python3() { [ "$1" != --version ] || echo Python 3.10.12; [ "$1" = --version ]; }',
    "python3.13() { return 127; }; python3.12() { return 127; }; python3.11() { return 127; }",
)
REDIS = 'redis-server() {{ echo "Redis server v={version} sha=00000000:0 malloc=libc bits=64"; }}'


@pytest.fixture
def ubuntu(tmp_path: Path) -> str:
    (tmp_path / "os-release").write_text(UBUNTU.format(id="ubuntu"))
    return f"OS_RELEASE={tmp_path}/os-release"


def test_a_system_whose_python_is_too_old_is_told_in_one_line_what_to_take(
    tmp_path: Path, ubuntu: str
) -> None:
    output = installer(tmp_path, ubuntu, *OLD_PYTHON, "(find_python) 2>&1 || true")
    assert output == (
        "install.sh: Python: expected 3.11, 3.12 or 3.13, got Python 3.10.12 of Ubuntu 22.04.5 LTS:"
        " take Debian 12, Debian 13 or Ubuntu 24.04, or install one of them with its module venv\n"
    )


def test_another_python_is_taken_with_the_venv_module_of_its_own(tmp_path: Path) -> None:
    bare = tmp_path / "python3.11"
    bare.write_text("#!/bin/sh\nexit 1\n")
    bare.chmod(0o755)
    taken = ("python3.11() { :; }", "find_python", "apt_install() { echo $*; }")
    output = installer(tmp_path, *OLD_PYTHON, *taken, f"PYTHON={bare}", "own_venv")
    assert output.split() == ["python3.11", "python3.11-venv"]


@pytest.mark.parametrize(
    ("version", "said_first"),
    [
        ("7.0.15", "taken"),
        ("10.1.0", "taken"),
        # Of Ubuntu 22.04.
        ("6.0.16", "install.sh: Redis: expected 7.0 or newer, got 6.0.16 of Ubuntu 22.04.5 LTS:"),
    ],
)
def test_a_redis_that_would_not_start_is_refused(
    tmp_path: Path, ubuntu: str, version: str, said_first: str
) -> None:
    redis = REDIS.format(version=version)
    output = installer(tmp_path, ubuntu, redis, "(check_redis && echo taken) 2>&1 || true")
    assert output.startswith(said_first)


@pytest.mark.parametrize(("name", "is_told"), [("ubuntu", True), ("debian", False)])
def test_what_ubuntu_lacks_without_its_component_universe_is_said(
    tmp_path: Path, name: str, *, is_told: bool
) -> None:
    (tmp_path / "os-release").write_text(UBUNTU.format(id=name))
    lacking = ("dpkg-query() { return 1; }", "apt_get() { [ $1 = update ]; }")
    output = installer(
        tmp_path,
        *(f"OS_RELEASE={tmp_path}/os-release", 'eval "$ITS_APT_INSTALL"', *lacking),
        "apt_install redis-server || echo lacking",
    )
    assert output.endswith("lacking\n")
    assert ("universe" in output) == is_told


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="apt is not installed")
def test_an_apt_that_another_one_locks_out_waits_for_it(tmp_path: Path) -> None:
    """That of the lists, for which apt does not wait by itself."""
    lists = tmp_path / "lists"
    (lists / "partial").mkdir(parents=True)
    settings = tmp_path / "apt.conf"
    settings.write_text(
        f'Dir::State::lists "{lists}"; Dir::Cache "{tmp_path}"; APT::Sandbox::User "root";\n'
        'Dir::Etc::sourcelist "/dev/null"; Dir::Etc::sourceparts "/dev/null";\n'
    )
    with (lists / "lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        pipe = tmp_path / "told"
        subprocess.run(["mkfifo", str(pipe)], check=True)

        def let_it_go_on() -> None:
            with pipe.open() as lines:
                assert "waiting for another apt" in lines.readline()
            fcntl.lockf(lock, fcntl.LOCK_UN)

        other = threading.Thread(target=let_it_go_on)
        other.start()
        output = installer(
            tmp_path, f"export APT_CONFIG={settings}", f"apt_get update >{pipe}", "echo updated"
        )
        other.join()
    assert output == "updated\n"


def test_an_apt_that_fails_of_itself_is_not_tried_again(tmp_path: Path) -> None:
    failing = (
        f"apt-get() {{ echo tried >>{tmp_path}/tries; echo E: no such package >&2; return 9; }}"
    )
    output = installer(tmp_path, failing, "apt_get install x 2>&1 || echo failed")
    assert output == "E: no such package\nfailed\n"
    assert (tmp_path / "tries").read_text() == "tried\n"


def test_ci_and_the_booted_roots_have_what_the_script_installs() -> None:
    """Without a mirror they would find out one after the other."""
    ci = (DEPLOY.parent / ".ci/run").read_text()
    [needed] = re.findall(r"^needed=\((.*)\)$", ci, re.MULTILINE)
    # Systemd is found by its program.
    assert {*needed.split(), "systemd"} == set(PACKAGES)
    assert "systemd-analyze:systemd" in ci
    calls = re.findall(r"\bapt_install ([a-z][\w -]+)", (DEPLOY / "install.sh").read_text())
    assert {package for call in calls for package in call.split()} < set(PACKAGES)
    assert "python3-venv" in PACKAGES

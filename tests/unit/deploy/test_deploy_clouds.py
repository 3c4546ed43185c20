"""User data of cloud VMs, and the agents of a Slurm allocation."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
CLOUD_INIT = ROOT / "deploy" / "cloud-init"
SBATCH = ROOT / "deploy" / "slurm" / "benchfarm-agents.sbatch"
# What a signed address of an object store looks like.
URL = "https://store.example.org/benchfarm.tar.gz?se=2026-11-30&sig=a%2Bb%3D&x=|/"
SETTINGS = """\
AGENT_ID=vm-1
AGENT_KEY=0123456789abcdef
FARM_BROKER_URL=rediss://vm-1:p&ss|w@10.0.0.2:6379/0?ssl_ca_certs=/etc/benchfarm/authority.pem
# What it trusts
# -----BEGIN CERTIFICATE-----
# MIIB+/=
# -----END CERTIFICATE-----
"""


def fill(
    folder: Path,
    role: str,
    *,
    settings: str | None = SETTINGS,
    url: str = URL,
    content: bytes = b"an archive",
) -> Any:
    archive = folder / "benchfarm.tar.gz"
    archive.write_bytes(content)
    command = [sys.executable, str(CLOUD_INIT / "fill.py"), role, "--url", url]
    command += ["--archive", str(archive)]
    if settings is not None:
        (folder / "vm-1.env").write_text(settings)
        command += ["--settings", str(folder / "vm-1.env")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("role", ["server", "agent"])
def test_user_data_say_what_was_given_and_nothing_is_left_to_fill_in(
    role: str, tmp_path: Path
) -> None:
    done = fill(tmp_path, role)
    assert (done.returncode, done.stderr) == (0, "")
    data = yaml.safe_load(done.stdout)
    files = {Path(file["path"]).name: file for file in data["write_files"]}
    script = files["install"]["content"]

    assert done.stdout.startswith("#cloud-config\n")
    assert "CHANGE-ME-" not in done.stdout
    assert data["runcmd"] == [["/root/benchfarm/install"]]
    assert f"url='{URL}'" in script
    assert f"sha256='{hashlib.sha256(b'an archive').hexdigest()}'" in script
    if role == "agent":
        assert files["agent.env"]["permissions"] == "0600"
        assert base64.b64decode(files["agent.env"]["content"]).decode() == SETTINGS


@pytest.mark.parametrize("role", ["server", "agent"])
def test_the_script_in_user_data_is_right_and_calls_the_installer_as_it_is(
    role: str, tmp_path: Path
) -> None:
    data = yaml.safe_load(fill(tmp_path, role).stdout)
    script = tmp_path / "install"
    script.write_text(data["write_files"][-1]["content"])
    (call,) = re.findall(r"^source/(deploy/install\.sh .*)$", script.read_text(), re.MULTILINE)
    usage = (ROOT / "deploy" / "install.sh").read_text().split("usage() {")[1].split("\nEND")[0]

    assert all(word in usage for word in call.split()[1:] if word.startswith("--"))
    assert "--plaintext" not in call
    assert subprocess.run(["bash", "-n", str(script)], timeout=60, check=False).returncode == 0
    if shutil.which("shellcheck"):
        checked = subprocess.run(
            ["shellcheck", str(script)], capture_output=True, text=True, timeout=60, check=False
        )
        assert (checked.returncode, checked.stdout) == (0, "")


@pytest.mark.parametrize("is_meant", [True, False])
def test_a_vm_installs_the_archive_that_was_meant_and_no_other(
    tmp_path: Path, *, is_meant: bool
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    served = tmp_path / "benchfarm.tar.gz"
    meant, other = (an_archive(f'#!/bin/sh\necho "$@" >{name}\n') for name in ("called", "taken"))
    handler = partial(_Quiet, directory=str(tmp_path))
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/benchfarm.tar.gz"
        text = fill(tmp_path, "agent", url=url, content=meant).stdout
        served.write_bytes(meant if is_meant else other)
        script = yaml.safe_load(text)["write_files"][-1]["content"]
        script = script.replace("/root/benchfarm", str(root))
        done = subprocess.run(["bash", "-c", script], timeout=60, check=False)
        server.shutdown()
        thread.join()

    assert not (root / "taken").exists()
    assert (done.returncode == 0) is is_meant
    if is_meant:
        assert (root / "called").read_text() == "agent --settings agent.env\n"


def test_a_vm_downloads_no_more_than_an_archive_may_be(tmp_path: Path) -> None:
    """Whoever serves it has a disk to fill: it goes on until nobody reads any more."""
    sent = 0

    class Endless(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal sent
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while True:
                    sent += self.wfile.write(bytes(2**20))

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Endless) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        text = fill(tmp_path, "agent", url=url, content=b"another").stdout
        script = yaml.safe_load(text)["write_files"][-1]["content"]
        script = script.replace("/root/benchfarm", str(tmp_path))
        done = subprocess.run(["bash", "-c", script], timeout=240, check=False)
        server.shutdown()
        thread.join()
    assert done.returncode != 0
    assert (tmp_path / "source.tar.gz").stat().st_size == 2**26
    assert sent < 2**27


def an_archive(installer: str) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        member = tarfile.TarInfo("deploy/install.sh")
        member.size, member.mode = len(installer), 0o755
        archive.addfile(member, io.BytesIO(installer.encode()))
    return content.getvalue()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.skipif(shutil.which("cloud-init") is None, reason="cloud-init is not installed")
@pytest.mark.parametrize("role", ["server", "agent"])
def test_cloud_init_accepts_the_user_data(role: str, tmp_path: Path) -> None:
    (tmp_path / "user-data").write_text(fill(tmp_path, role).stdout)
    checked = subprocess.run(
        ["cloud-init", "schema", "--config-file", str(tmp_path / "user-data")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"url": "benchfarm.tar.gz"}, "--url: expected http"),
        ({"url": "https://a/'; reboot; '"}, "--url: expected http"),
        ({"settings": None}, "--settings: expected the file"),
        ({"settings": SETTINGS.replace("AGENT_KEY", "KEY")}, "a value of AGENT_KEY"),
        ({"settings": SETTINGS.replace("10.0.0.2", "127.0.0.1")}, "the server's address"),
        ({"settings": SETTINGS.replace("p&ss", "CHANGE-ME")}, "a value of FARM_BROKER_URL"),
        ({"settings": SETTINGS + "a line\n"}, "lines NAME=VALUE"),
        ({"settings": SETTINGS + "AGENT_LABELS=" + "x" * 12_000}, "at most 16384 bytes"),
    ],
)
def test_user_data_that_could_not_work_are_refused(
    wrong: dict[str, Any], named: str, tmp_path: Path
) -> None:
    done = fill(tmp_path, "agent", **wrong)

    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    assert done.stderr.count("\n") == 1


# --- Slurm ------------------------------------------------------------------------------------

# In the place of Slurm's: it starts the command for each node, and kills them all at SIGTERM, as
# Slurm's does ("forcing job termination").
SRUN = """\
#!/bin/bash
while [[ $1 == --* ]]; do shift; done
for node in node-1 node-2 node-3; do SLURMD_NODENAME=$node "$@" & done
jobs -p >"$NOTES/step.new"
mv "$NOTES/step.new" "$NOTES/step"
trap 'kill -KILL $(jobs -p)' TERM
while [ -n "$(jobs -pr)" ]; do wait; done
"""
# Signals what a step has started, and not the script.
SCANCEL = """\
#!/bin/bash
[ "$*" = "--signal=TERM 7" ] || exit 1
kill -TERM $(cat "$NOTES/step") 2>/dev/null
"""
AGENT = f"""\
#!{sys.executable}
import os, pathlib, signal, sys
note = pathlib.Path(os.environ["NOTES"]) / os.environ["AGENT_ID"]
def leave(*_):
    note.with_suffix(".left").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
names = ("AGENT_KEY", "FARM_BROKER_URL", "AGENT_STATE_DIR")
note.with_suffix(".new").write_text("\\n".join(os.environ[name] for name in names))
note.with_suffix(".new").rename(note)
while True:
    signal.pause()
"""


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    executable(tmp_path / "bin" / "srun", SRUN)
    executable(tmp_path / "bin" / "scancel", SCANCEL)
    executable(tmp_path / "venv" / "bin" / "farm-agent", AGENT)
    (tmp_path / "keys").mkdir()
    (tmp_path / "notes").mkdir()
    for node in ("node-1", "node-2"):
        text = (
            f"AGENT_ID={node}\n# a comment\nAGENT_KEY=k $(id)\nFARM_BROKER_URL=redis://h/?a=1&b=2"
        )
        (tmp_path / "keys" / f"{node}.env").write_text(text)
    return {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "SLURM_JOB_ID": "7",
        "BENCHFARM": str(tmp_path / "venv"),
        "BENCHFARM_KEYS": str(tmp_path / "keys"),
        "BENCHFARM_STATE": str(tmp_path / "state"),
        "NOTES": str(tmp_path / "notes"),
    }


@pytest.mark.parametrize("who", ["the steps, as --signal has it", "the script alone"])
def test_an_allocation_has_an_agent_on_each_node_that_leaves_before_its_end(
    tmp_path: Path, environ: dict[str, str], who: str
) -> None:
    notes = tmp_path / "notes"
    script = subprocess.Popen(
        ["bash", str(SBATCH)], env=environ, stderr=subprocess.PIPE, text=True, process_group=0
    )
    try:
        deadline_s = time.monotonic() + 60
        while not all((notes / name).exists() for name in ("node-1", "node-2", "step")):
            assert time.monotonic() < deadline_s
            assert script.poll() is None
            time.sleep(0.02)
        if who == "the script alone":
            script.send_signal(signal.SIGTERM)
        else:
            subprocess.run(["scancel", "--signal=TERM", "7"], env=environ, timeout=60, check=False)
        _, errors = script.communicate(timeout=60)
    finally:
        if script.poll() is None:
            os.killpg(script.pid, signal.SIGKILL)
            script.communicate()

    assert script.returncode == 0
    for node in ("node-1", "node-2"):
        state = str(tmp_path / "state" / node)
        assert (notes / node).read_text().split("\n") == ["k $(id)", "redis://h/?a=1&b=2", state]
        assert (notes / f"{node}.left").exists()
    assert f"expected {tmp_path / 'keys' / 'node-3.env'}" in errors
    assert "this node gets no agent" in errors


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "BENCHFARM", "BENCHFARM_KEYS"])
def test_an_allocation_that_cannot_work_ends_with_a_line_that_says_why(
    name: str, environ: dict[str, str]
) -> None:
    environ.pop(name)
    done = subprocess.run(
        ["bash", str(SBATCH)], env=environ, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 2
    assert done.stderr.startswith("benchfarm-agents: ")
    assert done.stderr.count("\n") == 1


def test_the_agents_are_told_well_before_the_end() -> None:
    """Slurm may signal a minute late, and an agent takes what its unit's TimeoutStopSec says."""
    (seconds,) = re.findall(r"^#SBATCH --signal=TERM@(\d+)$", SBATCH.read_text(), re.MULTILINE)
    unit = (ROOT / "deploy" / "systemd" / "farm-agent.service").read_text()
    (stop_s,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)

    assert int(seconds) >= 60 + 2 * int(stop_s)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_no_fault_in_the_allocations_script() -> None:
    checked = subprocess.run(
        ["shellcheck", str(SBATCH)], capture_output=True, text=True, timeout=60, check=False
    )

    assert (checked.returncode, checked.stdout) == (0, "")

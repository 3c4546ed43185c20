"""The functions of `deploy/install.sh`, without a system to install anything on."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
# All that acts on the machine itself is left away, and owners that only root can give.
HARNESS = """
HERE={deploy} CONFIG={config} AUTHORITY={config}/authority
APT_LOOK_S=0.1 ITS_APT_INSTALL=$(declare -f apt_install)
apt_install() {{ :; }}
install() {{
    local words=()
    while [ "$#" -gt 0 ]; do
        case $1 in -o | -g) shift ;; *) words+=("$1") ;; esac
        shift
    done
    command install "${{words[@]}}"
}}
"""
needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is not installed"
)


def installer(config: Path, *lines: str) -> str:
    """Run lines of bash behind the script's functions; return what they print."""
    functions, _, _ = (DEPLOY / "install.sh").read_text().partition("# --- the command line ---")
    harness = HARNESS.format(deploy=DEPLOY, config=config)
    ended = subprocess.run(
        ["bash", "-c", "\n".join((functions, harness, *lines))],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def new_config(tmp_path: Path) -> Path:
    """The folder of a server's settings, as the script makes them before it sets up Redis."""
    folder = tmp_path / "config"
    folder.mkdir()
    accounts = {"FARM_BROKER_URL": "server:one", "FARM_BROKER_ADMIN_URL": "admin:two"}
    urls = [f"{name}=redis://{who}@127.0.0.1:6379/0\n" for name, who in accounts.items()]
    (folder / "server.env").write_text("".join(urls))
    (tmp_path / "redis.conf").touch()
    return folder


def settings_of_a_server(config: Path, *lines: str) -> tuple[dict[str, str], list[str]]:
    """Run lines as the script does for a server; return its settings, and how Redis listens.

    It is told of each start of Redis by a line in a file `starts`.
    """
    redis = config.with_name("redis.conf")
    body = f'{{ echo again >>{config}/starts; command install "$WORK/redis" {redis}; }}'
    installer(
        config,
        f"REDIS_CONF={redis} REDIS_CERTIFICATE={config.with_name('redis')}",
        f"REDIS_ACL={config.with_name('acl')} SETTINGS=()",
        f'WEB="" ADDRESS="" PLAINTEXT=""; restart_redis() {body}',
        *lines,
    )
    return assignments(config / "server.env"), redis.read_text().splitlines()


def assignments(file: Path) -> dict[str, str]:
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines if line)


def meet(file: Path, authority: Path, name: str) -> str | None:
    """Return why a client refuses a server with these files, which it takes for `name`."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(file.with_suffix(".pem"), file.with_suffix(".key"))
    trusting = ssl.create_default_context(cafile=str(authority))
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python does from 3.13 on
    near, far = socket.socketpair()
    near.settimeout(60)
    far.settimeout(60)

    def serve() -> None:
        try:
            serving.wrap_socket(far, server_side=True).close()
        except OSError:
            far.close()

    server = threading.Thread(target=serve)
    server.start()
    try:
        trusting.wrap_socket(near, server_hostname=name).close()
    except ssl.SSLCertVerificationError as error:
        return str(error)
    finally:
        near.close()
        server.join()
    return None

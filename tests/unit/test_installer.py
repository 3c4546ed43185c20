"""The functions of `deploy/install.sh` that make settings and certificates, without a system."""

from __future__ import annotations

import shutil
import socket
import ssl
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from farm.broker_url import check_broker_url
from farm.config import load_settings
from farm.web_listening import check_web_listening

DEPLOY = Path(__file__).parents[2] / "deploy"
# All that acts on the machine itself is left away, and owners that only root can give.
HARNESS = """
HERE={deploy} CONFIG={config} AUTHORITY={config}/authority
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


def put_settings_of_an_agent(config: Path, lines: str) -> None:
    file = config.with_name("vm-1.env")
    file.write_text(lines)
    installer(
        config,
        'SETTINGS=() GIVEN_AUTHORITY="" ROLE=agent',
        f"read_settings_file {file}",
        "write_settings",
        "keep_given_authority",
    )


def test_the_lines_of_farm_agent_add_are_all_that_an_agent_needs(tmp_path: Path) -> None:
    config = tmp_path / "config"
    lines = "AGENT_ID=vm-1\nAGENT_KEY=bfk_1_x\nFARM_BROKER_URL=redis://agent.vm-1:x@10.0.0.2/0\n"
    put_settings_of_an_agent(config, lines)
    written = (config / "agent.env").read_text()
    assert all(f"\n{line}\n" in f"\n{written}" for line in lines.splitlines())
    assert stat.S_IMODE((config / "agent.env").stat().st_mode) == 0o600
    assert not (config / "authority.pem").exists()


@pytest.mark.parametrize("rest", ["", "&ssl_check_hostname=true"])
def test_an_authority_that_came_with_the_lines_is_put_where_the_url_says(
    tmp_path: Path, rest: str
) -> None:
    config = tmp_path / "config"
    pem = "-----BEGIN CERTIFICATE-----\nMIIB+/=\n-----END CERTIFICATE-----\n"
    comments = "".join(f"# {line}\n" for line in pem.splitlines())
    url = "rediss://agent.vm-1:x@10.0.0.2:6379/0?ssl_ca_certs="
    lines = f"FARM_BROKER_URL={url}/srv/ours.pem{rest}\n# What it trusts\n{comments}# the end\n"
    put_settings_of_an_agent(config, lines)
    assert (config / "authority.pem").read_text() == pem
    assert f"\nFARM_BROKER_URL={url}{config}/authority.pem{rest}\n" in (
        (config / "agent.env").read_text()
    )


@needs_openssl
def test_a_certificate_is_for_its_names_alone_and_kept_until_they_change(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    file = tmp_path / "redis"

    def certify(*hosts: str) -> bytes:
        installer(config, f"certify {file} root {' '.join(hosts)}")
        return file.with_suffix(".pem").read_bytes()

    first = certify("10.0.0.2", "127.0.0.1", "vm-1.example2", "fd99::1")
    assert certify("10.0.0.2", "127.0.0.1", "vm-1.example2", "fd99::1") == first
    authority = config / "authority.pem"
    trusted = authority.read_bytes()
    modes = [stat.S_IMODE(f.with_suffix(".key").stat().st_mode) for f in (authority, file)]
    assert modes == [0o600, 0o640]
    for name in ("10.0.0.2", "vm-1.example2", "fd99::1"):
        assert meet(file, authority, name) is None
    assert "mismatch" in str(meet(file, authority, "10.0.0.3"))
    assert certify("10.0.0.3") != first
    assert authority.read_bytes() == trusted
    assert meet(file, authority, "10.0.0.3") is None


@needs_openssl
def test_a_run_that_ended_between_certificate_and_key_is_made_good_by_the_next(
    tmp_path: Path,
) -> None:
    config = tmp_path / "config"
    config.mkdir()
    file = tmp_path / "redis"
    installer(config, f"certify {file} root 10.0.0.2")
    ends = 'install() { case $* in *.key) exit 0 ;; esac; command install "${@:1:2}" "${@: -2}"; }'
    installer(config, ends, f"certify {file} root 10.0.0.3")
    installer(config, f"certify {file} root 10.0.0.3")
    assert meet(file, config / "authority.pem", "10.0.0.3") is None


def test_a_first_run_that_ended_early_leaves_no_settings_that_the_next_would_keep(
    tmp_path: Path,
) -> None:
    """Such as one whose Redis could not be installed, since the mirror was away."""
    config = tmp_path / "config"
    lines = ('SETTINGS=() BROKER="" DATABASE="" ROLE=server', "write_settings")
    installer(config, "own_accounts() { exit 0; }", *lines)
    installer(config, "own_accounts() { set_value $1 FARM_BROKER_URL redis:///0; }", *lines)
    settings = assignments(config / "server.env")
    assert len(settings["FARM_API_TOKEN"]) == 48
    assert settings["FARM_DATABASE_URL"].startswith("postgresql+psycopg:///benchfarm?")
    assert [file.name for file in config.iterdir()] == ["server.env"]


@needs_openssl
def test_a_machine_may_have_the_longest_name_that_there_is(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    name = ".".join(["a" * 31] * 2)
    installer(
        config, f"uname() {{ echo {name}; }}", f'certify {tmp_path / "redis"} root "$(uname -n)"'
    )
    assert meet(tmp_path / "redis", config / "authority.pem", name) is None


def settings_of_a_server(config: Path, *lines: str) -> tuple[dict[str, str], list[str]]:
    """Run lines as the script does for a server; return its settings, and how Redis listens.

    It is told of each start of Redis by a line in a file `starts`.
    """
    redis = config.with_name("redis.conf")
    said = f'{{ echo again >>{config}/starts; command install "$WORK/redis" {redis}; }}'
    installer(
        config,
        f"REDIS_CONF={redis} REDIS_CERTIFICATE={config.with_name('redis')}",
        f'WEB="" ADDRESS="" PLAINTEXT=""; restart_redis() {said}',
        *lines,
    )
    return assignments(config / "server.env"), redis.read_text().splitlines()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The folder of a server's settings, as the script makes them before it sets up Redis."""
    folder = tmp_path / "config"
    folder.mkdir()
    accounts = {"FARM_BROKER_URL": "server:one", "FARM_BROKER_ADMIN_URL": "admin:two"}
    urls = [f"{name}=redis://{who}@127.0.0.1:6379/0\n" for name, who in accounts.items()]
    (folder / "server.env").write_text("".join(urls))
    (tmp_path / "redis.conf").touch()
    return folder


@needs_openssl
def test_redis_speaks_tls_beyond_loopback_and_is_left_alone_by_the_next_run(config: Path) -> None:
    settings, redis = settings_of_a_server(config, "ADDRESS=10.0.0.2", "own_broker")
    url = f"10.0.0.2:6379/0?ssl_ca_certs={config}/authority.pem"
    assert settings["FARM_BROKER_URL"] == f"rediss://server:one@{url}"
    check_broker_url(settings["FARM_BROKER_URL"], may_be_plain=False)
    admin = url.replace("10.0.0.2", "127.0.0.1")
    assert settings["FARM_BROKER_ADMIN_URL"] == f"rediss://admin:two@{admin}"
    assert {"port 0", "tls-port 6379", "bind 127.0.0.1 -::1 10.0.0.2"} <= set(redis)
    assert meet(config.with_name("redis"), config / "authority.pem", "10.0.0.2") is None
    again = settings_of_a_server(config, "broker_is_own && own_broker")
    assert again == (settings, redis)
    assert (config / "starts").read_text() == "again\n"


@needs_openssl
def test_a_private_network_may_be_plain_until_it_is_no_more(config: Path) -> None:
    settings, redis = settings_of_a_server(config, "ADDRESS=10.0.0.2 PLAINTEXT=yes", "own_broker")
    assert settings["FARM_BROKER_URL"] == "redis://server:one@10.0.0.2:6379/0"
    assert settings["FARM_PLAINTEXT"] == "broker"
    assert "port 0" not in redis
    assert settings_of_a_server(config, "broker_is_own && own_broker") == (settings, redis)
    settings, redis = settings_of_a_server(config, "ADDRESS=10.0.0.2", "own_broker")
    assert settings["FARM_BROKER_URL"].startswith("rediss://server:one@10.0.0.2:6379/0?")
    assert settings["FARM_PLAINTEXT"] == ""
    assert "port 0" in redis


# As the script wrote it before it knew of TLS.
OF_OLD = """\
bind 127.0.0.1 -::1 {address}
protected-mode no
aclfile /var/lib/redis/benchfarm.acl
appendonly yes
appendfsync everysec
proto-max-bulk-len 64mb
maxmemory-policy noeviction
"""


@pytest.mark.parametrize("address", ["10.0.0.2", ""])
def test_an_upgrade_leaves_a_plain_redis_where_its_agents_know_it(
    config: Path, address: str
) -> None:
    config.with_name("redis.conf").write_text(OF_OLD.format(address=address))
    before = {
        "FARM_BROKER_URL": f"redis://server:one@{address or '127.0.0.1'}:6379/0",
        "FARM_BROKER_ADMIN_URL": "redis://admin:two@127.0.0.1:6379/0",
        **({"FARM_PLAINTEXT": "broker"} if address else {}),
    }
    (config / "server.env").write_text("".join(f"{n}={v}\n" for n, v in before.items()))
    settings, redis = settings_of_a_server(config, "broker_is_own && own_broker; own_web")
    assert settings == before
    assert f"bind 127.0.0.1 -::1 {address}".strip() in redis
    assert not any("tls" in line or line.startswith("port") for line in redis)


@needs_openssl
def test_an_authority_that_comes_back_certifies_anew(tmp_path: Path) -> None:
    """On another server: agents trust the one that they were installed with, and no other."""
    for name in ("lost", "new"):
        (tmp_path / name).mkdir()
        installer(tmp_path / name, f"certify {tmp_path / name}/redis root 10.0.0.2")
    for kind in ("pem", "key"):
        shutil.copy(tmp_path / "lost" / f"authority.{kind}", tmp_path / "new")
    installer(tmp_path / "new", f"certify {tmp_path}/new/redis root 10.0.0.2")
    trusted = tmp_path / "lost" / "authority.pem"
    assert meet(tmp_path / "new" / "redis", trusted, "10.0.0.2") is None


@pytest.mark.parametrize(
    ("address", "for_redis", "for_the_dashboard"),
    [
        ("127.0.0.1", False, True),
        ("0.0.0.0", False, True),
        ("192.0.2.1", False, False),
        ("127.0.0.1 127.0.0.1", False, False),
        ("vm-1.example.org", False, False),
    ],
)
def test_redis_is_not_told_to_listen_where_it_does_already(
    tmp_path: Path, address: str, *, for_redis: bool, for_the_dashboard: bool
) -> None:
    """It would not start: loopback is one of its addresses in any case."""
    ask = f"PYTHON={sys.executable}; is_address '{address}'"
    said = installer(tmp_path, f"{ask} beyond && echo redis; {ask} && echo web; true")
    assert said.split() == ["redis"] * for_redis + ["web"] * for_the_dashboard


def test_a_redis_of_somebody_elses_is_not_touched(config: Path) -> None:
    (config / "server.env").write_text("FARM_BROKER_URL=redis://x@10.0.0.9:6379/0\n")
    _, redis = settings_of_a_server(config, "broker_is_own || echo >$CONFIG/not_own")
    assert (config / "not_own").exists()
    assert redis == []


@needs_openssl
def test_the_dashboard_beyond_loopback_has_a_certificate_for_its_address(config: Path) -> None:
    settings, _ = settings_of_a_server(config, "WEB=10.0.0.2", "own_web")
    check_web_listening(load_settings(settings))
    assert meet(config / "web", config / "authority.pem", "10.0.0.2") is None
    certificate = (config / "web.pem").read_bytes()
    assert settings_of_a_server(config, "own_web")[0] == settings
    assert (config / "web.pem").read_bytes() == certificate
    plain, _ = settings_of_a_server(config, "WEB=10.0.0.3 PLAINTEXT=yes", "own_web")
    assert (plain["FARM_WEB_HOST"], plain["FARM_PLAINTEXT"]) == ("10.0.0.3", "web")
    assert not plain["FARM_WEB_CERTIFICATE_FILE"]
    check_web_listening(load_settings(plain))


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

"""The functions of `deploy/install.sh` that make settings and certificates, without a system."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from farm.settings.server import load_settings
from farm.settings.web_listening import check_web_listening
from tests.commands.installer_script import (
    assignments,
    installer,
    meet,
    needs_openssl,
    new_config,
    settings_of_a_server,
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return new_config(tmp_path)


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
    again, _ = settings_of_a_server(config, "WEB=10.0.0.3", "own_web")
    assert again["FARM_PLAINTEXT"] == ""

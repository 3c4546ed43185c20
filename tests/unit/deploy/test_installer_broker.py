"""What `deploy/install.sh` makes of a server's Redis, and of the settings that name it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from farm.broker.url import check_broker_url
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
    output = installer(tmp_path, f"{ask} beyond && echo redis; {ask} && echo web; true")
    assert output.split() == ["redis"] * for_redis + ["web"] * for_the_dashboard


def test_a_redis_of_somebody_elses_is_not_touched(config: Path) -> None:
    (config / "server.env").write_text("FARM_BROKER_URL=redis://x@10.0.0.9:6379/0\n")
    _, redis = settings_of_a_server(config, "broker_is_own || echo >$CONFIG/not_own")
    assert (config / "not_own").exists()
    assert redis == []


def said_of_a_server(config: Path, *lines: str) -> str:
    """Run lines as `settings_of_a_server` does; return what is said to whoever runs the script."""
    settings_of_a_server(config, "exec 3>&1 >$CONFIG/said", *lines, "exec >&3")
    return (config / "said").read_text()


@needs_openssl
def test_what_somebody_has_edited_of_redis_stays(config: Path) -> None:
    settings_of_a_server(config, "ADDRESS=10.0.0.2", "own_broker")
    file = config.with_name("redis.conf")
    edited = file.read_text().replace("appendfsync everysec", "appendfsync always")
    edited = edited.replace("tls-auth-clients no", "tls-auth-clients optional")
    edited = edited.replace("bind 127.0.0.1", "bind 0.0.0.0")
    file.write_text(f"{edited}# Ours\nmaxmemory 4gb\n")
    _, redis = settings_of_a_server(config, "ADDRESS=10.0.0.3", "own_broker")
    assert {"appendfsync always", "tls-auth-clients optional", "# Ours", "maxmemory 4gb"} < {*redis}
    assert [line for line in redis if line.startswith("bind")] == ["bind 127.0.0.1 -::1 10.0.0.3"]
    assert len({line.split()[0] for line in redis}) == len(redis)
    assert settings_of_a_server(config, "own_broker")[1] == redis
    assert (config / "starts").read_text() == "again\n" * 2


def test_settings_that_came_back_have_their_redis_set_up_with_their_passwords(
    config: Path,
) -> None:
    redis = config.with_name("redis.conf")
    redis.unlink()
    _, written = settings_of_a_server(config, "restore_broker", "broker_is_own && own_broker")
    accounts = config.with_name("acl").read_text()
    assert "user server on >one " in accounts
    assert "user admin on >two " in accounts
    assert "bind 127.0.0.1 -::1" in written


def test_settings_without_a_broker_get_one_and_others_are_not_touched(config: Path) -> None:
    redis, file = config.with_name("redis.conf"), config / "server.env"
    redis.unlink()
    url = "FARM_BROKER_URL=rediss://server:x@10.0.0.9:6379/0?ssl_ca_certs=/x\n"
    file.write_text(url)
    settings_of_a_server(config, "restore_broker", f"[ -e {redis} ] || touch {redis} $CONFIG/none")
    assert (config / "none").exists()
    redis.unlink()
    file.write_text("FARM_BROKER_URL=\n")
    settings, _ = settings_of_a_server(config, "restore_broker", "broker_is_own && own_broker")
    assert settings["FARM_BROKER_URL"].startswith("redis://server:")
    assert settings["FARM_BROKER_ADMIN_URL"].startswith("redis://admin:")


@needs_openssl
def test_who_is_to_turn_a_plain_redis_to_tls_is_told_what_agents_need(config: Path) -> None:
    plain = "ADDRESS=10.0.0.2 PLAINTEXT=yes"
    assert said_of_a_server(config, plain, "own_broker") == ""
    assert said_of_a_server(config, "own_broker") == ""
    assert "rotate" in said_of_a_server(config, "ADDRESS=10.0.0.2", "own_broker")
    assert said_of_a_server(config, "ADDRESS=10.0.0.2", "own_broker") == ""


def test_another_broker_takes_along_what_was_said_of_the_former(config: Path) -> None:
    file = config / "server.env"
    with file.open("a") as settings:
        settings.write("FARM_PLAINTEXT=database,broker,web\n")

    def put(*given: str) -> dict[str, str]:
        words = " ".join(f"'{setting}'" for setting in given)
        installer(config, f"SETTINGS=({words}) ROLE=server", "write_settings")
        return assignments(file)

    former = put()["FARM_BROKER_ADMIN_URL"]
    assert former.startswith("redis://admin:two@")
    url = "FARM_BROKER_URL=redis://server:new@127.0.0.1:6379/0"
    assert put(url)["FARM_BROKER_ADMIN_URL"] == former  # the same, with another password
    url = "FARM_BROKER_URL=rediss://x@10.0.0.9:6379/0?ssl_ca_certs=/x"
    after = put(url)
    assert after["FARM_BROKER_ADMIN_URL"] == ""
    assert after["FARM_PLAINTEXT"] == "database,web"
    admin = "FARM_BROKER_ADMIN_URL=rediss://a@10.0.0.8:6379/0?ssl_ca_certs=/x"
    again = put(url.replace("10.0.0.9", "10.0.0.8"), admin)
    assert f"FARM_BROKER_ADMIN_URL={again['FARM_BROKER_ADMIN_URL']}" == admin

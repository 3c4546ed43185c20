"""Nothing leaves this machine without TLS that checks a certificate, unless somebody says so."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from farm.broker.plaintext import Plaintext, parse_plaintext
from farm.broker.url import check_broker_url, is_local_broker, require_redis, verified
from farm.errors import InvalidSpec
from farm.settings.database_url import check_database_url
from farm.settings.server import Settings, load_settings
from farm.settings.web_listening import check_web_listening, web_url
from tests.services.certificates import Authority
from worker_agent.config import load_config

BEYOND = "redis://:secret@192.0.2.1:6379/0"
STORE_BEYOND = "postgresql://u:secret@db.example.org/farm"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def refusal_of_broker(url: str, *, may_be_plain: bool = False) -> str:
    with pytest.raises(InvalidSpec, match=r"^FARM_BROKER_URL") as refused:
        check_broker_url(url, may_be_plain=may_be_plain)
    message = str(refused.value)
    assert "secret" not in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("text", ["broker", "Broker, WEB", "database,web,broker"])
def test_what_may_be_plain_is_named_and_written_as_it_is_read(text: str) -> None:
    allowed = parse_plaintext(text)
    assert allowed.broker is ("broker" in text.lower())
    assert parse_plaintext(str(allowed)) == allowed


@pytest.mark.parametrize("text", ["allow", "broker;web", "broker,", "all"])
def test_no_other_word_allows_anything(text: str) -> None:
    with pytest.raises(ValueError, match="any of broker,database,web"):
        parse_plaintext(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_broker_of_this_machine_may_be_plain(host: str) -> None:
    check_broker_url(f"redis://:secret@{host}:6379/0", may_be_plain=False)


def test_a_plain_broker_beyond_this_machine_takes_somebody_who_answers_for_it() -> None:
    message = refusal_of_broker(BEYOND)
    assert "`rediss://HOST?ssl_ca_certs=FILE`" in message
    assert "FARM_PLAINTEXT=broker" in message
    check_broker_url(BEYOND, may_be_plain=True)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "nobody checks whose certificate"),
        ("?ssl_ca_certs=", "nobody checks whose certificate"),
        ("?ssl_cert_reqs=required", "nobody checks whose certificate"),
        ("?ssl_cert_reqs=none&ssl_ca_certs=f", "ssl_cert_reqs: expected required"),
        ("?ssl_ca_certs=f&ssl_cert_reqs=CERT_NONE", "ssl_cert_reqs: expected required"),
        ("?ssl_ca_certs=f&ssl_cert_reqs=required&ssl_cert_reqs=none", "ssl_cert_reqs: expected"),
        ("?ssl_ca_certs=f&ssl_check_hostname=False", "ssl_check_hostname: expected true"),
        ("?ssl_ca_certs=f&ssl_ciphers=NULL", "expected none but"),
    ],
)
@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_tls_that_verifies_nothing_is_refused_even_here(
    host: str, query: str, expected: str
) -> None:
    url = f"rediss://:secret@{host}:6379/0{query}"
    assert expected in refusal_of_broker(url, may_be_plain=True)
    for taken_by in (require_redis, verified):
        with pytest.raises(InvalidSpec):
            taken_by(url)


@pytest.mark.parametrize(
    "url", ["redis://192.0.2.1?ssl_ca_certs=f", "redis://127.0.0.1;redis://192.0.2.1"]
)
def test_what_clients_would_read_differently_is_refused(url: str) -> None:
    refusal_of_broker(url, may_be_plain=True)


def test_every_client_is_told_to_check_certificate_and_host() -> None:
    url = verified(
        "rediss://me:x%2Fy@192.0.2.1:1/0?ssl_ca_certs=/etc/ca.pem&ssl_cert_reqs=REQUIRED"
    )
    assert url.startswith("rediss://me:x%2Fy@192.0.2.1:1/0?")
    assert url.endswith("&ssl_cert_reqs=required&ssl_check_hostname=true")
    assert verified(BEYOND) == BEYOND


def test_files_of_certificates_are_read_before_anything_starts(
    authority: Authority, tmp_path: Path
) -> None:
    start = "rediss://192.0.2.1:1/0?ssl_ca_certs="
    check_broker_url(f"{start}{authority.file}", may_be_plain=False)
    assert "No such file" in refusal_of_broker(f"{start}{tmp_path / 'none'}")
    (tmp_path / "empty").touch()
    assert "ssl_ca_certs: expected" in refusal_of_broker(f"{start}{tmp_path / 'empty'}")
    one, other = authority.issue("one"), authority.issue("other")
    with_own = f"{start}{authority.file}&ssl_certfile={one.file}&ssl_keyfile="
    check_broker_url(f"{with_own}{one.key}", may_be_plain=False)
    assert "ssl_certfile: expected" in refusal_of_broker(f"{with_own}{other.key}")


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////srv/farm.db",
        "postgresql://u@127.0.0.1/d",
        "postgresql://u@localhost:5432/d",
        "postgresql://u@[::1]:5432/d",
        "postgresql:///d",
        "postgresql://u@/d?host=/run/postgresql",
        "postgresql+psycopg://u@/d?host=127.0.0.1:5432&host=localhost:5433",
        f"{STORE_BEYOND}?sslmode=verify-full",
        f"{STORE_BEYOND}?sslmode=verify-full&sslrootcert=/etc/ca.pem",
    ],
)
def test_a_store_here_or_verified_is_taken(url: str) -> None:
    check_database_url(url, environ={"PGHOST": "/run/postgresql"}, may_be_plain=False)


@pytest.mark.parametrize(
    "url",
    [
        STORE_BEYOND,
        STORE_BEYOND.replace("postgresql", "postgres"),
        STORE_BEYOND.replace("postgresql", "postgresql+psycopg"),
        f"{STORE_BEYOND}?sslmode=require",
        f"{STORE_BEYOND}?sslmode=verify-ca&sslrootcert=/etc/ca.pem",
        f"{STORE_BEYOND}?sslmode=verify-full&sslmode=disable",
        "postgresql://u@127.0.0.1/d?host=192.0.2.1",
        "postgresql://u@127.0.0.1/d?hostaddr=192.0.2.1",
        "postgresql://u@/d?host=localhost,192.0.2.1",
        "postgresql://u@/d?host=localhost:1&host=192.0.2.1:2",
        "postgresql://u@/d?service=farm",
    ],
)
def test_a_store_elsewhere_whose_certificate_nobody_checks_is_refused(url: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^FARM_DATABASE_URL: expected .*verify-full") as refused:
        check_database_url(url, environ={}, may_be_plain=False)
    assert "FARM_PLAINTEXT=database" in str(refused.value)
    assert "secret" not in str(refused.value)
    check_database_url(url, environ={}, may_be_plain=True)


@pytest.mark.parametrize(
    ("url", "variable", "value"),
    [
        ("postgresql:///d", "PGHOST", "db.example.org"),
        ("postgresql:///d", "PGHOST", "localhost,192.0.2.1"),
        ("postgresql:///d", "PGHOSTADDR", "192.0.2.1"),
        # What PostgreSQL's client connects to, whatever the host is called.
        ("postgresql://u:secret@localhost/d", "PGHOSTADDR", "192.0.2.1"),
        ("postgresql://u:secret@localhost/d", "PGSERVICE", "farm"),
    ],
)
def test_no_variable_of_postgresqls_leads_a_store_elsewhere(
    url: str, variable: str, value: str
) -> None:
    environ = {"FARM_DATABASE_URL": url, variable: value}
    with pytest.raises(InvalidSpec, match=rf"^FARM_DATABASE_URL: .*{variable} (may )?lead"):
        load_settings(environ)
    load_settings({**environ, "FARM_PLAINTEXT": "database"})
    verified_url = f"{url}{'&' if '?' in url else '?'}sslmode=verify-full"
    load_settings({**environ, "FARM_DATABASE_URL": verified_url})


@pytest.mark.parametrize("url", ["postgresql://u@127.0.0.1/d", "postgresql:///d?hostaddr=::1"])
def test_a_variable_that_the_url_overrides_is_no_matter(url: str) -> None:
    environ = {"PGHOST": "db.example.org", "PGSSLMODE": "disable"}
    load_settings({**environ, "FARM_DATABASE_URL": url})


def web(**changes: object) -> Settings:
    return dataclasses.replace(load_settings({}), web_host="0.0.0.0", **changes)  # type: ignore[arg-type] # any of its fields


def test_the_web_server_leaves_this_machine_by_tls_alone(authority: Authority) -> None:
    check_web_listening(load_settings({}))
    with pytest.raises(
        InvalidSpec, match=r"^FARM_WEB_HOST: .*FARM_PROXY_COUNT.*FARM_PLAINTEXT=web"
    ):
        check_web_listening(web())
    check_web_listening(web(proxy_count=1))
    check_web_listening(web(plaintext=Plaintext(web=True)))
    made, other = authority.issue("web"), authority.issue("web-other")
    certified = web(web_certificate_file=made.file, web_key_file=made.key)
    check_web_listening(certified)
    assert web_url(certified) == "https://0.0.0.0:8080/"
    for wrong, field in (
        (web(web_key_file=made.key), "FARM_WEB_CERTIFICATE_FILE"),
        (web(web_certificate_file=made.file), "FARM_WEB_KEY_FILE"),
        (web(web_certificate_file=made.file, web_key_file=other.key), "FARM_WEB_CERTIFICATE_FILE"),
        (web(web_certificate_file=made.file, web_key_file=Path("/none")), "FARM_WEB_CERT"),
    ):
        with pytest.raises(InvalidSpec, match=field):
            check_web_listening(wrong)
    made.key.chmod(0o644)
    with pytest.raises(InvalidSpec, match=r"^FARM_WEB_KEY_FILE: .*only its owner"):
        check_web_listening(certified)


def test_server_and_agent_refuse_when_they_read_their_settings() -> None:
    for name, url in (
        ("FARM_BROKER_URL", BEYOND),
        ("FARM_BROKER_ADMIN_URL", BEYOND),
        ("FARM_DATABASE_URL", STORE_BEYOND),
    ):
        with pytest.raises(InvalidSpec, match=f"^{name}: "):
            load_settings({name: url})
    allowed = load_settings({"FARM_BROKER_URL": BEYOND, "FARM_PLAINTEXT": "broker"})
    assert not is_local_broker(allowed.broker_url)
    with pytest.raises(InvalidSpec, match=r"^FARM_BROKER_URL: .*FARM_PLAINTEXT=broker"):
        load_config({"AGENT_ID": "vm-1", "FARM_BROKER_URL": BEYOND})

"""The doctor names certificates that end soon, those that have ended among them."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading
from pathlib import Path

import pytest
import trustme

from farm.cli.operating.doctor_checks import look_at_certificates
from farm.diagnosis.finding import Level
from farm.diagnosis.server import SOON, CertificateState, judge_certificates
from farm.keys.certificates import expiry, file_expiries, server_expiry
from farm.settings.server import load_settings

NOW = dt.datetime(2026, 11, 23, 12, 0, tzinfo=dt.UTC)
ENDS = [
    NOW - dt.timedelta(days=1),
    NOW + dt.timedelta(days=30),
    dt.datetime(2049, 12, 31, 23, 59, 59, tzinfo=dt.UTC),
    dt.datetime(2050, 1, 1, tzinfo=dt.UTC),  # from here on written in another way
]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def certified(authority: trustme.CA, expires_at: dt.datetime) -> trustme.LeafCert:
    return authority.issue_cert(
        "127.0.0.1", not_before=NOW - dt.timedelta(days=2), not_after=expires_at
    )


@pytest.mark.parametrize("expires_at", ENDS, ids=lambda expires_at: f"{expires_at:%Y}")
def test_a_certificate_says_when_it_ends_whether_or_not_it_has(
    authority: trustme.CA, tmp_path: Path, expires_at: dt.datetime
) -> None:
    file = tmp_path / "certificate.pem"
    file.write_bytes(certified(authority, expires_at).cert_chain_pems[0].bytes())
    assert file_expiries(file) == [expires_at]


def test_a_damaged_certificate_is_refused_wherever_it_is_cut(authority: trustme.CA) -> None:
    pem = certified(authority, ENDS[1]).cert_chain_pems[0].bytes().decode()
    der = ssl.PEM_cert_to_DER_cert(pem)
    assert expiry(der) == ENDS[1]
    with pytest.raises(ValueError, match="it "):
        expiry(b"\x30\x02\x30\x00")
    for length in range(len(der)):
        with pytest.raises(ValueError, match="it "):
            expiry(der[:length])


def test_a_server_is_asked_for_the_one_that_it_presents(authority: trustme.CA) -> None:
    """It has ended, so that nobody who checks it could be told."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certified(authority, ENDS[0]).configure_cert(serving)

    def serve(listener: socket.socket) -> None:
        link, _ = listener.accept()
        with serving.wrap_socket(link, server_side=True) as secured:
            secured.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        host, port = listener.getsockname()
        assert server_expiry(host, port, timeout_s=60) == ENDS[0]
        thread.join()


@pytest.mark.parametrize(
    ("left", "level"),
    [
        (dt.timedelta(0), Level.WRONG),
        (SOON - dt.timedelta(seconds=1), Level.DOUBT),
        (SOON, Level.WELL),
    ],
)
def test_one_that_has_ended_is_wrong_and_one_that_soon_will_is_doubtful(
    left: dt.timedelta, level: Level
) -> None:
    far = CertificateState(whose="the broker's", expires_at=NOW + 9 * SOON)
    near = CertificateState(whose="the dashboard's", expires_at=NOW + left)
    (finding,) = judge_certificates([far, near], now=NOW)
    assert finding.level is level
    assert "the dashboard's" in finding.what


def test_what_the_settings_name_is_looked_at_and_a_farm_without_tls_is_well(
    authority: trustme.CA, tmp_path: Path
) -> None:
    assert [f.level for f in look_at_certificates(load_settings({}))] == [Level.WELL]
    file = tmp_path / "web.pem"
    file.write_bytes(certified(authority, ENDS[0]).cert_chain_pems[0].bytes())
    trusted = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(trusted))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
    settings = load_settings(
        {
            "FARM_BROKER_URL": f"rediss://{host}:{port}/0?ssl_ca_certs={trusted}",
            "FARM_WEB_CERTIFICATE_FILE": str(file),
            "FARM_WEB_KEY_FILE": str(file),
        }
    )
    away, ended = look_at_certificates(settings)
    assert (away.level, ended.level) == (Level.UNKNOWN, Level.WRONG)
    assert "the dashboard's certificate expired" in ended.what
    file.unlink()
    assert Level.WRONG in [f.level for f in look_at_certificates(settings)]

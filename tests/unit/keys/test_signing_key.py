"""The farm's key: when one is needed, and what its file must be."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from farm.broker.url import is_local_broker
from farm.errors import InvalidSpec
from farm.keys.signing_key import make_signing_key, read_signing_key, signing_key
from farm.settings.server import Settings, load_settings

ELSEWHERE = "redis://:secret@10.0.0.2:6379/0"


def settings(url: str, file: Path | None = None) -> Settings:
    return dataclasses.replace(load_settings({}), broker_url=url, signing_key_file=file)


@pytest.mark.parametrize(
    ("url", "is_here"),
    [
        ("redis://127.0.0.1:6379/0", True),
        ("redis://127.8.9.1", True),
        ("redis://localhost/1", True),
        ("rediss://me:x@[::1]:6379/0", True),
        (ELSEWHERE, False),
        ("redis://0.0.0.0:6379", False),
        ("redis://redis:6379/0", False),
        ("redis://localhost.example.org", False),
        ("redis://127.0.0.1.example.org", False),
        ("redis://127.0.0.1@10.0.0.2", False),
    ],
)
def test_loopback_is_what_no_resolver_decides(url: str, is_here: bool) -> None:
    assert is_local_broker(url) is is_here


def test_on_loopback_no_key_is_needed_and_one_that_is_set_is_used(tmp_path: Path) -> None:
    here = "redis://127.0.0.1:6379/0"
    assert signing_key(settings(here)) is None
    made = make_signing_key(tmp_path / "key")
    assert signing_key(settings(here, tmp_path / "key")) == made


def test_beyond_loopback_the_server_does_not_start_without_a_key() -> None:
    with pytest.raises(InvalidSpec, match=r"^FARM_SIGNING_KEY_FILE: .*`farm agent add") as refused:
        signing_key(settings(ELSEWHERE))
    assert "redis://:***@10.0.0.2:6379/0 is beyond this machine" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "key"
    made = make_signing_key(file)
    assert read_signing_key(file) == made
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InvalidSpec, match="File exists"):
        make_signing_key(file)
    assert read_signing_key(file) == made


@pytest.mark.parametrize(
    ("text", "mode", "expected"),
    [
        ("00" * 32, 0o644, "only its owner and group can open"),
        ("00" * 31, 0o600, "64 hexadecimal digits"),
        ("", 0o600, "64 hexadecimal digits"),
        (None, 0o600, "No such file or directory"),
    ],
)
def test_a_file_that_holds_no_key_or_shows_it_is_refused(
    tmp_path: Path, text: str | None, mode: int, expected: str
) -> None:
    file = tmp_path / "key"
    if text is not None:
        file.write_text(text)
        file.chmod(mode)
    with pytest.raises(InvalidSpec, match=rf"^FARM_SIGNING_KEY_FILE: .*{expected}"):
        read_signing_key(file)

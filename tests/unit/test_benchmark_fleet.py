"""The simulated fleet of the benchmarks: what it tells when something went wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fleet.logs import tail, telling_logs
from farm.errors import FarmError


def test_an_error_of_a_fleet_carries_the_end_of_every_log(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    (tmp_path / "redis" / "redis.log").write_text("out of memory\n")
    (tmp_path / "scheduler.log").write_text("".join(f"line {n}\n" for n in range(100)))
    (tmp_path / "collector-0.log").touch()
    with pytest.raises(FarmError) as told, telling_logs(tmp_path):
        raise FarmError("nothing came through")
    text = str(told.value)
    assert text.startswith("nothing came through\n--- redis/redis.log\nout of memory\n")
    assert text.endswith("line 98\nline 99")
    assert "line 80\n" not in text
    assert "collector-0" not in text, "nothing stands in it"


def test_the_end_of_a_long_log_is_read_alone(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"\xff" * 100_000 + b"\nlast\n")
    assert tail(log).endswith("\nlast")
    assert len(tail(log)) < 20_000

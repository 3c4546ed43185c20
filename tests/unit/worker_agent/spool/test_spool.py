"""The spool: numbers without a gap, nothing lost, nothing given out twice under one number."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from worker_agent.spool.spool import Spool


class OpenSpool(Protocol):
    def __call__(self, *, max_bytes: int = 1_000_000, segment_bytes: int = 400) -> Spool: ...


@pytest.fixture
def open_spool(tmp_path: Path) -> Iterator[OpenSpool]:
    opened: list[Spool] = []

    def open_one(*, max_bytes: int = 1_000_000, segment_bytes: int = 400) -> Spool:
        spool = Spool(tmp_path / "spool", max_bytes=max_bytes, segment_bytes=segment_bytes)
        opened.append(spool)
        return spool

    yield open_one
    for spool in opened:
        spool.close()


def add(spool: Spool, count: int) -> list[int]:
    return [spool.append(1, rank=0, kind="samples", body={"samples": []}) for _ in range(count)]


def numbers(spool: Spool, *, limit: int = 500, max_bytes: int = 1_000_000) -> list[int]:
    return [report.number for report in spool.pending(limit=limit, max_bytes=max_bytes)]


def segments(folder: Path) -> list[Path]:
    return sorted((folder / "spool").glob("*.jsonl"))


def test_numbers_start_at_one_and_go_on_after_a_restart(open_spool: OpenSpool) -> None:
    spool = open_spool()
    assert add(spool, 3) == [1, 2, 3]
    generation = spool.generation
    spool.close()
    again = open_spool()
    assert again.generation == generation
    assert add(again, 1) == [4]
    assert numbers(again) == [1, 2, 3, 4]


def test_numbers_go_on_when_everything_was_confirmed(open_spool: OpenSpool, tmp_path: Path) -> None:
    spool = open_spool()
    add(spool, 30)
    spool.confirm(spool.generation, 30)
    assert numbers(spool) == []
    assert len(segments(tmp_path)) == 1
    spool.close()
    assert add(open_spool(), 1) == [31]


def test_a_torn_last_line_is_dropped_and_its_number_used_again(
    open_spool: OpenSpool, tmp_path: Path
) -> None:
    spool = open_spool()
    add(spool, 2)
    spool.close()
    with segments(tmp_path)[-1].open("ab") as file:
        file.write(b'{"number":3,"token":1,"ra')
    again = open_spool()
    assert again.last_number == 2
    assert add(again, 1) == [3]
    assert numbers(again) == [1, 2, 3]


def test_a_lost_line_between_others_starts_a_new_generation_and_keeps_the_old(
    open_spool: OpenSpool, tmp_path: Path
) -> None:
    spool = open_spool(segment_bytes=100_000)
    add(spool, 4)
    generation = spool.generation
    spool.close()
    [segment] = segments(tmp_path)
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(lines[0] + b"\n" + lines[2] + lines[3])
    again = open_spool()
    assert again.generation != generation
    assert add(again, 1) == [1]
    assert list(tmp_path.glob("spool.damaged-*/*.jsonl"))


def test_a_confirmation_of_another_generation_is_ignored(open_spool: OpenSpool) -> None:
    spool = open_spool()
    add(spool, 3)
    spool.confirm("another", 3)
    assert numbers(spool) == [1, 2, 3]


def test_a_confirmation_beyond_the_spool_forgets_nothing(open_spool: OpenSpool) -> None:
    spool = open_spool()
    add(spool, 3)
    spool.confirm(spool.generation, 4)
    assert numbers(spool) == [1, 2, 3]


def test_an_older_confirmation_takes_nothing_back(open_spool: OpenSpool) -> None:
    spool = open_spool()
    add(spool, 5)
    spool.confirm(spool.generation, 4)
    spool.confirm(spool.generation, 2)
    assert spool.confirmed == 4
    assert numbers(spool) == [5]


def test_a_batch_keeps_to_both_limits_but_always_has_one_report(
    open_spool: OpenSpool, tmp_path: Path
) -> None:
    spool = open_spool()
    add(spool, 10)
    line_bytes = len(segments(tmp_path)[0].read_bytes().splitlines(keepends=True)[0])
    assert numbers(spool, limit=3) == [1, 2, 3]
    assert numbers(spool, max_bytes=2 * line_bytes) == [1, 2]
    assert numbers(spool, max_bytes=1) == [1]


def test_a_full_spool_takes_reports_and_is_free_again_once_confirmed(open_spool: OpenSpool) -> None:
    spool = open_spool(max_bytes=200)
    assert not spool.is_full
    add(spool, 5)
    assert spool.is_full
    assert numbers(spool) == [1, 2, 3, 4, 5]
    spool.confirm(spool.generation, 5)
    assert not spool.is_full


def test_what_is_handed_out_is_on_disk_first(
    open_spool: OpenSpool, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    spool = open_spool()
    monkeypatch.setattr("worker_agent.spool.spool.os.fsync", synced.append)
    add(spool, 2)
    assert synced == []
    numbers(spool)
    assert len(synced) == 1
    numbers(spool)
    assert len(synced) == 1


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let the kernel write no file beyond this size, as if the disk were full then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_no_half_line_behind(open_spool: OpenSpool, tmp_path: Path) -> None:
    spool = open_spool()
    add(spool, 2)
    [segment] = segments(tmp_path)
    with (
        files_of_at_most(segment.stat().st_size + 10),
        pytest.raises(OSError, match="File too large"),
    ):
        add(spool, 1)
    assert add(spool, 1) == [3]
    assert numbers(spool) == [1, 2, 3]
    for line in segments(tmp_path)[-1].read_text().splitlines():
        json.loads(line)

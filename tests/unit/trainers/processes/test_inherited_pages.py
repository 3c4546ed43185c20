"""A fork gets memory of its own at once: what it holds, and nothing that was only reserved."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from farm.trainers.processes.template import own_inherited_pages

pytestmark = pytest.mark.skipif(
    tuple(map(int, platform.release().split(".")[:2])) < (5, 14),
    reason="this kernel cannot copy a fork's pages at once: MADV_POPULATE_WRITE came with 5.14",
)

MEBIBYTE = 1 << 20
HELD = 32 * MEBIBYTE
RESERVED = 64 * MEBIBYTE


def in_a_fork() -> dict[str, Any]:
    """Fork a process that holds and has reserved memory; return what its child found."""
    script = f"""
        import json, mmap, os
        from pathlib import Path
        from farm.trainers.processes.template import own_inherited_pages

        def sizes():
            lines = [l.split() for l in Path("/proc/self/smaps_rollup").read_text().splitlines()]
            return {{words[0].rstrip(":"): int(words[1]) * 1024 for words in lines[1:]}}

        held = bytearray(os.urandom(1 << 20) * {HELD // MEBIBYTE})
        reserved = mmap.mmap(-1, {RESERVED}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        check = hash(bytes(held))
        if os.fork() == 0:
            before = sizes()
            copied = own_inherited_pages()
            after = sizes()
            print(json.dumps(dict(before=before, copied=copied, after=after,
                                  is_intact=hash(bytes(held)) == check)), flush=True)
            os._exit(0)
        os.wait()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_fork_owns_what_it_shared_and_fills_nothing_that_was_reserved() -> None:
    found = in_a_fork()
    before, after = found["before"], found["after"]
    assert before["Shared_Dirty"] >= HELD
    assert after["Shared_Dirty"] < MEBIBYTE
    assert found["copied"] >= HELD
    assert after["Rss"] - before["Rss"] < RESERVED / 4
    assert found["is_intact"]


def test_who_shares_nothing_is_none_the_worse() -> None:
    assert own_inherited_pages() > 0

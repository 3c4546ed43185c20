"""Whatever a file says, it is read, or refused by an error of ours; nothing hangs or is half done.

The examples are what has been found, or is known to have broken programs like this one.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from farm.configuration.expansion import MAX_JOBS
from farm.errors import FarmError, InvalidSpec
from farm.messages.reports import Report
from farm.submission import plan, read_sweep_file
from farm.values.codec import from_json
from worker_agent.spool.journal import ServedRank
from worker_agent.spool.spool import Spool
from worker_agent.supervisor.fencing import TokenFile

# What it takes is the disk's affair; pytest ends what hangs.
FRUGAL = settings(max_examples=60)
DEEP = b"[" * 100_000
LONG_NUMBER = b"9" * 5000
REPORT = {"number": 1, "token": 1, "rank": 0, "kind": "x", "body": {}}
LINE = json.dumps(REPORT).encode() + b"\n"
GENERATION = b"0123456789abcdef0123456789abcdef"
FIRST = "000000000001.jsonl"

SWEEP = b"""
name = "s"
[[case]]
model = "small_cnn"
dataset = "digits"
strategy = "mwms_ring"
world_size = [1, 2]
global_batch_size = 32
"""
words = st.sampled_from([line + b"\n" for line in SWEEP.splitlines()]) | st.sampled_from(
    [b"[[case]]\n", b"world_size = ", b"[1, 2]", b"nan\n", b"-1\n", b"'''", b"{", b"\x00", b"\xff"]
)
toml = st.lists(words | st.binary(max_size=6), max_size=12).map(b"".join)


@FRUGAL
@given(toml)
@example(SWEEP)
@example(b"steps = " + LONG_NUMBER)
@example(b"a = " + DEEP)
@example(b"a" + b".a" * 5000 + b" = 1")
@example(SWEEP.replace(b"[1, 2]", b"[" + b"1, " * 5000 + b"]"))
@example(SWEEP + b"repetitions = 1000000\n")
@example(SWEEP.replace(b'"s"', rb'"\u0000"'))
@example(SWEEP.replace(b"32", b"1e400"))
@example(SWEEP.replace(b"32", b"1979-05-27T07:32:00Z"))
def test_any_file_is_a_sweep_or_is_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sweep.toml")
        path.write_bytes(content)
        try:
            planned = plan(read_sweep_file(path))
        except InvalidSpec as refused:
            message = str(refused)
        else:
            message = ""
            assert len(planned.expansion.jobs) <= MAX_JOBS
    assert "\n" not in message


parts = st.sampled_from([LINE, LINE[:-5], GENERATION]) | st.binary(max_size=9)
files = st.dictionaries(
    st.sampled_from([FIRST, "000000000002.jsonl", "generation", "generation.new", "x.jsonl"]),
    st.lists(
        st.sampled_from([LINE, LINE[:-5], GENERATION]) | st.binary(max_size=9), max_size=4
    ).map(b"".join),
)


@FRUGAL
@given(files)
@example({FIRST: LINE, "generation": GENERATION})
@example({FIRST: LINE[:-1], "generation": GENERATION})
@example({FIRST: DEEP + b"\n", "generation": GENERATION})
@example({FIRST: LINE.replace(b": 1,", b": " + LONG_NUMBER + b",", 1), "generation": GENERATION})
@example({FIRST: LINE, "generation": b"\xff\xfe"})
@example({FIRST: LINE, "generation": b""})
@example({FIRST: LINE + b"\x00" * 4096, "generation": GENERATION})
@example({FIRST: LINE + LINE, "generation": b""})
@example({FIRST: LINE, "000000000003.jsonl": LINE[:-1], "generation": GENERATION})
@example({"x.jsonl": LINE, "generation": GENERATION})
@example({"\u0661.jsonl": LINE, "generation": GENERATION})
@example({"-1.jsonl": LINE, "generation": GENERATION})
def test_any_files_are_a_spool_or_are_kept_aside(found: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home, "spool")
        folder.mkdir()
        for name, content in found.items():
            (folder / name).write_bytes(content)
        spool = Spool(folder, max_bytes=10**6)
        there = spool.pending(limit=10, max_bytes=10**6)
        number = spool.append(1, rank=0, kind="x", body={})
        assert spool.pending(limit=10, max_bytes=10**6)[: len(there)] == there
        spool.close()
        again = Spool(folder, max_bytes=10**6)
        assert (again.generation, again.last_number) == (spool.generation, number)
        again.close()
        aside = [path for path in Path(home).iterdir() if path != folder]
        for path in aside:  # whole, for a person to look at
            assert {one.name: one.read_bytes() for one in path.iterdir()} == found


@FRUGAL
@given(st.binary(max_size=30) | st.integers().map(lambda n: b"%d\n" % n))
@example(b"")
@example(b"7\n")
@example(b"-1\n")
@example(LONG_NUMBER)
@example("\u0667".encode())
@example(b"1_0")
def test_a_token_on_disk_is_a_number_or_the_agent_does_not_start(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, "highest_token")
        path.write_bytes(content)
        try:
            tokens = TokenFile(path)
        except FarmError:
            assert path.read_bytes() == content
            return
        assert tokens.highest == int(content)
        assert tokens.highest >= 0


@FRUGAL
@given(st.binary(max_size=40))
@example(b'{"token": 1, "rank": 0, "job_id": null}')
@example(b'{"token": Infinity, "rank": 0, "job_id": null}')
@example(b'{"token": ' + LONG_NUMBER + b', "rank": 0, "job_id": null}')
@example(b'{"token": 9223372036854775808, "rank": 0, "job_id": null}')
@example(b'{"token": 1, "rank": 4294967296, "job_id": null}')
@example(DEEP)
@example(b"[]")
@example(b"\xff")
def test_a_served_rank_on_disk_is_one_or_is_forgotten(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, "served_rank")
        path.write_bytes(content)
        served = ServedRank(path)
        if (found := served.read()) is None:
            assert not path.exists()
            return
        token, rank, _ = found  # its end is reported: a report that is none blocks the spool
        sent = {"number": 1, "token": token, "rank": rank, "kind": "ended", "body": {}}
        from_json(Report, sent)

"""Any interleaving of append, send, confirm, crash and restart keeps every unconfirmed report."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from worker_agent.spool.spool import Spool


class SpoolStory(RuleBasedStateMachine):
    """`written` is what the spool must remember; `sent` what the collector has seen of it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.spool = self.open()
        self.generation = self.spool.generation
        self.written: list[str] = []
        self.sent: dict[int, str] = {}
        self.confirmed = 0

    def open(self) -> Spool:
        return Spool(self.folder / "spool", max_bytes=1000, segment_bytes=300)

    def teardown(self) -> None:
        self.spool.close()
        shutil.rmtree(self.folder)

    @rule(texts=st.lists(st.text(max_size=80), min_size=1, max_size=12))
    def append(self, texts: list[str]) -> None:
        for text in texts:
            number = self.spool.append(1, rank=0, kind="epoch", body={"text": text})
            self.written.append(text)
            assert number == len(self.written)

    @rule(limit=st.integers(1, 20), max_bytes=st.integers(1, 2000))
    def send(self, limit: int, max_bytes: int) -> None:
        batch = self.spool.pending(limit=limit, max_bytes=max_bytes)
        assert len(batch) <= limit
        assert bool(batch) == (self.spool.confirmed < len(self.written))
        for number, report in enumerate(batch, start=self.spool.confirmed + 1):
            assert report.number == number
            text = str(report.body["text"])
            assert text == self.written[number - 1]
            # The collector must never see two reports under one number.
            assert self.sent.setdefault(number, text) == text

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, max(self.sent)))
        self.spool.confirm(self.generation, number)
        self.confirmed = max(self.confirmed, number)

    @rule(number=st.integers(0, 1000))
    def confirm_another_generation(self, number: int) -> None:
        self.spool.confirm("0" * 32, number)

    @rule(beyond=st.integers(1, 5))
    def confirm_beyond(self, beyond: int) -> None:
        self.spool.confirm(self.generation, len(self.written) + beyond)

    @rule()
    def restart(self) -> None:
        self.spool.close()
        self.spool = self.open()

    @rule(share=st.floats(0.0, 0.99))
    def crash_in_the_middle_of_a_line(self, share: float) -> None:
        line = b'{"number":%d,"token":1,"rank":0,"kind":"epoch","body":{}}' % (
            len(self.written) + 1
        )
        torn = line[: int(len(line) * share)]
        self.spool.close()
        last = max((self.folder / "spool").glob("*.jsonl"))
        with last.open("ab") as file:
            file.write(torn)
        self.spool = self.open()

    @rule(data=st.data())
    def lose_power(self, data: st.DataObject) -> None:
        """Lines that were written and never handed out may be lost; no others."""
        self.spool.close()
        last = max((self.folder / "spool").glob("*.jsonl"))
        first = int(last.stem)
        lines = last.read_bytes().splitlines(keepends=True)
        safe = max(0, max(self.sent, default=0) - first + 1)
        kept = data.draw(st.integers(min(safe, len(lines)), len(lines)))
        last.write_bytes(b"".join(lines[:kept]))
        self.written = self.written[: first - 1 + kept]
        self.spool = self.open()

    @invariant()
    def nothing_is_lost_renumbered_or_forgotten_too_early(self) -> None:
        assert self.spool.generation == self.generation
        assert self.spool.last_number == len(self.written)
        # A restart may forget a confirmation, but nothing beyond one is ever forgotten.
        assert self.spool.confirmed <= self.confirmed
        reports = self.spool.pending(limit=10_000, max_bytes=10**9)
        assert [r.number for r in reports] == list(
            range(self.spool.confirmed + 1, len(self.written) + 1)
        )
        assert [r.body["text"] for r in reports] == self.written[self.spool.confirmed :]

    @invariant()
    def fullness_is_what_waits_on_disk(self) -> None:
        lines = [
            line
            for path in (self.folder / "spool").glob("*.jsonl")
            for line in path.read_bytes().splitlines(keepends=True)
        ]
        confirmed_here = len(lines) - (len(self.written) - self.spool.confirmed)
        waiting = sum(len(line) for line in sorted(lines, key=_number)[confirmed_here:])
        assert self.spool.is_full == (waiting >= 1000)


def _number(line: bytes) -> int:
    return int(line[len(b'{"number":') : line.index(b",")])


TestSpoolStory = SpoolStory.TestCase
TestSpoolStory.settings = settings(max_examples=60, stateful_step_count=30)

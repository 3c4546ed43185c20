"""Two agents as the server sees them, whose messages a test writes itself."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import select

from farm.collector.ingest import read_batch, read_beat, take_batches, take_beats
from farm.gang.barriers import Limits
from farm.gang.retries import RetryPolicy
from farm.messages.agents import AgentState, BeatEcho, Heartbeat
from farm.messages.commands import RankAddress
from farm.messages.envelope import seal
from farm.messages.reports import (
    REPORT_NAMES,
    PeersMeasured,
    Prepared,
    RankEnded,
    RankStarted,
    Report,
    ReportBatch,
    ReportBody,
    Shaped,
    StepTimes,
)
from farm.messages.trainer_lines import DatasetSource, StepKind, TrainerResult
from farm.scheduler.outgoing import Outgoing, Rules
from farm.store.engine import reading
from farm.store.tables import AttemptRow, JobRow
from farm.values.codec import to_json
from tests.factories import NOW, agent_facts, seconds
from tests.stored.scheduler_round import run_round

RULES = Rules(
    lease=dt.timedelta(seconds=20),
    reserve_after_s=60.0,
    limits=Limits(resend_s=3.0, prepare_s=30.0),
    policy=RetryPolicy(max_attempts=2, wait_s=2.0),
)
SOURCE = DatasetSource(
    name="digits",
    origin="a test",
    sha256="0" * 64,
    is_synthetic=False,
    train_examples_count=1437,
    test_examples_count=360,
)
STARTED = RankStarted(parameter_count=100, gradient_bytes=400, connect_s=0.1, first_step_s=0.2)
RESULT = TrainerResult(
    timed_step_count=3,
    window_step_count=3,
    timed_window_s=2.5,
    timed_begun_monotonic_s=10.0,
    interface_rx_bytes=2400,
    interface_tx_bytes=2400,
    payload_rx_bytes=2400,
    payload_tx_bytes=2400,
    train_loss=0.5,
    val_accuracy_ratio=0.75,
    peak_resident_bytes=10,
    seed=0,
)
STEPS = StepTimes(kind=StepKind.TIMED, first_step=0, begun_s=0.0, times_s=(0.1, 0.2, 0.3))
ENDED = RankEnded(result=RESULT, failure=None, timed_begun_s=0.0, log_tail="")


class TwoAgents:
    """Two agents, a and b, as the server sees them: a clock, a spool number and a beat each."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.now = NOW
        self.numbers = {"a": 0, "b": 0}
        self.beats = {"a": 1, "b": 1}

    def round(self, *, after_s: float = 0.1) -> list[Outgoing]:
        self.now += seconds(after_s)
        return run_round(self.engine, now=self.now, rules=RULES)

    def report(self, agent_id: str, token: int, rank: int, body: ReportBody) -> None:
        self.numbers[agent_id] += 1
        fields = to_json(body)
        assert isinstance(fields, dict)
        report = Report(
            number=self.numbers[agent_id],
            token=token,
            rank=rank,
            kind=REPORT_NAMES[type(body)],
            body=fields,
        )
        batch = ReportBatch(agent_id=agent_id, generation="g", reports=(report,))
        take_batches(self.engine, [read_batch(seal(batch))], now=self.now)

    def both_report(self, token: int, body: ReportBody) -> None:
        self.report("a", token, 0, body)
        self.report("b", token, 1, body)

    def beat(self, agent_id: str, *, serving: int | None, highest: int) -> None:
        self.beats[agent_id] += 1
        beat = Heartbeat(
            agent_id=agent_id,
            boot_id=f"boot of {agent_id}",
            counter=self.beats[agent_id],
            state=AgentState.IDLE if serving is None else AgentState.BUSY,
            serving_token=serving,
            highest_token=highest,
            agent_time_s=0.0,
            echo=BeatEcho(server_time_s=self.now.timestamp(), elapsed_s=0.0),
            facts=FACTS[agent_id],
        )
        take_beats(self.engine, [read_beat(seal(beat))], now=self.now, lease=RULES.lease)

    def prepare(self, token: int, *, model_sha256: str | None = None) -> None:
        for rank, agent_id in enumerate("ab"):
            address = RankAddress(
                rank=rank, host="127.0.0.1", probe_port=1, trainer_ports=(20 + rank,)
            )
            prepared = Prepared(
                address=address,
                framework="tf",
                dataset=SOURCE,
                model_sha256=model_sha256,
                prepare_s=1.0,
            )
            self.report(agent_id, token, rank, prepared)

    def start(self, *, model_sha256: str | None = None, outgoing: Sequence[Outgoing] = ()) -> int:
        """Lead the gang to its first step; return the token.

        `outgoing`: of the round that leased it, where there was one.
        """
        token = (outgoing or self.round())[0].command.token  # type: ignore[union-attr] # it is a StartRank
        self.prepare(token, model_sha256=model_sha256)
        self.round()
        self.both_report(token, PeersMeasured(rtts=()))
        self.round()
        self.both_report(token, Shaped(emulator="none", rtts=()))
        self.round()
        self.both_report(token, STARTED)
        self.round()
        return token

    def end(self, token: int, *, ended: RankEnded = ENDED) -> None:
        """Let both ranks report their timed steps and their result."""
        self.both_report(token, STEPS)
        self.both_report(token, ended)

    def job(self) -> JobRow:
        with reading(self.engine) as session:
            return session.scalars(select(JobRow)).one()

    def attempts(self) -> list[AttemptRow]:
        with reading(self.engine) as session:
            return list(session.scalars(select(AttemptRow).order_by(AttemptRow.id)))


FACTS = {
    "a": agent_facts(machine_id="m1"),
    "b": agent_facts(machine_id="m2"),
}


def kinds(outgoing: list[Outgoing]) -> list[tuple[str, type]]:
    """Return which commands go to whom."""
    return [(due.agent_id, type(due.command)) for due in outgoing]

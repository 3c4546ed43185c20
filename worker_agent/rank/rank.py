"""The states of one rank of a training, from its preparation to its end.

Commands, events and `tick` drive it, all in the supervisor's thread; it calls `report` with what
happened. Commands may come twice or late. Those that do not fit the state are ignored, since the
server repeats a command until it is answered.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
from collections.abc import Callable

from farm.configuration.spec import WORKER
from farm.errors import InvalidSpec, TrainerFailed
from farm.gang.step_counts import unlike_step_counts
from farm.gang.weights import unlike_weights
from farm.messages.commands import Go, Peers, RankAddress, Shape, StartRank
from farm.messages.reports import (
    PeersMeasured,
    Prepared,
    RankStarted,
    ReportBody,
    Samples,
    Shaped,
    StepTimes,
)
from farm.messages.trainer_lines import (
    Epoch,
    Failure,
    FailureKind,
    Ready,
    Started,
    Steps,
    TrainerEvent,
    TrainerResult,
    UserCode,
)
from farm.registry import strategy_or_launcher
from worker_agent.rank.cluster import go_lines
from worker_agent.rank.rank_end import (
    ended_report,
    failure_of_data_workers,
    failure_of_exit,
    lost_data_workers,
    result_of_ranks,
)
from worker_agent.rank.resources import RankResources, title_of
from worker_agent.spool.delivery import GATHER_S
from worker_agent.supervisor.events import (
    MeasuringPurpose,
    NetworkMeasured,
    RankCleared,
    RankEvent,
    Sampled,
    TrainerExited,
    TrainerOutput,
)

logger = logging.getLogger(__name__)

# Other ranks may take their whole time for a barrier that this one has passed already; the
# server's own limit ends that. This one only catches a server that has forgotten the attempt.
BARRIER_GRACE_S = 60.0
# How long a trainer may take to leave after its last word: members leave together.
LEAVE_AFTER_RESULT_S = 30.0
LEAVE_AFTER_FAILURE_S = 5.0


class Phase(enum.Enum):
    PREPARING = "preparing"
    PREPARED = "prepared"
    MEASURING = "measuring"
    MEASURED = "measured"
    SHAPING = "shaping"
    SHAPED = "shaped"
    STARTING = "starting"
    TRAINING = "training"
    ENDING = "ending"  # how it ends is known; what is left is to get rid of everything
    CLEARED = "cleared"


class RunningRank:
    """`is_over` once nothing of it is left; `RankEnded`, if one was due, has been reported.

    An agent may train several ranks of a gang at once, each in a process. The first of them tells
    the steps, unless each has a pace of its own, and the agent has succeeded once all of them have.
    """

    def __init__(
        self,
        command: StartRank,
        *,
        resources: RankResources,
        report: Callable[[ReportBody], None],
        progress_timeout_s: float,
        now: float,
    ) -> None:
        self.token = command.token
        self.begun_s = now
        self._command = command
        self._resources = resources
        self._report = report
        self._progress_timeout_s = progress_timeout_s
        self._phase = Phase.PREPARING
        self._address: RankAddress | None = None
        self._addresses: tuple[RankAddress, ...] = ()
        self._ready: dict[int, Ready] = {}
        self._results: dict[int, TrainerResult] = {}
        self._heard_s: dict[int, float] = {}  # when a rank has last said something, by process
        training = (index for index, role in enumerate(command.roles) if role == WORKER)
        self._training = frozenset(training) or frozenset({0})  # or the only server
        self._exited: set[int] = set()
        self._checksums: dict[int, float] = {}  # of the weights before the training, by process
        self._is_connecting = False
        self._failure: Failure | None = None
        self._echoing: set[int] = set()  # processes that have said that they lost a peer
        self._user_code: dict[int, UserCode] = {}  # what was heard last of it, by process
        self._is_stopped = False  # by the server, which wants no report of it
        self._is_clearing = False
        self._go_s = 0.0
        self._shape_timeout_s = 0.0
        self._deadlines = Deadlines()
        self._clear_at: float | None = None
        self._log_due_s = now + GATHER_S

    @property
    def _has_peers(self) -> bool:
        """Whether its processes connect to any others."""
        return self._command.spec.world_size > 1 or len(self._command.roles) > 1

    @property
    def is_over(self) -> bool:
        return self._phase is Phase.CLEARED

    @property
    def is_ending(self) -> bool:
        return self._phase in (Phase.ENDING, Phase.CLEARED)

    def start(self) -> None:
        """Start the trainers; the first barrier's time runs."""
        timeout_s = self._command.prepare_timeout_s
        self._expect(self.begun_s + timeout_s, f"trainer was not ready within {timeout_s:g} s")
        try:
            self._address = self._resources.prepare()
        except TrainerFailed as error:
            self.fail(FailureKind.REFUSED, str(error))

    def peers(self, command: Peers, *, now: float) -> None:
        if self._phase is not Phase.PREPARED:
            return
        self._addresses = command.addresses
        self._enter(Phase.MEASURING, now + command.timeout_s, "peers were not measured in time")
        self._resources.measure(command.addresses, timeout_s=command.timeout_s)

    def shape(self, command: Shape, *, now: float) -> None:
        if self._phase is not Phase.MEASURED:
            return
        self._shape_timeout_s = command.timeout_s
        self._enter(Phase.SHAPING, now + command.timeout_s, "network was not shaped in time")
        self._resources.shape(
            command.profile, addresses=self._addresses, timeout_s=command.timeout_s
        )

    def go(self, command: Go, *, received_s: float) -> None:
        """Let the trainers connect. `received_s` is tick 0 of the series."""
        if self._phase is not Phase.SHAPED:
            return
        assert self._address is not None
        self._go_s = received_s
        self._is_connecting = True
        late = f"first step was not done within {command.timeout_s:g} s"
        self._enter(Phase.STARTING, received_s + command.timeout_s, late)
        limit_s = self._command.spec.time_limit_s
        message = f"not done within time_limit_s = {limit_s:g}"
        self._deadlines.set(FailureKind.TIME_LIMIT, received_s + limit_s, message)
        try:
            lines = go_lines(command, roles=self._command.roles, address=self._address)
            self._resources.go(lines, go_s=received_s)
        except (InvalidSpec, TrainerFailed) as error:
            self.fail(FailureKind.RENDEZVOUS, str(error))

    def fail(self, kind: FailureKind, message: str) -> None:
        """End the rank now, unless it is ending already; every process is killed."""
        if not self.is_ending:
            logger.warning("rank failed: %s", message)
            self._failure = Failure(kind=kind, message=message)
            self._phase = Phase.ENDING
        self._clear()

    def stop(self, reason: str) -> None:
        """End the rank without a report: the server has closed its attempt."""
        logger.info("rank was stopped: %s", reason)
        self._is_stopped = True
        self._phase = Phase.ENDING if not self.is_over else self._phase
        self._clear()

    def handle(self, event: RankEvent, *, now: float) -> None:
        """Take an event of this rank's own."""
        if isinstance(event, Sampled):
            self._report(Samples(samples=event.samples))
        elif isinstance(event, TrainerOutput):
            self._hear(event.process, event.event, now=now)
        elif isinstance(event, TrainerExited):
            self._on_exit(event)
        elif isinstance(event, NetworkMeasured):
            self._on_measured(event, now=now)
        elif isinstance(event, RankCleared):
            self._on_cleared(event)

    def tick(self, *, now: float) -> None:
        """Enforce the limits that have run out, and send on what the trainers have written."""
        if self._clear_at is not None and now >= self._clear_at:
            self._clear()
        if now >= self._log_due_s and not (self._is_stopped or self.is_over):
            self._log_due_s = now + GATHER_S
            self._report_log()
        if self.is_ending:
            return
        expired = self._deadlines.expired(now)
        if expired is None:
            return
        running = (item for item in self._user_code.items() if item[1].is_running)
        process, code = next(running, (0, None))
        if code is not None and expired.kind is FailureKind.RENDEZVOUS:
            text = f"{code.name}: expected its build to return, but {expired.message}"
            self.fail(FailureKind.TRAINER_RAISED, self._of_rank(process, text))
        else:
            self.fail(expired.kind, expired.message)

    def _hear(self, process: int, event: TrainerEvent, *, now: float) -> None:
        if isinstance(event, Failure) and (lost := lost_data_workers(event)):
            memory = self._resources.memory_evidence(process, children=lost)
            event = failure_of_data_workers(event, memory=memory)
        if self.is_ending:
            # Only the farewells of processes that are being waited for still count.
            if isinstance(event, TrainerResult):
                self._results.setdefault(process, event)
            elif isinstance(event, Failure) and self._is_echo and not self._is_clearing:
                self._take_cause(process, event)
            return
        # A server that lives says nothing of a rank that trains, nor does one such rank of another.
        if self._phase is Phase.TRAINING and process in self._training:
            self._heard_s[process] = now
            self._expect_progress()
        if isinstance(event, Ready):
            self._ready[process] = event
            self._prepare_if_all_ready(now)
        elif isinstance(event, UserCode):
            self._user_code[process] = event
        elif isinstance(event, Failure):
            message = self._of_rank(process, event.message)
            self._failure = dataclasses.replace(event, message=message)
            self._echoing.add(process)
            self._leave(now + LEAVE_AFTER_FAILURE_S)
        elif isinstance(event, TrainerResult):
            self._results[process] = event
            if self._training <= self._results.keys():
                self._leave(now + LEAVE_AFTER_RESULT_S)
        else:
            if isinstance(event, Started):
                self._compare_weights(process, event)
            # The first speaks for the agent, but for steps that each rank makes at its own pace.
            if not self.is_ending and process == 0:
                self._report_progress(event, now=now)
            elif not self.is_ending and isinstance(event, Steps) and not self._is_synchronous:
                self._report(steps_report(event, go_s=self._go_s, process=process))

    def _prepare_if_all_ready(self, now: float) -> None:
        if self._phase is not Phase.PREPARING or len(self._ready) < len(self._command.roles):
            return
        assert self._address is not None
        control_s = [self._ready[process].device_control_s for process in self._training]
        known_s = [one_s for one_s in control_s if one_s is not None]
        self._report(
            Prepared(
                address=self._address,
                framework=self._ready[0].framework,
                dataset=self._ready[0].dataset,
                model_sha256=self._ready[0].model_sha256,
                device_control_s=max(known_s, default=None)
                if len(known_s) == len(control_s)
                else None,
                prepare_s=now - self.begun_s,
            )
        )
        wait_s = self._command.prepare_timeout_s + BARRIER_GRACE_S
        self._enter(Phase.PREPARED, now + wait_s, "peers were never announced")

    def _on_measured(self, event: NetworkMeasured, *, now: float) -> None:
        expected = Phase.MEASURING if event.purpose is MeasuringPurpose.UNTOUCHED else Phase.SHAPING
        if self._phase is not expected:
            return
        if event.failure is not None:
            self.fail(FailureKind.NETWORK, event.failure)
            return
        if event.purpose is MeasuringPurpose.UNTOUCHED:
            self._report(PeersMeasured(rtts=event.rtts, control_s=event.control_s))
            if self._command.spec.network is not None:
                self._enter(Phase.MEASURED, now + BARRIER_GRACE_S, "shaping was never ordered")
                return
        # Where nothing is to be shaped, this network is the one that was just measured.
        self._report(event.shaped or Shaped(emulator=event.emulator, rtts=event.rtts))
        # A peer may need all of the barrier's time, which can be long.
        self._enter(Phase.SHAPED, now + self._shape_timeout_s + BARRIER_GRACE_S, "go never came")

    def _report_progress(self, event: TrainerEvent, *, now: float) -> None:
        if isinstance(event, Started):
            self._phase = Phase.TRAINING
            self._is_connecting = False
            self._deadlines.drop(FailureKind.RENDEZVOUS)
            self._heard_s = dict.fromkeys(self._training, now)
            self._expect_progress()
        body = report_of(event, go_s=self._go_s)
        if body is not None:
            self._report(body)

    @property
    def _is_synchronous(self) -> bool:
        """Whether all ranks of the gang step together."""
        return strategy_or_launcher(self._command.spec.strategy).facts.is_synchronous

    def _on_exit(self, event: TrainerExited) -> None:
        self._exited.add(event.process)
        if not self.is_ending and event.process not in self._results:
            failure = self._failure_of(event)
            self.fail(failure.kind, self._of_rank(event.process, failure.message))
        elif self.is_ending:
            has_spoken = event.process in self._echoing or event.process in self._results
            if self._is_echo and not self._is_clearing and not has_spoken:
                self._take_cause(event.process, self._failure_of(event))
            if self._training <= self._exited or not (self._failure is None or self._is_echo):
                self._clear()

    def _failure_of(self, event: TrainerExited) -> Failure:
        return failure_of_exit(
            event.return_code,
            memory=self._resources.memory_evidence(event.process),
            log_tail=self._resources.log_tail(),
            is_connecting=self._is_connecting and self._has_peers,
            user_code=self._user_code.get(event.process),
        )

    @property
    def _is_echo(self) -> bool:
        """Whether the failure may be the echo of one of this agent's other processes.

        What a process hears of a peer's end may come before the agent knows of that end.
        """
        return self._failure is not None and self._failure.kind is FailureKind.PEER_LOST

    def _take_cause(self, process: int, failure: Failure) -> None:
        """Let a failure that is no echo take the place of one that is."""
        if failure.kind is FailureKind.PEER_LOST:
            self._echoing.add(process)
        else:
            message = self._of_rank(process, failure.message)
            self._failure = dataclasses.replace(failure, message=message)

    def _compare_weights(self, process: int, event: Started) -> None:
        """Refuse a model that differs between ranks of this agent; the server compares agents."""
        if event.weights_checksum is None:
            return
        self._checksums[process] = event.weights_checksum
        named = [
            (title_of(self._command, one), checksum) for one, checksum in self._checksums.items()
        ]
        failure = unlike_weights(self._command.spec.model, named)
        if failure is not None:
            self.fail(failure.kind, failure.message)

    def _of_rank(self, process: int, message: str) -> str:
        """Say of which of an agent's several ranks, or of its server, a message is."""
        if self._command.spec.ranks_per_agent == 1:
            return message
        return f"process of {title_of(self._command, process)}: {message}"

    def _on_cleared(self, event: RankCleared) -> None:
        self._phase = Phase.CLEARED
        if self._is_stopped:
            return
        if self._failure is None and event.failure is not None:
            logger.warning("rank is void: %s", event.failure)
            # What it measured may have been another network, and so may what comes next.
            self._failure = Failure(kind=FailureKind.NETWORK, message=event.failure)
        self._report_log(is_last=True)
        end = self._failure or self._result()
        log_tail = self._resources.log_tail()
        self._report(ended_report(end, go_s=self._go_s, log_tail=log_tail, rtts=event.rtts))

    def _result(self) -> TrainerResult | Failure:
        """Return the result of all ranks of this agent, or how they contradict each other."""
        results = {process: self._results[process] for process in sorted(self._training)}
        counts = [
            (title_of(self._command, process), result.timed_step_count)
            for process, result in results.items()
        ]
        return unlike_step_counts(self._command.spec, counts) or result_of_ranks(
            list(results.values()), is_synchronous=self._is_synchronous
        )

    def _report_log(self, *, is_last: bool = False) -> None:
        for part in self._resources.log_parts(is_last=is_last):
            self._report(part)

    def _enter(self, phase: Phase, deadline: float, message: str) -> None:
        self._phase = phase
        self._expect(deadline, message)

    def _expect(self, deadline: float, message: str) -> None:
        self._deadlines.set(FailureKind.RENDEZVOUS, deadline, message)

    def _expect_progress(self) -> None:
        """Limit how long each rank that is not done may say nothing."""
        silent = {p: at_s for p, at_s in self._heard_s.items() if p not in self._results}
        process = min(silent, key=lambda one: silent[one])
        text = f"trainer said nothing for {self._progress_timeout_s:g} s"
        instant = silent[process] + self._progress_timeout_s
        self._deadlines.set(FailureKind.STALLED, instant, self._of_rank(process, text))

    def _leave(self, deadline: float) -> None:
        self._phase = Phase.ENDING
        self._clear_at = deadline

    def _clear(self) -> None:
        if not self._is_clearing:
            self._clear_at = 0.0  # overdue: should it not begin now, the next tick tries again
            has_succeeded = not self._is_stopped and self._failure is None
            self._resources.clear(has_succeeded=has_succeeded)
            self._is_clearing, self._clear_at = True, None


class Deadlines:
    """At most one limit of each kind; setting it again moves it."""

    def __init__(self) -> None:
        self._limits: dict[FailureKind, tuple[float, str]] = {}

    def set(self, kind: FailureKind, instant: float, message: str) -> None:
        """From `instant` on the rank has failed for the reason given."""
        self._limits[kind] = (instant, message)

    def drop(self, kind: FailureKind) -> None:
        self._limits.pop(kind, None)

    def expired(self, now: float) -> Failure | None:
        """Return the failure of the limit that ran out first, or None."""
        passed = [(at, kind, text) for kind, (at, text) in self._limits.items() if now >= at]
        if not passed:
            return None
        _, kind, message = min(passed, key=lambda limit: limit[0])
        return Failure(kind=kind, message=message)


def report_of(event: TrainerEvent, *, go_s: float) -> ReportBody | None:
    """Return the report of an event on the way; None: the server needs none.

    `go_s` is the receipt of *go* by the same monotonic clock as the event's instants.
    """
    if isinstance(event, Started):
        return RankStarted(
            parameter_count=event.parameter_count,
            gradient_bytes=event.gradient_bytes,
            connect_s=event.connect_s,
            first_step_s=event.first_step_s,
            weights_checksum=event.weights_checksum,
        )
    if isinstance(event, Steps):
        return steps_report(event, go_s=go_s)
    return event if isinstance(event, Epoch) else None


def steps_report(steps: Steps, *, go_s: float, process: int = 0) -> StepTimes:
    """Return the report of steps that one of the agent's processes has made."""
    return StepTimes(
        process=process,
        kind=steps.kind,
        first_step=steps.first_step,
        begun_s=steps.begun_monotonic_s - go_s,
        times_s=steps.times_s,
    )

"""The agent's main thread: it owns the rank, the spool, the fencing and the heartbeats.

Everything that may block (trainers, sampler, probes, the broker) runs in other threads and
processes, and reports through one queue. So this thread needs no locks, and no trouble with the
network or the broker stops the sampling.
"""

from __future__ import annotations

import logging
import queue
import signal
import time
import uuid
from contextlib import ExitStack

from farm.configuration.scripts import bundle_of
from farm.errors import InvalidSpec
from farm.log import set_log_ids
from farm.messages.agents import AgentFacts, AgentState, Heartbeat
from farm.messages.commands import (
    COMMANDS,
    BeatConfirmed,
    BundlePiece,
    Confirm,
    Go,
    Peers,
    Shape,
    StartRank,
    StopAttempt,
)
from farm.messages.envelope import seal, unseal
from farm.messages.trainer_lines import Failure, FailureKind
from farm.processes.service_manager import ServiceManager
from worker_agent.broker.broker_client_supervisor import BrokerClientSupervisor
from worker_agent.config import AgentConfig
from worker_agent.network.network_cleanup import NetworkCleanup
from worker_agent.network.undo import undo_leftovers
from worker_agent.rank.bundles import BundleFetch, BundleRefused, remove_folders
from worker_agent.rank.ports import PortRange
from worker_agent.rank.rank import RunningRank
from worker_agent.rank.resources import RankResources
from worker_agent.spool.delivery import Delivery
from worker_agent.spool.journal import Journal, ServedRank
from worker_agent.spool.spool import Spool
from worker_agent.supervisor.condition import LEAVE_LIMIT_S, Condition, Shutdown
from worker_agent.supervisor.events import (
    AgentEvent,
    BrokerClientGone,
    BrokerClientReady,
    CommandArrived,
    OrderDone,
    Post,
    StopRequested,
    TemplateGone,
    TemplateReady,
    UndoFinished,
)
from worker_agent.supervisor.fencing import Admission, TokenFile, admit
from worker_agent.supervisor.heartbeat import HeartbeatSchedule
from worker_agent.trainer_process.child import become_reaper, reap_orphans
from worker_agent.trainer_process.orphans import kill_leftovers
from worker_agent.trainer_process.template import TemplateSupervisor

logger = logging.getLogger(__name__)

_LONGEST_WAIT_S = 1.0
_UNANSWERED = (
    "the server has not answered this agent's heartbeats for %.0f s, although the broker takes "
    "them: its collector does not run, or it refuses this agent, %s; `farm doctor` on the server "
    "says which"
)
_KEYED = "whose key (AGENT_KEY or AGENT_KEY_FILE) is not the one from `farm agent add` or `rotate`"
_UNKEYED = (
    "which has no key (AGENT_KEY or AGENT_KEY_FILE): `farm agent add` on the server prints one"
)


class Supervisor:
    """One life of the agent, from `run` to its return."""

    def __init__(self, config: AgentConfig, facts: AgentFacts) -> None:
        now = time.monotonic()
        self._config = config
        self._events: queue.SimpleQueue[AgentEvent] = queue.SimpleQueue()
        settings = config.settings
        self._tokens = TokenFile(settings.state_dir / "highest_token")
        self._served = ServedRank(settings.state_dir / "served_rank")
        self.spool = Spool(settings.state_dir / "spool", max_bytes=settings.spool_max_bytes)
        self._journal = Journal(self.spool)
        self._delivery = Delivery(self.spool, agent_id=config.agent_id)
        beat_s, lease_s = settings.heartbeat_s, settings.lease_s
        self._heartbeat = HeartbeatSchedule(
            boot_id=uuid.uuid4().hex, interval_s=beat_s, lease_s=lease_s, now=now
        )
        self._broker_client = BrokerClientSupervisor(config, self._events.put)
        self._template = TemplateSupervisor(config, self._events.put)
        self._ports = PortRange(*settings.port_range)
        self.rank: RunningRank | None = None
        self._fetch = BundleFetch()
        self._seen_tokens: frozenset[int] = frozenset()
        self._has_failed = False  # in the last step
        self._has_told_of_folder = False
        self._shown: tuple[AgentState, int | None, int, str | None] | None = None
        self._shutdown = Shutdown()
        self._network_cleanup = NetworkCleanup(settings.state_dir, self._events.put)
        sources = (
            self._heartbeat,
            self._delivery,
            self._shutdown,
            self._network_cleanup,
            self._journal,
        )
        self._condition = Condition(config, facts, *sources)

    def run(self, manager: ServiceManager) -> None:
        """Serve until SIGTERM or SIGINT, then end the rank, flush what goes, leave no process."""
        post_stop_signals(self._events.put)
        with ExitStack() as at_the_end:  # the last one first, whichever of them fails
            at_the_end.callback(self.spool.close)
            at_the_end.callback(kill_leftovers, self._config, limit_s=LEAVE_LIMIT_S)
            at_the_end.callback(self._template.stop)
            at_the_end.callback(self._broker_client.stop)
            set_log_ids(agent_id=self._config.agent_id)
            logger.info("agent begins")
            if not become_reaper():
                self._template.stop()  # a fork would be adopted by another process
            self.begin()
            self._tick(time.monotonic())
            while not self._may_leave(time.monotonic()):
                manager.notify_watchdog()
                self.step()
        logger.info("agent has left")

    def begin(self) -> None:
        """Clean up after an agent that crashed; before the first step."""
        clean_up_after_crash(self._config, self._served, self._journal)

    def step(self) -> bool:
        """Wait for an event or until something is due; return whether there was an event."""
        try:
            event = self._events.get(timeout=self._patience_s(time.monotonic()))
        except queue.Empty:
            event = None
        now = time.monotonic()
        try:
            if event is not None:
                self._handle(event, now=now)
            self._tick(now)
        except Exception:
            self._has_failed = True
            logger.exception("event was not handled: %r", event)
        else:
            self._has_failed = False
        return event is not None

    def _patience_s(self, now: float) -> float:
        """Return how long nothing will be due. What cannot be sent now is not waited for."""
        waits = [_LONGEST_WAIT_S]
        if self._has_failed:  # or what fails at once would be tried again without an end
            return _LONGEST_WAIT_S
        if self._broker_client.can_publish("heartbeats"):
            waits.append(self._heartbeat.due_in_s(now=now))
        if self._broker_client.can_publish("reports") and self._journal.trouble is None:
            silent = self._heartbeat.is_server_silent(now=now)
            waits.append(self._delivery.due_in_s(now=now, server_is_silent=silent))
        return min(waits)

    def _handle(self, event: AgentEvent, *, now: float) -> None:
        if isinstance(event, StopRequested):
            self._leave(event.signal_name, now=now)
        elif isinstance(event, BrokerClientReady | OrderDone | BrokerClientGone):
            if self._broker_client.has_published("heartbeats", event):
                self._heartbeat.taken(now=now)
            if self._broker_client.handle(event, now=now) and isinstance(event, BrokerClientReady):
                self._delivery.start_over()
                self._heartbeat.send_soon()
        elif isinstance(event, CommandArrived):
            if self._broker_client.handle(event, now=now):
                self._obey(event, now=now)
        elif isinstance(event, TemplateReady | TemplateGone):
            self._template.handle(event, now=now)
        elif isinstance(event, UndoFinished):
            self._network_cleanup.handle(event, now=now)
        elif self.rank is not None and event.token == self.rank.token:
            self.rank.handle(event, now=now)

    def _tick(self, now: float) -> None:
        self._look_at_folder()
        self._journal.write()
        if self.rank is not None:
            self._watch_over(self.rank, now=now)
        else:
            self._served.forget()  # again: its folder may have been away
        self._broker_client.tick(now=now)
        is_idle = self.rank is None and not self._shutdown.has_begun
        self._template.tick(now=now, is_idle=is_idle)
        self._network_cleanup.tick(now=now, is_idle=is_idle)
        if is_idle:
            reap_orphans(own=self._broker_client.pids | self._template.pids)
        shown = (
            self._state(),
            self.serving_token,
            self._tokens.highest,
            self._condition.trouble,
        )
        if shown != self._shown:
            self._shown = shown
            self._heartbeat.send_soon()
        if (silence_s := self._heartbeat.silence_s(now=now)) is not None:
            logger.warning(_UNANSWERED, silence_s, _KEYED if self._config.key else _UNKEYED)
        if self._broker_client.can_publish("heartbeats") and self._heartbeat.due_in_s(now=now) == 0:
            self._broker_client.publish("heartbeats", seal(self._beat(now)))
        if self._broker_client.can_publish("reports") and self._journal.trouble is None:
            silent = self._heartbeat.is_server_silent(now=now)
            batch = self._delivery.next_batch(now=now, server_is_silent=silent)
            if batch is not None:
                self._broker_client.publish("reports", seal(batch))

    def _look_at_folder(self) -> None:
        """Say once that the state folder is gone; go on once it is back, or another is there."""
        trouble = self._journal.trouble
        if trouble is None:
            if self._has_told_of_folder:
                logger.info("the state folder is back")
            self._has_told_of_folder = False
            return
        if not self._has_told_of_folder:
            logger.error("this agent takes no rank: %s", trouble)
            self._has_told_of_folder = True
        folder = self._config.settings.state_dir
        try:
            if folder.is_dir() and not any((folder / "spool").glob("*")):
                self._tokens.write_again()
                lost_count = self.spool.start_over()
                self._delivery.start_over()
                logger.warning("a new spool was begun; reports that are lost: %d", lost_count)
        except OSError as error:
            logger.warning("no new spool can be begun: %s", error)

    def _watch_over(self, rank: RunningRank, *, now: float) -> None:
        limit_s = self._config.settings.lease_s / 2
        # The order to begin a rank shows as well that the server was alive.
        unconfirmed_s = min(self._heartbeat.unconfirmed_s(now=now), now - rank.begun_s)
        if unconfirmed_s > limit_s and not rank.is_ending:
            rank.fail(FailureKind.AGENT_LOST, f"no confirmation from the server for {limit_s:g} s")
        if not rank.is_ending and (self._journal.is_blocked or self._journal.trouble is not None):
            rank.fail(FailureKind.KILLED, "the agent's disk is full")
        rank.tick(now=now)
        if rank.is_over:
            logger.info("rank is over")
            set_log_ids(agent_id=self._config.agent_id)
            self.rank = None
            self._served.forget()

    def _obey(self, event: CommandArrived, *, now: float) -> None:
        try:
            command = unseal(COMMANDS[event.name], event.envelope)
        except (InvalidSpec, KeyError) as error:
            logger.error("command %s was refused: %s", event.name, error)  # noqa: TRY400
            return
        if isinstance(command, BeatConfirmed):
            was_silent = self._heartbeat.is_server_silent(now=now)
            if self._heartbeat.confirm(command, now=now) and was_silent:
                self._delivery.start_over()
        elif isinstance(command, Confirm):
            self._delivery.confirm(command, now=now)
        elif isinstance(command, StartRank):
            if self._is_fetched(command):
                self._start_rank(command, now=now)
        elif isinstance(command, BundlePiece):
            self._take_piece(command, now=now)
        elif isinstance(command, StopAttempt):
            self._stop_attempt(command)
        elif isinstance(command, Peers | Shape | Go):
            self._lead_on(command, event, now=now)

    def _lead_on(self, command: Peers | Shape | Go, event: CommandArrived, *, now: float) -> None:
        rank = self.rank
        if rank is None or rank.token != command.token:
            logger.info("%s is not for this rank", event.name, extra={"attempt_id": command.token})
        elif isinstance(command, Peers):
            rank.peers(command, now=now)
        elif isinstance(command, Shape):
            rank.shape(command, now=now)
        else:
            rank.go(command, received_s=event.received_s)

    def _is_fetched(self, command: StartRank) -> bool:
        """Whether the rank has its script; if not, the order is kept until that has come."""
        bundle = bundle_of(command.spec.model)
        if bundle is None or self.rank is not None or not self._config.runs_bundles:
            return True
        if command.token <= self._tokens.highest or self._config.bundles.has(bundle):
            return True
        self._fetch.begin(command, bundle)
        self._heartbeat.send_soon()
        return False

    def _take_piece(self, piece: BundlePiece, *, now: float) -> None:
        command = self._fetch.waiting
        try:
            archive = self._fetch.take(piece)
            if archive is None:
                if self._fetch.wanted is not None:
                    self._heartbeat.send_soon()
                return
            self._config.bundles.put(archive)
        except (BundleRefused, OSError) as error:
            assert command is not None
            self._fetch.end()
            self._refuse(command, str(error))
            return
        self._fetch.end()
        assert command is not None
        self._start_rank(command, now=now)

    def _start_rank(self, command: StartRank, *, now: float) -> None:
        state = self._state()
        admission = admit(
            command.token,
            highest_token=self._tokens.highest,
            seen_tokens=self._seen_tokens,
            state=state,
        )
        if admission is Admission.DUPLICATE:
            return
        self._seen_tokens |= {command.token}
        reason = self._condition.refusal(is_serving=self.rank is not None)
        if admission is Admission.TOO_LOW:
            reason = f"token {command.token} is lower than {self._tokens.highest}, seen before"
        elif admission is Admission.START:
            inability = self._condition.inability(command.spec)
            if inability is not None:
                admission, reason = Admission.UNAVAILABLE, inability
        try:
            self._tokens.raise_to(command.token)
            if admission is Admission.START:
                self._serve(command, now=now)
                return
        except OSError as error:
            reason = f"agent cannot write to its state directory: {error}"
        self._refuse(command, reason)

    def _refuse(self, command: StartRank, reason: str) -> None:
        logger.warning("rank was refused: %s", reason, extra=command.ids)
        failure = Failure(kind=FailureKind.REFUSED, message=reason)
        self._journal.add_lost(command.token, rank=command.rank, failure=failure)

    def _serve(self, command: StartRank, *, now: float) -> None:
        set_log_ids(agent_id=self._config.agent_id, **command.ids)
        logger.info("rank begins")
        self._served.remember(command.token, rank=command.rank, job_id=command.job_id)
        self.rank = RunningRank(
            command,
            resources=RankResources(
                command,
                config=self._config,
                ports=self._ports,
                post=self._events.put,
                template=self._template.template(),
            ),
            report=lambda body: self._journal.add(command.token, rank=command.rank, body=body),
            progress_timeout_s=self._config.settings.progress_timeout_s,
            now=now,
        )
        try:
            self.rank.start()
        except (OSError, RuntimeError) as error:  # the latter: no new thread
            self.rank.fail(FailureKind.REFUSED, f"rank could not begin: {error}")

    def _stop_attempt(self, command: StopAttempt) -> None:
        if self.rank is not None and self.rank.token <= command.token:
            self.rank.stop(command.reason)
        if self._fetch.waiting is not None and self._fetch.waiting.token <= command.token:
            self._fetch.end()
        try:
            self._tokens.raise_to(command.token)
        except OSError as error:  # the server says so again, until the token is on disk
            logger.warning("the token was not written down: %s", error)
        # The server waits for our word that nothing of the attempt is left.
        self._heartbeat.send_soon()

    def _state(self) -> AgentState:
        return self._condition.state(is_serving=self.rank is not None)

    @property
    def serving_token(self) -> int | None:
        """The token of the rank that it serves."""
        return self.rank.token if self.rank is not None else None

    def _beat(self, now: float) -> Heartbeat:
        return self._condition.beat(
            serving_token=self.serving_token,
            highest_token=self._tokens.highest,
            template_bytes=self._template.template_bytes,
            wanted=self._fetch.wanted,
            now=now,
        )

    def _leave(self, signal_name: str, *, now: float) -> None:
        if self._shutdown.has_begun:
            return
        logger.info("agent is leaving: %s", signal_name)
        self._shutdown.begin(now=now)
        if self.rank is not None:
            self.rank.fail(FailureKind.KILLED, "agent was stopped")

    def _may_leave(self, now: float) -> bool:
        has_said_so = (
            self._broker_client.can_publish("heartbeats") and self._heartbeat.due_in_s(now=now) > 0
        )
        return self._shutdown.is_over(
            now=now,
            is_serving=self.rank is not None,
            is_sent=self._delivery.is_empty and (has_said_so or not self._broker_client.is_ready),
        )


def post_stop_signals(post: Post) -> None:
    """Let SIGTERM and SIGINT be posted from now on, instead of ending the process."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: post(StopRequested(signal_name=signal.Signals(n).name)))


def clean_up_after_crash(config: AgentConfig, served: ServedRank, journal: Journal) -> None:
    """Clean up after an agent that crashed.

    Kill its processes, undo its network profile, report the end of the rank that it served.
    """
    unfinished = served.read()
    ids = dict(zip(("attempt_id", "rank", "job_id"), unfinished or (), strict=False))
    killed = kill_leftovers(config)
    if killed:
        logger.warning("leftover processes of a crashed agent were killed: %d", killed, extra=ids)
    remove_folders(config.settings.state_dir, config.trainer_user)
    undo_leftovers(config.site)
    if unfinished is None:
        return
    token, rank, _ = unfinished
    message = "the agent ended while it served this rank, and was started again"
    logger.warning("rank was lost: %s", message, extra=ids)
    failure = Failure(kind=FailureKind.AGENT_LOST, message=message)
    journal.add_lost(token, rank=rank, failure=failure)
    served.forget()

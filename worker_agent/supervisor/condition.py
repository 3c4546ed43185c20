"""Decides whether an agent accepts a rank, and how long it waits before it stops."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path

from farm.configuration.spec import RANKS_CAPABILITY, JobSpec
from farm.messages.agents import AgentFacts, AgentState, Heartbeat, WantedPiece
from worker_agent.config import AgentConfig
from worker_agent.machine.cloud import RetriedLabels
from worker_agent.network.network_cleanup import NetworkCleanup
from worker_agent.spool.delivery import Delivery
from worker_agent.spool.journal import Journal
from worker_agent.supervisor.heartbeat import HeartbeatSchedule

# Of a stopping agent: the rank's processes need a moment to die, and its reports one to be sent.
LEAVE_LIMIT_S = 8.0
FLUSH_LIMIT_S = 2.0


class Shutdown:
    """The agent's shutdown, from its request to its end; times are of the monotonic clock."""

    def __init__(self) -> None:
        self._begun_s: float | None = None
        self._flush_until_s = 0.0

    @property
    def has_begun(self) -> bool:
        return self._begun_s is not None

    def begin(self, *, now: float) -> None:
        self._begun_s = now
        self._flush_until_s = now + FLUSH_LIMIT_S

    def is_over(self, *, now: float, is_serving: bool, is_sent: bool) -> bool:
        """Whether nothing is left to do, or no time to do it."""
        if self._begun_s is None:
            return False
        if is_serving:
            self._flush_until_s = now + FLUSH_LIMIT_S
            return now - self._begun_s > LEAVE_LIMIT_S
        return is_sent or now > self._flush_until_s


class Condition:
    """Reads what others own, but for the labels that it still asks the cloud for."""

    def __init__(
        self,
        config: AgentConfig,
        facts: AgentFacts,
        schedule: HeartbeatSchedule,
        delivery: Delivery,
        shutdown: Shutdown,
        cleanup: NetworkCleanup,
        journal: Journal,
    ) -> None:
        self._config = config
        self._facts = facts
        self._labels = RetriedLabels(config.cloud, known=facts.labels)
        self._labels.start()
        self._heartbeat = schedule
        self._delivery = delivery
        self._shutdown = shutdown
        self._network_cleanup = cleanup
        self._journal = journal

    def beat(
        self,
        *,
        serving_token: int | None,
        highest_token: int,
        template_bytes: int | None,
        wanted: WantedPiece | None,
        now: float,
    ) -> Heartbeat:
        """Return the next heartbeat, made at `now`."""
        return Heartbeat(
            agent_id=self._config.agent_id,
            boot_id=self._heartbeat.boot_id,
            counter=self._heartbeat.next(now=now),
            state=self.state(is_serving=serving_token is not None),
            serving_token=serving_token,
            highest_token=highest_token,
            agent_time_s=time.time(),
            echo=self._heartbeat.echo(now=now),
            facts=dataclasses.replace(
                self._facts,
                trouble=self.trouble,
                labels={**self._labels.reported, **self._facts.labels},
            ),
            template_bytes=template_bytes,
            backlog=self._delivery.backlog(now=now),
            disk_free_bytes=_free_bytes(self._config.settings.state_dir),
            wanted=wanted,
        )

    @property
    def trouble(self) -> str | None:
        """What has to be mended before this agent takes a rank; None: nothing."""
        return self._network_cleanup.trouble or self._journal.trouble

    def state(self, *, is_serving: bool) -> AgentState:
        if self._shutdown.has_begun:
            return AgentState.LEAVING
        if is_serving or self.trouble is not None:
            return AgentState.BUSY
        if self._journal.is_full:
            return AgentState.SPOOL_FULL
        return AgentState.IDLE

    def inability(self, spec: JobSpec) -> str | None:
        """Say that this agent has too few cores for a job's ranks; None: it has enough.

        The server looks before, but perhaps at what this agent said with other settings.
        """
        count = spec.ranks_per_agent
        if count == 1 or f"{RANKS_CAPABILITY}{count}" in self._facts.capabilities:
            return None
        return f"agent has not {count} cores for {count} ranks, and AGENT_SHARES_CORES is not set"

    def refusal(self, *, is_serving: bool) -> str:
        """Say why a rank is not taken, where the state is not to take any."""
        state = self.state(is_serving=is_serving)
        if state is AgentState.BUSY and not is_serving and self.trouble is not None:
            return self.trouble
        return f"agent is {state.value}"


def _free_bytes(folder: Path) -> int | None:
    """Return what the agent's user may still write there; None where the disk does not tell."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    # Some that are no disks claim more than any number on the wire may be.
    return min(disk.f_bavail * disk.f_frsize, 2**63 - 1)

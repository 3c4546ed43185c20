"""Measures, emulates, verifies and restores the network between one rank and its peers.

All functions here may block; they are called from the rank's threads.
"""

from __future__ import annotations

import dataclasses
import logging
import socket
import threading
import time

from farm.configuration.spec import NetworkProfile
from farm.errors import EmulationFailed
from farm.gang.network_check import SHAPED_TRIES, is_back, is_settled
from farm.gang.transfers import transfers_s
from farm.messages.commands import RankAddress, StartRank
from farm.messages.reports import PeerRtt, Shaped
from worker_agent.network.emulators import find_emulator
from worker_agent.network.emulators.contracts import NetworkEmulator, Site
from worker_agent.network.guard import AppliedNote, Guard, NoteFile
from worker_agent.network.port_gate import PortGate
from worker_agent.network.probing.bandwidth_tests import LinkTest, measure_bandwidths
from worker_agent.network.probing.probe import EchoServer, measure_peers
from worker_agent.network.probing.transfer import IncomingStreams
from worker_agent.network.undo import undo_applied
from worker_agent.rank.cluster import reroute

logger = logging.getLogger(__name__)

# Of the time left for the peers' barrier: for peers that probe this rank, before its cores become
# busy with the control run.
_PROBES_SHARE = 0.3
# How long a profile may stand beyond the job's time limit, for the rendezvous before and the
# clearing after; then the watchdog takes it away, whatever the agent does.
_SHAPED_GRACE_S = 600.0
# A peer comes with a probe and with what it has to send; some of what is over may still be open.
_CONNECTIONS_A_PEER = 4
_MORE_CONNECTIONS = 16
# Peers end within moments of each other, and what they shaped goes then.
_BACK_WITHIN_S = 10.0
_LAST_PROBES_WAIT_S = 3.0


class GangNetwork:
    def __init__(self, command: StartRank, site: Site, *, gate: PortGate | None = None) -> None:
        self._token = command.token
        self._rank = command.rank
        self._most_connections = _CONNECTIONS_A_PEER * command.agent_count + _MORE_CONNECTIONS
        self._streams = IncomingStreams(
            token=command.token, peers=frozenset(range(command.agent_count)) - {command.rank}
        )
        self._spec = command.spec
        self._site = site
        self._echo: EchoServer | None = None
        self._shaping: Shaping | None = None
        self._gate = gate
        self._addresses: tuple[RankAddress, ...] = ()
        self._peers: tuple[RankAddress, ...] = ()
        self._reached: tuple[RankAddress, ...] = ()  # the peers, as the shaped way leads to them
        self._untouched: tuple[PeerRtt, ...] = ()
        self._lock = threading.Lock()  # nothing may be applied once undoing has begun
        self._is_undone = False

    @property
    def emulator_name(self) -> str:
        return self._shaping.emulator.name if self._shaping else "none"

    @property
    def pids(self) -> tuple[int, ...]:
        """Processes at work for this rank."""
        return self._shaping.emulator.pids if self._shaping else ()

    def listen(self, listener: socket.socket) -> None:
        """Answer the peers' probes, on a socket that this object owns from now on."""
        self._echo = EchoServer(listener, self._streams, most_connections=self._most_connections)

    def measure(
        self, addresses: tuple[RankAddress, ...], *, timeout_s: float
    ) -> tuple[PeerRtt, ...]:
        """Measure the untouched network, and wait until the peers have done so.

        Raises EmulationFailed. From now on only the peers reach this rank's ports, if the agent may
        close them.
        """
        self._addresses, begun = addresses, time.monotonic()
        self._close_ports()
        self._untouched = measure_peers(addresses, own_rank=self._rank, timeout_s=timeout_s)
        left_s = begun + timeout_s - time.monotonic()
        self._await_probes(_PROBES_SHARE * left_s)
        return self._untouched

    def shape(
        self, profile: NetworkProfile, addresses: tuple[RankAddress, ...], *, timeout_s: float
    ) -> Shaped | None:
        """Apply the profile and measure the result; None if the rank is being cleared already.

        Wrong round trips are measured again, since a peer may be shaped a moment later. The last
        result is returned, right or wrong.

        Raises:
            EmulationFailed: the profile was not applied, or a peer does not answer.
        """
        deadline = time.monotonic() + timeout_s
        shaping = Shaping(
            find_emulator(profile, self._site, wanted=self._spec.emulator), self._site
        )
        with self._lock:
            if self._is_undone:
                return None
            self._shaping = shaping
            self._peers = tuple(a for a in addresses if a.rank != self._rank)
            self._reached = shaping.apply(profile, self._peers, limit_s=self._limit_s)
        try:
            return self._verify(profile, deadline=deadline)
        except EmulationFailed as error:
            # The address that it names may be a proxy's.
            raise EmulationFailed(f"through {self.emulator_name}: {error}") from error

    def reroute(self, cluster: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """Return the cluster as this rank must see it."""
        return reroute(cluster, peers=self._peers, reached=self._reached)

    def check(self) -> None:
        """Check that the profile and the closed ports lasted to the end. Call it before `undo`.

        Raises:
            EmulationFailed: they have changed.
        """
        if self._gate is not None:
            with self._lock:  # the ports may be about to be closed
                self._gate.check()
        if self._shaping is None:
            return
        try:
            self._shaping.emulator.check()
        except EmulationFailed as error:
            raise EmulationFailed(
                f"the network profile was not there to the end: {error}"
            ) from error

    def undo(self) -> None:
        """Remove the profile. Raises EmulationFailed: something may still be shaped."""
        with self._lock:
            self._is_undone = True
            if self._shaping is not None:
                self._shaping.undo()

    def measure_back(self) -> tuple[PeerRtt, ...]:
        """Measure the network after `undo`, until it is as before or the time is over.

        The shortest round trip to each peer is returned: remaining shaping delays every round trip,
        a busy machine only some. Peers that have ended already cannot be measured, which proves
        nothing: they are left out. The result is empty if nothing was shaped. Waits until the peers
        have measured this rank, too.
        """
        if self._shaping is None or (self._spec.network or NetworkProfile()).is_untouched:
            return ()
        if self._echo is not None:
            self._echo.forget_probes()
        deadline = time.monotonic() + _BACK_WITHIN_S
        found: dict[int, PeerRtt] = {}
        try:
            while time.monotonic() < deadline - _BACK_WITHIN_S / 10:
                left_s = deadline - time.monotonic()
                for rtt in measure_peers(self._addresses, own_rank=self._rank, timeout_s=left_s):
                    found[rtt.rank] = min(rtt, found.get(rtt.rank, rtt), key=lambda one: one.rtt_s)
                if all(map(self._is_back, found.values())):
                    break
        except EmulationFailed as error:
            logger.info("network was not timed at the end: %s", error)
            return tuple(filter(self._is_back, found.values()))
        self._await_probes(_LAST_PROBES_WAIT_S)
        return tuple(found.values())

    def open_ports(self) -> None:
        """Open the ports to everybody. Raises EmulationFailed: they may still be closed."""
        with self._lock:
            self._is_undone = True
            if self._gate is None:
                return
            try:
                self._gate.look()
            except EmulationFailed as error:
                logger.warning("whom this rank's ports have turned away is not known: %s", error)
            self._gate.open()

    def close(self) -> None:
        """Answer no more probes, and end running measurements."""
        self._streams.close()
        if self._echo is not None:
            self._echo.close()

    @property
    def _limit_s(self) -> float:
        return self._spec.time_limit_s + _SHAPED_GRACE_S

    def _close_ports(self) -> None:
        own = next((one for one in self._addresses if one.rank == self._rank), None)
        if self._gate is None or own is None:
            return
        peers = tuple(one for one in self._addresses if one.rank != self._rank)
        with self._lock:
            if not self._is_undone:
                self._gate.close(own, peers, limit_s=self._limit_s)

    def _verify(self, profile: NetworkProfile, *, deadline: float) -> Shaped:
        agent_count = len(self._peers) + 1
        probing_until = deadline - transfers_s(profile, agent_count=agent_count)
        begun = time.monotonic()
        for count in range(1, SHAPED_TRIES + 1):
            left_s = deadline - time.monotonic()
            rtts = measure_peers(self._reached, own_rank=self._rank, timeout_s=left_s)
            is_right = is_settled(profile, untouched=self._untouched, shaped=rtts)
            now = time.monotonic()
            if is_right or now + (now - begun) / count > probing_until:
                break
        shaped = Shaped(emulator=self.emulator_name, rtts=rtts)
        if profile.bandwidth_bytes_per_s is None or not self._peers:
            return shaped
        link_test = LinkTest(
            token=self._token,
            own_rank=self._rank,
            profile=profile,
            reached=self._reached,
            rtts_s={rtt.rank: rtt.rtt_s for rtt in rtts},
            is_settled=is_right,
        )
        found = measure_bandwidths(link_test, self._streams, deadline=deadline)
        return dataclasses.replace(
            shaped,
            bandwidths=found.bandwidths,
            loaded_rtts=found.loaded_rtts,
            loaded_rtt_unknown=found.loaded_rtt_unknown,
        )

    def _is_back(self, rtt: PeerRtt) -> bool:
        base_s = {peer.rank: peer.rtt_s for peer in self._untouched}
        return rtt.rank not in base_s or is_back(untouched_s=base_s[rtt.rank], back_s=rtt.rtt_s)

    def _await_probes(self, timeout_s: float) -> None:
        if self._echo is not None:
            self._echo.await_probes(len(self._untouched), timeout_s=timeout_s)


class Shaping:
    """One emulator's work for one rank."""

    def __init__(self, emulator: NetworkEmulator, site: Site) -> None:
        """Nothing is applied yet; `emulator` was made for `site`."""
        self.emulator = emulator
        self._site = site
        self._watchdog: Guard | None = None

    def apply(
        self, profile: NetworkProfile, peers: tuple[RankAddress, ...], *, limit_s: float
    ) -> tuple[RankAddress, ...]:
        """Shape the path to the peers; return the addresses at which they are reached now.

        If this process dies, the profile is undone after `limit_s` at the latest.

        Raises:
            EmulationFailed: it was not applied, or only partly; call `undo`.
        """
        if self.emulator.outlives_agent:
            self._guard(limit_s)
        return self.emulator.apply(profile, peers)

    def undo(self) -> None:
        """Remove it again; does nothing if it was never applied.

        Raises:
            EmulationFailed: something may still be shaped; the watchdog goes on trying.
        """
        guard, self._watchdog = self._watchdog, None
        if guard is None:
            self.emulator.clear()
            return
        guard.end(
            lambda: undo_applied(self._site.state_dir, number=guard.number),
            remove_settings=self.emulator.clear,
        )

    def _guard(self, limit_s: float) -> None:
        """Record the planned change, and start its watchdog."""
        # What an earlier rank could not undo must not be forgotten under a new note.
        undo_applied(self._site.state_dir)
        note = AppliedNote.new(self.emulator.name, self._site)
        try:
            self._watchdog = Guard(NoteFile(self._site.state_dir), note, limit_s=limit_s)
        except OSError as error:
            raise EmulationFailed(f"no network is shaped without a watchdog: {error}") from error

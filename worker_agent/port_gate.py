"""One rank's ports, open to its peers' addresses alone.

TensorFlow's server listens on every interface and asks nobody who he is. So before a trainer may
listen, its ports are closed to everybody but its peers; until then this agent holds them itself.
What is set outlives the agent's process, and is noted and guarded as a network profile is.
"""

from __future__ import annotations

import logging

from farm.core.commands import RankAddress
from farm.errors import EmulationFailed
from worker_agent.applied_note import GATE, AppliedNote, NoteFile
from worker_agent.emulators.site import Site
from worker_agent.emulators.tc_netem import resolve
from worker_agent.gate_rules import GateRules, closing_script, removing_script, table_of
from worker_agent.guard import Guard
from worker_agent.nft import refused_count, run_nft
from worker_agent.undo import undo_gate

logger = logging.getLogger(__name__)

NAME = "port_gate"


class PortGate:
    """Closed once, opened once; of one rank."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._table = table_of(site.state_dir)
        self._guard: Guard | None = None

    def close(self, own: RankAddress, peers: tuple[RankAddress, ...], *, limit_s: float) -> None:
        """Let nobody but the peers, and this machine itself, reach this rank's ports.

        Should this process die, that is undone soon after, and after `limit_s` at the latest.

        Raises:
            EmulationFailed: it was not done; `open` is due.
        """
        rules = GateRules(
            table=self._table,
            ports=(own.probe_port, *own.trainer_ports),
            peers=[address for peer in peers for address in resolve(peer)],
        )
        # What an earlier rank could not undo must not be forgotten under a new note.
        undo_gate(self._site.state_dir)
        note = AppliedNote.new(NAME, self._site)
        try:
            self._guard = Guard(NoteFile(self._site.state_dir, GATE), note, limit_s=limit_s)
        except OSError as error:
            raise EmulationFailed(f"no port is closed without a watchdog: {error}") from error
        run_nft(closing_script(rules))

    def look(self) -> None:
        """Log who else has knocked, and whether somebody has taken the rules away."""
        if self._guard is None:
            return
        count = refused_count(self._table)
        if count is None:
            logger.warning(
                "this rank's ports were open to everybody: nftables' table %s was removed "
                "(a reload of the firewall flushes all tables)",
                self._table,
            )
        elif count:
            logger.warning("packets of strangers to this rank's ports were refused: %d", count)

    def open(self) -> None:
        """Take the rules away again; without any nothing is done.

        Raises:
            EmulationFailed: they may still be there; the watchdog goes on trying.
        """
        guard, self._guard = self._guard, None
        if guard is None:
            return
        try:
            if undo_gate(self._site.state_dir, number=guard.number) is None:
                run_nft(removing_script(self._table))  # its note is lost
        except EmulationFailed:
            try:
                run_nft(removing_script(self._table))  # the network comes first
            finally:
                guard.alarm()
            raise
        guard.release()

"""Closes a trainer's ports to every address but those of its peers.

TensorFlow's server listens on every interface and does not authenticate its peers. So the ports of
a trainer are closed to everybody but its peers before it may listen; until then the agent holds the
ports itself. The rules outlive the agent's process. They are recorded on disk, and a watchdog
removes them, as with a network profile.
"""

from __future__ import annotations

import logging

from farm.errors import EmulationFailed
from farm.messages.commands import RankAddress
from worker_agent.network.emulators.contracts import Site
from worker_agent.network.emulators.tc_netem import resolve
from worker_agent.network.guard import GATE, AppliedNote, Guard, NoteFile
from worker_agent.network.nft import (
    INCOMING,
    GateRules,
    closing_script,
    nft_table_name,
    outgoing_chain,
    refused_counts,
    removing_script,
    run_nft,
    tables_with,
)
from worker_agent.network.undo import undo_gate

logger = logging.getLogger(__name__)

_NAME = "port_gate"


class PortGate:
    """The gate of one rank; it is closed once and opened once."""

    def __init__(self, site: Site, *, trainer_uid: int | None = None) -> None:
        """`trainer_uid`: a user who may send packets only to the gang, if there is one."""
        self._site = site
        self._trainer_uid = trainer_uid
        self._table = nft_table_name(site.state_dir)
        self._guard: Guard | None = None

    def close(self, own: RankAddress, peers: tuple[RankAddress, ...], *, limit_s: float) -> None:
        """Let only the peers and this machine reach this rank's ports.

        If this process dies, that is undone soon after, and after `limit_s` at the latest.

        Raises:
            EmulationFailed: it failed; call `open`.
        """
        rules = GateRules(
            table=self._table,
            ports=(own.probe_port, *own.trainer_ports),
            peers=[address for peer in peers for address in resolve(peer)],
            trainer_uid=self._trainer_uid,
        )
        self._check_alone()
        # What an earlier rank could not undo must not be forgotten under a new note.
        undo_gate(self._site.state_dir)
        note = AppliedNote.new(_NAME, self._site)
        try:
            self._guard = Guard(NoteFile(self._site.state_dir, GATE), note, limit_s=limit_s)
        except OSError as error:
            raise EmulationFailed(f"no port is closed without a watchdog: {error}") from error
        run_nft(closing_script(rules))

    def _check_alone(self) -> None:
        """Check that no other agent restricts this user's packets to another gang."""
        if self._trainer_uid is None:
            return
        others = set(tables_with(outgoing_chain(self._trainer_uid))) - {self._table}
        if others:
            raise EmulationFailed(
                f"trainers of user {self._trainer_uid} serve another gang on this machine already "
                f"(nftables' table {', '.join(others)}): give each agent an AGENT_TRAINER_USER"
            )

    def check(self) -> None:
        """Check that the rules still exist.

        Raises EmulationFailed: they do not, or it is not known.
        """
        if self._guard is not None and refused_counts(self._table) is None:
            raise EmulationFailed(
                f"this rank's ports were open to everybody: nftables' table {self._table} was "
                "removed (a reload of the firewall flushes all tables)"
            )

    def look(self) -> None:
        """Log how many packets the rules have dropped. Raises EmulationFailed: not known."""
        if self._guard is None:
            return
        for chain, count in (refused_counts(self._table) or {}).items():
            if count and chain == INCOMING:
                logger.warning("packets of strangers to this rank's ports were refused: %d", count)
            elif count:
                logger.warning("packets of trainers to others than peers were refused: %d", count)

    def open(self) -> None:
        """Remove the rules, if there are any.

        Raises:
            EmulationFailed: they may still be there; the watchdog goes on trying.
        """
        guard, self._guard = self._guard, None
        if guard is None:
            return

        def remove_settings() -> None:
            run_nft(removing_script(self._table))

        def undo() -> None:
            if undo_gate(self._site.state_dir, number=guard.number) is None:
                remove_settings()  # its note is lost

        guard.end(undo, remove_settings=remove_settings)

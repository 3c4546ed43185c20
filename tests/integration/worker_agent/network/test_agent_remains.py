"""An agent that cannot undo a network takes no rank, says why, and goes on when it is undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from farm.messages.agents import AgentState
from farm.messages.reports import RankEnded
from farm.messages.trainer_lines import FailureKind
from tests.machine.agents import AgentFarm
from worker_agent.network.emulators.contracts import Site
from worker_agent.network.guard import AppliedNote, NoteFile

# What a version to come may have applied.
UNKNOWN = "quantum_tunnel"
TROUBLE = (
    "a network that an earlier rank asked for is still applied:"
    " quantum_tunnel is applied, which this version does not know"
)


def write_note(state_dir: Path, *, emulator: str) -> NoteFile:
    site = Site(state_dir=str(state_dir), interface="lo", cpus=(0,), spared_ports=())
    notes = NoteFile(str(state_dir))
    with notes.locked():
        notes.write(AppliedNote(number="1", emulator=emulator, site=site))
    return notes


@pytest.mark.parametrize("is_restarted", [True, False], ids=["at its start", "between two ranks"])
def test_an_agent_whose_network_is_not_undone_takes_no_rank_until_it_is(
    tmp_path: Path, is_restarted: bool
) -> None:
    with AgentFarm(tmp_path) as farm:
        agent = farm.agent()
        if is_restarted:
            agent.stop()
        notes = write_note(agent.state_dir, emulator=UNKNOWN)
        if is_restarted:
            agent.start()
        beat = farm.await_beat(agent, lambda beat: beat.facts.trouble == TROUBLE, what="in trouble")
        assert (beat.state, beat.serving_token) == (AgentState.BUSY, None)

        gang = farm.gang(1, agent)
        gang.start()
        [refused] = gang.wait_for(RankEnded)
        assert refused.failure is not None
        assert refused.failure.kind is FailureKind.REFUSED
        assert refused.failure.message == TROUBLE

        write_note(agent.state_dir, emulator="none")  # which nothing keeps from being undone
        beat = farm.await_state(agent, AgentState.IDLE)
        assert beat.facts.trouble is None
        assert not notes.is_there
        later = farm.gang(2, agent)
        later.lead_to_go()
        [ended] = later.wait_for(RankEnded)
        assert ended.failure is None

"""A larger token wins, for ever and over restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from farm.messages.agents import AgentState
from worker_agent.supervisor.fencing import Admission, TokenFile, admit


@pytest.mark.parametrize(
    ("token", "state", "expected"),
    [
        (11, AgentState.IDLE, Admission.START),
        (11, AgentState.BUSY, Admission.UNAVAILABLE),
        (11, AgentState.SPOOL_FULL, Admission.UNAVAILABLE),
        (11, AgentState.LEAVING, Admission.UNAVAILABLE),
        (10, AgentState.IDLE, Admission.DUPLICATE),
        (10, AgentState.BUSY, Admission.DUPLICATE),
        (8, AgentState.BUSY, Admission.DUPLICATE),
        (9, AgentState.IDLE, Admission.TOO_LOW),
        (1, AgentState.BUSY, Admission.TOO_LOW),
    ],
)
def test_only_a_token_above_all_others_starts_a_rank(
    token: int, state: AgentState, expected: Admission
) -> None:
    seen = frozenset({8, 10})
    assert admit(token, highest_token=10, seen_tokens=seen, state=state) is expected


def test_the_token_of_an_earlier_life_is_not_started_again() -> None:
    admission = admit(10, highest_token=10, seen_tokens=frozenset(), state=AgentState.IDLE)
    assert admission is Admission.DUPLICATE


def test_the_highest_token_survives_a_restart_and_never_falls(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "highest_token")
    assert tokens.highest == 0
    tokens.raise_to(7)
    tokens.raise_to(3)
    assert tokens.highest == 7
    assert TokenFile(tmp_path / "highest_token").highest == 7


def test_a_token_that_cannot_be_kept_is_not_raised(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "gone" / "highest_token")
    with pytest.raises(OSError, match="No such file"):
        tokens.raise_to(7)
    assert tokens.highest == 0

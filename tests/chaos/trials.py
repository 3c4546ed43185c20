"""Random faults against a farm of real processes: it keeps its promises, and the checker would see.

`make chaos` is the long one. FARM_CHAOS_FAULTS and FARM_CHAOS_SEED ask for other numbers here.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.__main__ import at_hand, run
from tests.chaos.faults import FAULTS
from tests.chaos.outcome import Outcome
from tests.chaos.table import table

# Each once; the long campaign has thirty of each.
FAULT_COUNT = int(os.environ.get("FARM_CHAOS_FAULTS", str(len(FAULTS))))
SEED = int(os.environ.get("FARM_CHAOS_SEED", "2026"))


def story(outcome: Outcome) -> str:
    return "\n".join([f"seed {SEED}", *map(str, outcome.strikes), *outcome.broken])


@pytest.mark.timeout(900)
def test_a_farm_keeps_its_promises_whatever_strikes_it(tmp_path: Path) -> None:
    outcome = run(tmp_path, at_hand(print), count=FAULT_COUNT, seed=SEED, say=print)
    print("\n".join(table(outcome)))
    assert outcome.broken == [], story(outcome)
    assert not outcome.lost_jobs
    assert not outcome.doubled_jobs
    at_work = sum(bool(strike.jobs) for strike in outcome.strikes)
    assert at_work >= 0.8 * len(outcome.strikes), story(outcome)


@pytest.mark.parametrize(
    ("bug", "fault", "said"),
    [
        ("dropped_fencing_check", "agent stopped, for long", "was over when the end of its rank"),
        ("spool_forgets_on_publish", "messages lost", "lost: Spooled("),
        ("lease_never_freed", "trainer killed", "which is over"),
    ],
)
def test_the_checker_catches_a_planted_bug(tmp_path: Path, bug: str, fault: str, said: str) -> None:
    faults = [known for known in FAULTS if known.name == fault]
    outcome = run(
        tmp_path,
        faults,
        count=4,
        seed=SEED,
        say=print,
        plant=bug,
        stuck_s=15.0,
        drain_limit_s=15.0,
    )
    assert any(said in text for text in outcome.broken), story(outcome)

"""The ranks of an attempt for their table, and the selection shown in charts.

Pure. Reports were checked when they were stored. They are not checked again here, since a gang of
64 ranks has thousands of round trips.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from farm.errors import InvalidSpec
from farm.messages.trainer_lines import StepProfile
from farm.store.tables import RankRow
from farm.text.display import duration
from farm.values.codec import from_stored

_MOST_DRAWN = 12  # six colours, solid and dashed
_DRAWN_UNASKED = 6
# So many samples PostgreSQL thins in a quarter of a second: 24 hours of four ranks.
_MOST_SAMPLES = 400_000
_MOST_SAMPLES_UNASKED = 200_000
_PART = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCard:
    """A rank and what it has reported so far. `has_ended`: its last report is there."""

    rank: int
    agent_id: str
    phase: str
    prepare_s: float | None
    control_s: float | None
    connect_s: float | None
    first_step_s: float | None
    emulator: str | None
    disturbed_by: str | None
    has_ended: bool
    failure_kind: str | None
    log_tail: str
    profile: StepProfile | None

    @property
    def needs_attention(self) -> bool:
        """Whether it failed, or its machine was disturbed."""
        return self.failure_kind is not None or self.disturbed_by is not None


def card(row: RankRow) -> RankCard:
    """Return a rank as the page shows it."""
    started: Mapping[str, Any] = row.started or {}
    ended: Mapping[str, Any] = row.ended or {}
    failure: Mapping[str, Any] = ended.get("failure") or {}
    profile = (ended.get("result") or {}).get("profile")
    return RankCard(
        rank=row.rank,
        agent_id=row.agent_id,
        phase=row.phase.value,
        prepare_s=(row.prepared or {}).get("prepare_s"),
        control_s=row.control_s,
        connect_s=started.get("connect_s"),
        first_step_s=started.get("first_step_s"),
        emulator=(row.shaped or {}).get("emulator"),
        disturbed_by=row.disturbed_by,
        has_ended=row.ended is not None,
        failure_kind=failure.get("kind"),
        log_tail=ended.get("log_tail", ""),
        profile=from_stored(StepProfile, profile) if profile else None,
    )


def chosen_ranks(
    ranks: str | None, cards: Sequence[RankCard], *, span_s: float
) -> tuple[tuple[int, ...], int]:
    """Return the ranks to draw in order, and how many may be drawn of so many seconds.

    By default the first few, beginning with those that failed or were disturbed.

    Raises:
        InvalidSpec: `ranks` names no ranks of this attempt, or too many.
    """
    most = max(1, min(_MOST_DRAWN, int(_MOST_SAMPLES / max(1.0, span_s))))
    known = {one.rank for one in cards}
    if ranks is not None:
        chosen = _named(ranks, known)
        if len(chosen) > most:
            expected = f"at most {most} ranks at once"
            if most < _MOST_DRAWN:
                expected += f" of {duration(span_s)}; of less time, by from_s and to_s, more"
            raise InvalidSpec("ranks", ranks, expected)
        return chosen, most
    by_interest = sorted(cards, key=lambda one: (not one.needs_attention, one.rank))
    usual = max(1, min(_DRAWN_UNASKED, int(_MOST_SAMPLES_UNASKED / max(1.0, span_s))))
    return tuple(sorted(one.rank for one in by_interest[:usual])), most


def written(ranks: Sequence[int]) -> str:
    """Write ranks as in a URL: 0, 1, 2, 5 as `0-2,5`."""
    stretches: list[list[int]] = []
    for rank in ranks:
        if stretches and stretches[-1][-1] == rank - 1:
            stretches[-1].append(rank)
        else:
            stretches.append([rank])
    return ",".join(str(s[0]) if len(s) == 1 else f"{s[0]}-{s[-1]}" for s in stretches)


def _named(text: str, known: Collection[int]) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.replace(" ", "").split(","):
        match = _PART.fullmatch(part)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if high < low or not found.isdisjoint(range(low, high + 1)):
            found.clear()
            break
        found.update(range(low, high + 1))
    if not found or not found <= set(known):
        last = max(known, default=0)
        raise InvalidSpec("ranks", text, f"ranks from 0 to {last} with commas, such as 0-3,{last}")
    return tuple(sorted(found))

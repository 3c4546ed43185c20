"""The strategies study's runs, by what was configured: one row for each, with what it came to."""

from __future__ import annotations

from collections.abc import Sequence

from farm.configuration.catalogue import GangShape
from farm.measuring.measurement import OK
from farm.measuring.study_run import StudyRun
from farm.registry import catalogue, strategy
from farm.studies.run_groups import RunGroup


class StrategyRow(RunGroup):
    """The successful runs of one configuration, and what theory says of it."""

    __slots__ = ()

    @property
    def strategy(self) -> str:
        return self.first.strategy or "?"

    @property
    def gang(self) -> GangShape:
        first = self.first
        return GangShape(
            world_size=first.world_size,
            server_count=first.server_count or 0,
            steps_between_averages=first.steps_between_averages or 1,
        )

    @property
    def setting(self) -> str:
        """What tells this configuration from others of its strategy, in words."""
        first = self.first
        words = ["1 rank" if first.world_size == 1 else f"{first.world_size} ranks"]
        if first.server_count:
            servers = "1 server" if first.server_count == 1 else f"{first.server_count} servers"
            words.append(f"{servers} {first.server_placement or ''}".rstrip())
        if (first.replicas_per_rank or 1) > 1:
            words.append(f"{first.replicas_per_rank} replicas")
        if (first.steps_between_averages or 1) > 1:
            words.append(f"average every {first.steps_between_averages} steps")
        return ", ".join(words)

    @property
    def expected_bytes_per_step(self) -> float | None:
        """What the strategy's theory says that one rank sends; None where nothing is sent."""
        gradients = [run.gradient_bytes for run in self.runs if run.gradient_bytes]
        if not gradients:
            return None
        return strategy(self.strategy).traffic(self.gang, gradients[0]).bytes or None

    @property
    def sent_over_expected(self) -> float | None:
        """How much more than the theory a rank sent, as a ratio; below 0: less."""
        sent, expected = self.mean_of("sent_bytes_per_step"), self.expected_bytes_per_step
        return None if sent is None or expected is None else sent / expected - 1


def strategy_rows(runs: Sequence[StudyRun]) -> list[StrategyRow]:
    """Return the measured configurations in the order in which they were first asked for."""
    groups: dict[object, list[StudyRun]] = {}
    for run in sorted(runs, key=_order):
        groups.setdefault(_order(run), [])
        if run.status == OK:
            groups[_order(run)].append(run)
    return [StrategyRow(runs=tuple(group)) for group in groups.values() if group]


# One machine first, then what exchanges without servers, then what has some; else as registered.
def _order(run: StudyRun) -> tuple[int, bool, int, int, str, int, int]:
    names = list(catalogue().strategies)
    return (
        run.world_size,
        (run.server_count or 0) > 0,
        names.index(run.strategy) if run.strategy in names else len(names),
        run.server_count or 0,
        run.server_placement or "",
        run.replicas_per_rank or 1,
        run.steps_between_averages or 1,
    )

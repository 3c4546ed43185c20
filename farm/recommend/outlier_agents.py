"""Finds agents whose measurements are far from those of other agents of their kind. Pure.

Measurements with an agent are compared with measurements without it, of the same configuration on
the same kind of hardware. A measurement of a gang belongs to all its agents. At least three agents
are needed: if one other agent were in all gangs of the reference, that agent might be the outlier.
The times of a synchronous gang are those of rank 0, so an agent is also judged by the gangs in
which it is rank 0. See "Outlying agents" in docs/recommender.md.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from farm.statistics import NORMAL_SCALE, OUTLIER_SCALES
from farm.text.plurals import counted

# A time is far from the median of the others beyond this factor, and beyond so many of their
# deviations, of which `farm.statistics` tells outliers too, of ln(time).
FAR_RATIO = 1.5
FAR_DEVIATIONS = OUTLIER_SCALES * NORMAL_SCALE
# Beyond this factor one measurement is enough, and disturbed ones are compared as well: neither
# noise nor a machine with two speeds makes as much.
GROSS_RATIO = 5.0
# As long as so few of the others are far, too.
GROSS_OTHERS_RATIO = 0.25
# Within it there must be so many far ones that chance would accuse anybody this rarely in a farm.
_CHANCE_RATIO = 0.01

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedMeasurement:
    """One measurement with its times and the agents of its ranks, rank 0 first.

    `times_s`: of a step and of an epoch, None where it is not known.
    """

    measurement_id: int
    cell: Hashable
    agents: tuple[str, ...]
    times_s: tuple[float | None, float | None]
    is_disturbed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlierAgents:
    """An outlier agent; several, if they were only measured in the same gangs.

    `time_ratio`: the median of its far times over those of `other_count` other agents.
    `far_cell_count`: in how many of the `cell_count` compared configurations. `set_aside_ids`: the
    measurements that do not count; `is_everywhere`: these are all that the agent has, not only
    those of the configurations where it is far off.
    """

    agents: tuple[str, ...]
    time_ratio: float
    other_count: int
    far_cell_count: int
    cell_count: int
    set_aside_ids: frozenset[int]
    is_everywhere: bool

    @property
    def message(self) -> str:
        """Name the agent, how far off it is, and what does not count."""
        it, its = ("it", "its") if len(self.agents) == 1 else ("them", "their")
        count = counted(len(self.set_aside_ids), "measurement")
        return (
            f"{_named(self.agents)}: measurements with {it} took {self.time_ratio:.3g} times as "
            f"long as those of {self.other_count} other agents of the same kind, in "
            f"{self.far_cell_count} of {counted(self.cell_count, 'configuration')}; "
            f"{its} {count}{'' if self.is_everywhere else ' there'} "
            f"{'does' if len(self.set_aside_ids) == 1 else 'do'} not count"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentComparison:
    """The result of comparing all `agents` of one kind of hardware.

    `compared`: the agents of which it can be told whether they are off.
    """

    outlying: tuple[OutlierAgents, ...] = ()
    agents: frozenset[str] = frozenset()
    compared: frozenset[str] = frozenset()

    @property
    def set_aside_ids(self) -> frozenset[int]:
        """Return the measurements that do not count."""
        return frozenset().union(*(one.set_aside_ids for one in self.outlying))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """An agent's measurements of one configuration against those without it.

    `cell`: the number of the configuration. `logs`: ln(time / median of the others) by measurement;
    beyond `limit` they are far.
    """

    agent: str
    is_leading: bool
    which: int
    cell: int
    logs: Mapping[int, float]
    limit: float
    others_count: int
    others_far_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Suspected:
    agent: str
    sides: Sequence[_Side]
    is_everywhere: bool
    far: Mapping[int, float]

    @property
    def net_count(self) -> int:
        """How many more of its measurements are far than are not."""
        return 2 * len(self.far) - sum(len(one.logs) for one in self.sides)


def compare_agents(measured: Iterable[TimedMeasurement]) -> AgentComparison:
    """Compare the agents of one kind of hardware.

    The worst agent is found first and its measurements are left out, until there is none: others
    were in its gangs, and are no odder for it.
    """
    cells: dict[Hashable, list[TimedMeasurement]] = {}
    for one in measured:
        if one.agents:
            cells.setdefault(one.cell, []).append(one)
    left = list(cells.values())
    agents = frozenset(agent for of_cell in left for one in of_cell for agent in one.agents)
    sides = [_sides(of_cell, cell=cell) for cell, of_cell in enumerate(left)]
    compared = frozenset(one.agent for of_cell in sides for one in of_cell if not one.is_leading)
    found: list[OutlierAgents] = []
    while worst := _worst([one for of_cell in sides for one in of_cell]):
        found.append(_outlying(worst, left, sides))
        for cell, of_cell in enumerate(left):
            kept = [one for one in of_cell if one.measurement_id not in found[-1].set_aside_ids]
            if len(kept) < len(of_cell):
                left[cell], sides[cell] = kept, _sides(kept, cell=cell)
    return AgentComparison(outlying=_merged(found), agents=agents, compared=compared)


def cannot_tell(comparisons: Collection[AgentComparison], agents: Collection[str]) -> str | None:
    """Return which of an answer's agents could not be compared with others; None: none."""
    compared = frozenset().union(*(one.compared for one in comparisons))
    unknown = sorted(set(agents) - compared)
    if not unknown:
        return None
    known = [one for one in comparisons if one.agents.intersection(unknown)]
    why = (
        f"only {counted(len(known[0].agents), 'agent')} of this kind measured, and it takes three"
        if len(known) == 1 and len(known[0].agents) < 3
        else "no configuration was measured with and without them by enough others of their kind"
    )
    return f"whether the times of {_named(unknown)} are far off cannot be told: {why}"


def _sides(of_cell: Sequence[TimedMeasurement], *, cell: int) -> list[_Side]:
    """Compare the undisturbed measurements, and all of them for agents with too few of those."""
    found: list[_Side] = []
    for which in range(_times_count(of_cell)):
        quiet = [one for one in of_cell if not one.is_disturbed]
        sides = _compared(quiet, cell=cell, which=which, far_ratio=FAR_RATIO)
        if len(quiet) < len(of_cell):
            known = {(one.agent, one.is_leading) for one in sides}
            sides += [
                one
                for one in _compared(of_cell, cell=cell, which=which, far_ratio=GROSS_RATIO)
                if (one.agent, one.is_leading) not in known
            ]
        found += sides
    return found


def _times_count(of_cell: Sequence[TimedMeasurement]) -> int:
    """Return 1 where the times of steps say all: an epoch is so many of them in each."""
    ratios = [b / a if a and b else 0.0 for a, b in (one.times_s for one in of_cell)]
    return 1 if all(ratio and math.isclose(ratio, ratios[0]) for ratio in ratios) else 2


def _compared(
    pool: Sequence[TimedMeasurement], *, cell: int, which: int, far_ratio: float
) -> list[_Side]:
    timed = [one for one in pool if (one.times_s[which] or 0.0) > 0]
    logs = np.log([one.times_s[which] or 1.0 for one in timed])
    by_gang: dict[frozenset[str], list[int]] = {}
    by_agent: dict[str, list[int]] = {}
    for index, one in enumerate(timed):
        by_gang.setdefault(frozenset(one.agents), []).append(index)
        for agent in dict.fromkeys(one.agents):
            by_agent.setdefault(agent, []).append(index)
    # By gang, so that nobody counts more for having measured more.
    medians = np.array([_median(logs[indices]) for indices in by_gang.values()])
    is_close = not timed or np.ptp(logs) <= math.log(far_ratio)
    gangs: dict[str, set[int]] = {agent: set() for agent in by_agent}
    for index, gang in enumerate(by_gang):
        for agent in gang:
            gangs[agent].add(index)
    found = []
    for agent, own in by_agent.items():
        rest_count = len(by_gang) - len(gangs[agent])
        if not rest_count or any(
            len(others) >= rest_count and len(others - gangs[agent]) == rest_count
            for others in gangs.values()
        ):
            continue  # one other agent is in all of the reference, or there is none
        middle, limit, others_far_count = 0.0, math.inf, 0
        if not is_close:  # no pair of times is far apart
            is_rest = np.ones(len(medians), dtype=bool)
            is_rest[list(gangs[agent])] = False
            middle = _median(medians[is_rest])
            deviation = _median(np.abs(medians[is_rest] - middle))
            limit = max(math.log(far_ratio), FAR_DEVIATIONS * deviation)
            is_far = np.abs(logs - middle) > limit
            others_far_count = int(is_far.sum() - is_far[own].sum())
        leading = [i for i in own if timed[i].agents[0] == agent and len(set(timed[i].agents)) > 1]
        found += [
            _Side(
                agent=agent,
                is_leading=is_leading,
                which=which,
                cell=cell,
                logs={timed[i].measurement_id: float(logs[i]) - middle for i in indices},
                limit=limit,
                others_count=len(timed) - len(own),
                others_far_count=others_far_count,
            )
            for is_leading, indices in ((False, own), (True, leading))
            if indices
        ]
    return found


def _median(values: np.ndarray) -> float:
    """Return the median; numpy's own takes ten times as long for a few values."""
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _worst(sides: Sequence[_Side]) -> list[_Suspected]:
    """Return the agent that is off in most of all, or else in most of one configuration.

    Agents with the same far measurements cannot be told apart, and are returned together.
    """
    groups: dict[tuple[str, bool, int], list[_Side]] = {}
    for one in sides:
        groups.setdefault((one.agent, one.is_leading, one.which), []).append(one)
    test_count = len({key[:2] for key in groups})
    accused = [
        found
        for group in groups.values()
        for found in _judged(group, test_count=test_count, is_everywhere=True)
    ] or [
        found
        for one in sides
        for found in _judged([one], test_count=len(sides), is_everywhere=False)
    ]
    if not accused:
        return []
    worst = max(accused, key=lambda one: one.net_count)
    together = {one.agent: one for one in accused if one.far.keys() == worst.far.keys()}
    return [together[agent] for agent in sorted(together)]


def _judged(
    sides: Sequence[_Side], *, test_count: int, is_everywhere: bool
) -> Iterable[_Suspected]:
    count = sum(len(one.logs) for one in sides)
    others_count = sum(one.others_count for one in sides)
    others_far_count = sum(one.others_far_count for one in sides)
    for sign in (1, -1):
        far = {
            number: log
            for one in sides
            for number, log in one.logs.items()
            if sign * log > one.limit
        }
        if 2 * len(far) <= count:
            continue
        gross_count = sum(sign * log > math.log(GROSS_RATIO) for log in far.values())
        is_gross = 2 * gross_count > count and others_far_count <= GROSS_OTHERS_RATIO * others_count
        # By Laplace's rule, so that few others without a far one do not promise that there is none.
        usual = (others_far_count + 1) / (others_count + 2)
        if is_gross or _at_least(len(far), count, usual) <= _CHANCE_RATIO / test_count:
            yield _Suspected(
                agent=sides[0].agent, sides=sides, is_everywhere=is_everywhere, far=far
            )


def _at_least(far_count: int, count: int, ratio: float) -> float:
    """Return how likely so many of `count` are far where each is with this probability."""
    # By logarithms: of thousands of measurements the coefficients are beyond any float.
    return math.fsum(
        math.exp(
            math.lgamma(count + 1)
            - math.lgamma(k + 1)
            - math.lgamma(count - k + 1)
            + k * math.log(ratio)
            + (count - k) * math.log1p(-ratio)
        )
        for k in range(far_count, count + 1)
    )


def _merged(found: Sequence[OutlierAgents]) -> tuple[OutlierAgents, ...]:
    """Say once of an agent that it is off in several configurations."""
    groups: dict[Hashable, list[OutlierAgents]] = {}
    for one in found:
        groups.setdefault((one.agents, one.is_everywhere, one.time_ratio > 1), []).append(one)
    return tuple(
        dataclasses.replace(
            group[0],
            time_ratio=statistics.median(one.time_ratio for one in group),
            far_cell_count=sum(one.far_cell_count for one in group),
            set_aside_ids=frozenset().union(*(one.set_aside_ids for one in group)),
        )
        for group in groups.values()
    )


def _outlying(
    worst: Sequence[_Suspected],
    left: Sequence[Sequence[TimedMeasurement]],
    sides: Sequence[Sequence[_Side]],
) -> OutlierAgents:
    first = worst[0]
    agents = {one.agent for one in worst}
    cells = {one.cell for one in first.sides}
    without = [one for cell in cells for one in left[cell] if not agents.intersection(one.agents)]
    return OutlierAgents(
        agents=tuple(sorted(agents)),
        time_ratio=math.exp(statistics.median(first.far.values())),
        other_count=len({agent for one in without for agent in one.agents}),
        far_cell_count=sum(bool(one.logs.keys() & first.far.keys()) for one in first.sides),
        cell_count=sum(any(one.agent in agents for one in of_cell) for of_cell in sides),
        set_aside_ids=frozenset(
            one.measurement_id
            for cell, of_cell in enumerate(left)
            for one in of_cell
            if agents.intersection(one.agents) and (first.is_everywhere or cell in cells)
        ),
        is_everywhere=first.is_everywhere,
    )


def _named(agents: Sequence[str]) -> str:
    names = list(agents[:_MOST_NAMED])
    rest = len(agents) - len(names)
    if rest:
        names.append(f"{rest} more")
    if len(names) == 1:
        return f"agent {names[0]}"
    return f"agents {', '.join(names[:-1])} and {names[-1]}"

"""Makes a plan from an origin's measurements: grid, costs, choice. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from farm.configuration.axes import ABSENT, JOB_AXES, PROFILE_AXES
from farm.configuration.axis import AxisKind
from farm.configuration.catalogue import Catalogue
from farm.configuration.own_data import find_dataset
from farm.configuration.spec import DEFAULT_WARMUP_STEPS, NetworkProfile
from farm.configuration.sweep import DEFAULT_STEPS
from farm.configuration.sweep_cell import Cell, problem_of
from farm.errors import InvalidSpec
from farm.measuring.machine_time import cost_usd
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.contracts import DEFAULT_PLANNED, MAX_PLANNED, Objective
from farm.recommend.plans.belief import believe
from farm.recommend.plans.grid import Axes, grid, thinned, works
from farm.recommend.plans.planner import Candidate, MeasurementPlan, plan

# Lease, rendezvous, fork, first step and leaving, with the template warm and machines up. Booting
# and importing are not in it, since a machine of a farm serves many jobs.
START_UP_S = 10.0
USD, MACHINE_HOURS = "USD", "machine hours"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringCosts:
    """`unit`: `USD` where every configuration has a price, else `MACHINE_HOURS`."""

    unit: str
    of_each: tuple[float, ...]


def measuring_costs(
    configurations: Sequence[Configuration],
    step_times_s: Sequence[float] | None,
    *,
    step_count: int,
    prices_usd_per_hour: Mapping[str, float],
    start_up_s: float = START_UP_S,
) -> MeasuringCosts:
    """Return machines x (start-up + steps x step time), in machine hours or in USD.

    `step_times_s`: expected; None where nothing is known of them, and then only the start-up
    counts. `step_count`: with those of the warm-up. Prices: of one VM, by instance type.
    """
    times_s = step_times_s or [0.0] * len(configurations)
    machine_hours = [
        c.machine_count * (start_up_s + step_count * time_s) / 3600
        for c, time_s in zip(configurations, times_s, strict=True)
    ]
    prices = [prices_usd_per_hour.get(c.instance_type or "") for c in configurations]
    in_usd = [hours * (price or 0.0) for hours, price in zip(machine_hours, prices, strict=True)]
    # What costs nothing, be it by rounding, cannot be weighed by its cost.
    if not all(in_usd):
        return MeasuringCosts(unit=MACHINE_HOURS, of_each=tuple(machine_hours))
    return MeasuringCosts(unit=USD, of_each=tuple(in_usd))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMeasurements:
    """Of one origin on one kind of hardware. `failures`: configurations with their status."""

    observations: Sequence[Observation]
    failures: Sequence[tuple[Configuration, str]] = ()

    @property
    def configurations(self) -> list[Configuration]:
        return [*(o.configuration for o in self.observations), *(c for c, _ in self.failures)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is to be planned. `model`, `dataset`: needed only where nothing is measured yet.

    `count`: at most so many measurements; None: `DEFAULT_PLANNED`, or as many as the regret takes.
    `alpha` in 1/s and `beta` in 1/USD weigh time and cost as a recommendation does; prices are of
    one VM by instance type.
    """

    axes: Axes
    model: str | None = None
    dataset: str | None = None
    count: int | None = None
    until_regret_ratio: float | None = None
    budget_usd: float | None = None
    budget_machine_hours: float | None = None
    step_count: int = DEFAULT_STEPS
    warmup_step_count: int = DEFAULT_WARMUP_STEPS
    start_up_s: float = START_UP_S
    prices_usd_per_hour: Mapping[str, float] = dataclasses.field(default_factory=dict)
    alpha: float = 1.0
    beta: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        # What a recommendation would refuse to minimise cannot be planned for either.
        Objective(alpha=self.alpha, beta=self.beta, budget_usd=self.budget_usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """`considered_count` of `grid_count` configurations were looked at: whole questions."""

    plan: MeasurementPlan
    cost_unit: str
    considered_count: int
    grid_count: int


def make_plan(known: KnownMeasurements, task: Task, *, catalogue: Catalogue) -> Planned:
    """Choose what to measure next.

    Raises:
        InvalidSpec: nothing is measured and the task does not name the grid either; or `beta`
            counts a price that is not known.
    """
    ways = known.configurations or _unmeasured(task, catalogue)
    everything = grid(_with_one_machine(ways, catalogue), task.axes)
    possible = [c for c in everything if _can_run(c, catalogue)]
    measured = [o.configuration for o in known.observations]
    possible = works(possible, known.failures, measured=measured)
    working = thinned(possible, seed=task.seed)
    if not working:
        raise InvalidSpec("grid", "nothing", "at least one configuration that can run")
    costs = _costs(known, task, working)
    usual_count = DEFAULT_PLANNED if task.until_regret_ratio is None else MAX_PLANNED
    candidates = [
        Candidate(configuration=c, cost=cost, objective_factor=_factor(c, task))
        for c, cost in zip(working, costs.of_each, strict=True)
    ]
    return Planned(
        plan=plan(
            known.observations,
            candidates,
            failures=[c for c, _ in known.failures],
            count=task.count or usual_count,
            until_regret_ratio=task.until_regret_ratio,
            budget=_budget(task, costs),
            seed=task.seed,
        ),
        cost_unit=costs.unit,
        considered_count=len(working),
        grid_count=len(possible),
    )


def _costs(
    known: KnownMeasurements, task: Task, working: Sequence[Configuration]
) -> MeasuringCosts:
    times_s = None
    if known.observations:
        belief = believe(known.observations, working)
        # The expected value of a log-normal time, but never far above what is likely.
        variances = np.minimum(np.diag(belief.covariance), 1.0)
        times_s = [float(t) for t in np.exp(belief.mean + variances / 2)]
    return measuring_costs(
        working,
        times_s,
        step_count=task.step_count + task.warmup_step_count,
        prices_usd_per_hour=task.prices_usd_per_hour,
        start_up_s=task.start_up_s,
    )


def _budget(task: Task, costs: MeasuringCosts) -> float | None:
    if costs.unit == USD:
        if task.budget_machine_hours is not None:
            raise InvalidSpec(
                "budget_machine_hours", task.budget_machine_hours, "budget_usd: there are prices"
            )
        return task.budget_usd
    if task.budget_usd is not None:
        raise InvalidSpec("budget_usd", task.budget_usd, "a price for every instance type")
    return task.budget_machine_hours


def _factor(c: Configuration, task: Task) -> float:
    if task.beta == 0:
        return task.alpha
    usd_per_s = cost_usd(c.machine_count, 1.0, task.prices_usd_per_hour.get(c.instance_type or ""))
    if usd_per_s is None:
        raise InvalidSpec("beta", task.beta, f"a price of instance type {c.instance_type!r}, or 0")
    factor = task.alpha + task.beta * usd_per_s
    if factor == 0:
        expected = f"more than 0, since instance type {c.instance_type!r} costs nothing"
        raise InvalidSpec("alpha", task.alpha, expected)
    return factor


def _unmeasured(task: Task, catalogue: Catalogue) -> list[Configuration]:
    """Return the ways of a grid of which nothing was measured."""
    axes = task.axes
    for name, value in (
        ("model", task.model),
        ("dataset", task.dataset),
        ("strategy", axes.strategies),
        ("world_sizes", axes.world_sizes),
        ("global_batch_sizes", axes.global_batch_sizes),
    ):
        if not value:
            raise InvalidSpec(name, None, "a value, since nothing is measured yet")
    return [
        Configuration(
            model=task.model,
            dataset=task.dataset,
            framework=facts.framework if facts else None,
            strategy=strategy,
            instance_type=instance_type,
            world_size=2,
            global_batch_size=2,
        )
        for strategy in axes.strategies
        for facts in [catalogue.strategies.get(strategy)]
        for instance_type in axes.instance_types or (None,)
    ]


def _with_one_machine(known: Sequence[Configuration], catalogue: Catalogue) -> list[Configuration]:
    """Add one machine where it was never measured as the farm runs it."""
    if any(c.is_one_machine and _can_run(c, catalogue) for c in known):
        return list(known)
    added: dict[Configuration, None] = {}
    for c in known:
        facts = catalogue.strategies.get(c.strategy or "")
        strategy = c.strategy
        if facts is not None and facts.min_world_size > 1:
            alone = [s for s in catalogue.strategies.values() if s.min_world_size == 1]
            fitting = [s.name for s in alone if s.framework == facts.framework]
            strategy = fitting[0] if fitting else strategy
        single = dataclasses.replace(
            c.without_network(),
            strategy=strategy,
            setup=c.setup.of_one_machine,
            world_size=1,
            server_count=0,
        )
        added[single] = None
    return [*known, *added]


def _can_run(c: Configuration, catalogue: Catalogue) -> bool:
    """Whether the farm would take it; of names that are not registered here nothing is known."""
    if (
        c.model not in catalogue.models
        or find_dataset(c.dataset, catalogue.datasets) is None
        or c.strategy not in catalogue.strategies
    ):
        return True
    assert c.model is not None
    assert c.dataset is not None
    assert c.strategy is not None
    profile = NetworkProfile(**{axis.field: getattr(c, axis.field) for axis in PROFILE_AXES})
    values = {
        axis.field: getattr(c, axis.field)
        for axis in JOB_AXES
        if axis.kind in (AxisKind.WORKLOAD, AxisKind.STRATEGY, AxisKind.SIZE)
    }
    cell = Cell(
        case=0,
        values={
            **ABSENT,
            **values,
            "server_count": c.server_count,
            **c.setup.cell_fields,
        },
        network=None if profile.is_untouched else profile,
        emulator=None,
    )
    return problem_of(cell, catalogue, repeat=True) is None

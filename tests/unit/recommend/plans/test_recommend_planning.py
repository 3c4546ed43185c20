import dataclasses
import tomllib
from collections.abc import Sequence
from typing import Any

import pytest

from farm.configuration.expansion import expand
from farm.configuration.spec import NetworkProfile, TrainingPass
from farm.configuration.sweep import parse_sweep
from farm.errors import InvalidSpec
from farm.messages.trainer_lines import FailureKind
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.plans.grid import MAX_CONFIGURATIONS, Axes, grid, thinned, works
from farm.recommend.plans.planner import MeasurementPlan, PlannedMeasurement
from farm.recommend.plans.planning import (
    MACHINE_HOURS,
    USD,
    KnownMeasurements,
    Planned,
    Task,
    make_plan,
    measuring_costs,
)
from farm.recommend.plans.sweep_file import SweepForm, sweep_text
from farm.recommend.setup import Setup
from farm.registry import catalogue
from farm.values.fields import canonical

FORM = SweepForm(
    name="next", origin="farm", step_count=20, warmup_step_count=3, cost_unit=MACHINE_HOURS
)


def cell(world_size: int, batch: int = 64, delay_s: float = 0.0, **more: Any) -> Configuration:
    """A ring on digits, or one machine by itself."""
    fields: dict[str, Any] = {
        "model": "small_cnn",
        "dataset": "digits",
        "framework": "tensorflow",
        "strategy": "single" if world_size == 1 else "mwms_ring",
        "world_size": world_size,
        "global_batch_size": batch,
        "one_way_delay_s": delay_s,
    }
    return Configuration(**{**fields, **more})


def plan_of(configurations: Sequence[Configuration], reason: str = "why") -> MeasurementPlan:
    proposals = tuple(
        PlannedMeasurement(
            configuration=c,
            cost=0.5,
            reason=reason,
            regret_before_ratio=0.2,
            regret_after_ratio=0.1,
        )
        for c in configurations
    )
    return MeasurementPlan(
        proposals=proposals, choice_count=4, regret_before_ratio=0.2, regret_after_ratio=0.1
    )


def planned(known: KnownMeasurements, *, axes: Axes | None = None, **changes: Any) -> Planned:
    fields: dict[str, Any] = {"count": 4, "step_count": 10, "warmup_step_count": 5}
    task = Task(axes=axes or Axes(), **{**fields, **changes})
    return make_plan(known, task, catalogue=catalogue())


def observed(*configurations: Configuration) -> KnownMeasurements:
    return KnownMeasurements(
        observations=[
            Observation(measurement_id=i, configuration=c, step_time_s=0.01 + 0.001 * i)
            for i, c in enumerate(configurations)
        ]
    )


SOME = (cell(1), cell(2), cell(4, 256, 0.02), cell(2, 256, 0.02))


def test_a_sweep_file_becomes_exactly_the_cells_of_the_plan() -> None:
    wanted = [
        cell(1, 256),
        cell(2, 64, 0.00397),
        cell(3, 1024, 0.02, jitter_s=0.002, packet_loss_ratio=0.015, network="tcp_proxy"),
        cell(4, 100, bandwidth_bytes_per_s=1.25e6, training_pass=TrainingPass.FORWARD),
        cell(2, 64, instance_type='t2 "large"'),
    ]
    sweep = parse_sweep(tomllib.loads(sweep_text(plan_of(wanted), FORM, catalogue=catalogue())))
    assert (sweep.name, sweep.repetitions, len(sweep.cases)) == ("next", 1, len(wanted))
    # The proxy loses no packets, which is for the expansion to refuse, so that cell is read alone.
    proxied = sweep.cases[2]
    assert (proxied.emulator, proxied.values["packet_loss_ratio"]) == ("tcp_proxy", (0.015,))
    jobs = expand(
        dataclasses.replace(sweep, cases=sweep.cases[:2] + sweep.cases[3:]), catalogue()
    ).jobs
    found = {
        (
            job.world_size,
            job.global_batch_size,
            job.network or NetworkProfile(),
            job.training_pass,
            job.labels.get("instance_type"),
            job.steps,
            job.warmup_step_count,
        )
        for job in jobs
    }
    assert found == {
        (
            c.world_size,
            c.global_batch_size,
            NetworkProfile(
                one_way_delay_s=canonical(c.one_way_delay_s),
                bandwidth_bytes_per_s=c.bandwidth_bytes_per_s,
            ),
            c.training_pass,
            c.instance_type,
            20,
            3,
        )
        for c in wanted
        if c.network is None
    }


def test_a_batch_beyond_the_data_set_repeats_it() -> None:
    text = sweep_text(plan_of([cell(2, 5000)]), FORM, catalogue=catalogue())
    assert len(expand(parse_sweep(tomllib.loads(text)), catalogue()).jobs) == 1


def test_names_that_are_not_registered_are_listed_and_said_to_need_mapping() -> None:
    text = sweep_text(plan_of([cell(2, strategy="mwms", model=None)]), FORM, catalogue=catalogue())
    assert '# map before submitting: no model is registered here as "unnamed"\n' in text
    assert '# map before submitting: no strategy is registered here as "mwms"\n' in text
    assert parse_sweep(tomllib.loads(text)).cases[0].values["strategy"] == ("mwms",)


def test_no_name_can_break_out_of_its_string_or_comment() -> None:
    wild = 'a"\n[[case]]\nb\\ \x7f'
    plan = plan_of([cell(2, instance_type=wild)], reason=wild)
    form = dataclasses.replace(FORM, name='an "origin"', origin=wild)
    parsed = tomllib.loads(sweep_text(plan, form, catalogue=catalogue()))
    assert parsed["name"] == 'an "origin"'
    assert [c["labels"] for c in parsed["case"]] == [{"instance_type": wild}]


def test_a_grid_crosses_what_was_measured() -> None:
    found = grid(SOME, Axes())
    assert {(c.world_size, c.global_batch_size, c.one_way_delay_s) for c in found} == {
        *((1, batch, 0.0) for batch in (64, 256)),
        *((n, b, d) for n in (2, 4) for b in (64, 256) for d in (0.0, 0.02)),
    }
    assert {c.strategy for c in found if c.is_one_machine} == {"single"}


def test_a_grid_has_several_ranks_a_machine_at_multiples_of_these_alone() -> None:
    known = [cell(n) for n in (1, 2, 4)]
    several = cell(4, setup=Setup.read("ranks_per_agent=4"))
    found = [c for c in grid([*known, several], Axes()) if c.setup == several.setup]
    assert {(c.world_size, c.machine_count) for c in found} == {(4, 1)}


def test_a_grid_has_several_ranks_on_one_machine_once_whatever_the_networks() -> None:
    several = cell(4, setup=Setup.read("ranks_per_agent=4"))
    delays_s = (0.0, 0.02)
    gangs = [cell(8, delay_s=delay_s, network="tc_netem") for delay_s in delays_s]
    found = [c for c in grid([cell(1), *gangs, several], Axes()) if c.setup]
    assert {(c.world_size, c.network, c.one_way_delay_s) for c in found} == {
        (4, None, 0.0),
        *((8, "tc_netem", delay_s) for delay_s in delays_s),
    }
    assert len(found) == 3


def test_a_grid_of_several_ranks_on_one_machine_alone_is_of_no_network() -> None:
    found = grid(
        [cell(1), cell(4, setup=Setup.read("ranks_per_agent=4"))], Axes(world_sizes=(4, 8))
    )
    assert [(c.world_size, c.one_way_delay_s) for c in found] == [(1, 0.0), (4, 0.0), (8, 0.0)]


def test_one_machine_of_gangs_alone_has_none_of_their_servers_and_averages() -> None:
    setups = ("hard", "hard, steps_between_averages=8", "server_placement=apart")
    found = grid([cell(2, setup=Setup.read(text)) for text in setups], Axes())
    assert [c.setup.text for c in found if c.is_one_machine] == ["hard", None]
    mirrored = cell(1, strategy="mirrored", setup=Setup.read("replicas_per_rank=2"))
    assert mirrored in grid([mirrored, cell(2)], Axes())


def test_axes_replace_what_was_measured() -> None:
    axes = Axes(world_sizes=(1, 8), global_batch_sizes=(512,), one_way_delays_s=(0.1,))
    found = {(c.world_size, c.global_batch_size, c.one_way_delay_s) for c in grid(SOME, axes)}
    assert found == {(1, 512, 0.0), (8, 512, 0.1)}


def test_where_the_replicas_batch_was_kept_the_grid_keeps_it_too() -> None:
    weak = [cell(n, n * b) for n in (1, 2, 4, 8) for b in (32, 64)]
    assert {c.per_replica_batch_size for c in grid(weak, Axes())} == {32, 64}


def test_more_memory_than_what_ran_out_of_it_cannot_work() -> None:
    cells = [cell(n, batch) for n in (1, 2, 4) for batch in (64, 256, 1024)]
    out = [(cell(2, 256), FailureKind.OUT_OF_MEMORY.value)]
    left = works(cells, out, measured=[])
    assert {(c.world_size, c.global_batch_size) for c in cells} - {
        (c.world_size, c.global_batch_size) for c in left
    } == {(2, 256), (2, 1024)}
    other = [(cell(2, 256), FailureKind.NOT_A_NUMBER.value)]
    assert len(works(cells, other, measured=[])) == len(cells) - 1


def test_what_failed_once_and_was_measured_works() -> None:
    cells = [cell(2, 256)]
    assert works(cells, [(cells[0], "out_of_memory")], measured=cells) == cells


def test_a_thinned_grid_keeps_whole_questions() -> None:
    batches, delays_s = range(64, 164), (0.0, 0.01, 0.02, 0.03)
    cells = [cell(1, b) for b in batches]
    cells += [cell(n, b, d) for n in (2, 4) for b in batches for d in delays_s]
    found = thinned(cells)
    assert len(found) <= MAX_CONFIGURATIONS
    questions: dict[tuple[int, float], set[int]] = {}
    for c in found:
        if c.world_size > 1:
            questions.setdefault((c.global_batch_size, c.one_way_delay_s), set()).add(c.world_size)
    assert set(map(tuple, questions.values())) == {(2, 4)}
    singles = {c.global_batch_size for c in found if c.is_one_machine}
    assert singles == {batch for batch, _ in questions}


def test_a_measurement_costs_its_machines_for_as_long_as_it_holds_them() -> None:
    cells = [cell(1), cell(4, instance_type="big")]
    hours = measuring_costs(
        cells, [0.1, 1.0], step_count=100, prices_usd_per_hour={"big": 3.6}, start_up_s=10.0
    )
    assert hours.unit == MACHINE_HOURS
    assert hours.of_each == pytest.approx((20 / 3600, 4 * 110 / 3600))
    usd = measuring_costs(
        cells[1:], [1.0], step_count=100, prices_usd_per_hour={"big": 3.6}, start_up_s=10.0
    )
    assert usd.unit == USD
    assert usd.of_each == pytest.approx((0.44,))


@pytest.mark.parametrize("price_usd_per_hour", [0.0, 5e-324])
def test_what_costs_nothing_is_weighed_by_its_machine_hours(price_usd_per_hour: float) -> None:
    prices = {"big": 1.0, "own": price_usd_per_hour}
    cells = [cell(1, instance_type="big"), cell(1, instance_type="own")]
    costs = measuring_costs(cells, None, step_count=100, prices_usd_per_hour=prices)
    assert costs.unit == MACHINE_HOURS
    assert min(costs.of_each) > 0


def test_a_plan_proposes_only_what_the_farm_would_take() -> None:
    imported = cell(1, 64, strategy="mwms_ring")
    gangs = observed(imported, *SOME[1:])
    axes = Axes(world_sizes=(1, 2, 4, 128), global_batch_sizes=(64, 512))
    proposals = planned(gangs, axes=axes, count=50).plan.proposals
    found = {(p.configuration.strategy, p.configuration.world_size) for p in proposals}
    assert ("single", 1) in found
    assert all((strategy == "single") == (n == 1) for strategy, n in found)


def test_one_machine_is_planned_as_gangs_of_pytorch_train() -> None:
    way: dict[str, Any] = {
        "framework": "torch",
        "strategy": "torch_diloco",
        "setup": Setup.read("steps_between_averages=8, outer_momentum=0.5, precision=bfloat16"),
    }
    gangs = observed(*(cell(n, batch, **way) for n in (2, 4) for batch in (64, 128)))
    proposals = planned(gangs, axes=Axes(global_batch_sizes=(64, 128)), count=9).plan.proposals
    alone = [p.configuration for p in proposals if p.configuration.is_one_machine]
    assert {(c.strategy, c.setup.text) for c in alone} == {("torch_ddp", "precision=bfloat16")}


def test_where_nothing_is_measured_the_grid_has_to_be_named() -> None:
    axes = Axes(strategies=("mwms_ring",), world_sizes=(1, 2), global_batch_sizes=(64, 256))
    found = planned(
        KnownMeasurements(observations=()), axes=axes, model="small_cnn", dataset="digits"
    )
    assert {p.configuration.world_size for p in found.plan.proposals} == {1, 2}
    assert found.plan.cost > 0
    with pytest.raises(InvalidSpec, match="world_sizes: expected a value, since nothing is"):
        planned(
            KnownMeasurements(observations=()),
            axes=dataclasses.replace(axes, world_sizes=()),
            model="small_cnn",
            dataset="digits",
        )


def test_a_budget_needs_the_unit_that_the_costs_have() -> None:
    with pytest.raises(InvalidSpec, match="budget_usd: expected a price for every instance type"):
        planned(observed(*SOME), budget_usd=1.0)
    assert planned(observed(*SOME), budget_machine_hours=0.02).plan.cost <= 0.02


def test_cost_in_the_objective_needs_prices() -> None:
    with pytest.raises(InvalidSpec, match="beta: expected a price of instance type None"):
        planned(observed(*SOME), beta=1.0)


def test_what_costs_nothing_cannot_be_planned_for_by_cost_alone() -> None:
    known = observed(*(dataclasses.replace(c, instance_type="own") for c in SOME))
    with pytest.raises(InvalidSpec, match="alpha: expected more than 0, since instance type 'own'"):
        planned(known, alpha=0.0, beta=1.0, prices_usd_per_hour={"own": 0.0})

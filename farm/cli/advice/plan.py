"""`farm plan`: what to measure next, as a sweep file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from farm.cli.advice.questions import (
    SCRIPT_OPTIONS,
    prices_of,
    prices_option,
    region_option,
    script_asked,
    with_options,
)
from farm.cli.output import json_option, print_json, to_stderr
from farm.cli.ranges import Real, weight_options, whole_numbers
from farm.cli.session import settings, store
from farm.configuration.axes import DELAY
from farm.configuration.spec import (
    LARGEST,
    MAX_GLOBAL_BATCH_SIZE,
    MAX_STEPS,
    MAX_WORLD_SIZE,
)
from farm.configuration.sweep import DEFAULT_STEPS
from farm.errors import InvalidSpec
from farm.store.engine import reading
from farm.text.display import percent, short_fingerprint
from farm.text.nouns import counted

if TYPE_CHECKING:
    from farm.recommend.plans.planning import KnownMeasurements, Planned, Task

_F = TypeVar("_F", bound=Callable[..., Any])

_DEFAULT_COUNT = 5


def _grid_options(command: _F) -> _F:
    options = (
        click.option("--origin", default="farm", show_default=True, help="Whose measurements."),
        click.option("--model", help="Only this; needed where nothing is measured yet."),
        click.option("--dataset", help="Only this; needed where nothing is measured yet."),
        *SCRIPT_OPTIONS,
        click.option("--strategy", "strategies", multiple=True, help="Only it; may be repeated."),
        click.option("--world-sizes", help="Such as 1,2,4,8; those that were measured."),
        click.option("--global-batch-sizes", help="Such as 64,256; those that were measured."),
        click.option("--one-way-delays-ms", help="Such as 0,20,100; those that were measured."),
        click.option("--instance-types", help="Only these, with commas between them."),
        click.option("--fingerprint", help="Which kind of hardware, by its first characters."),
    )
    return with_options(options, command)


def _choice_options(command: _F) -> _F:
    at_least_0 = Real(0, LARGEST)
    options = (
        click.option(
            "--next",
            "count",
            type=click.IntRange(1, 100),
            help=f"At most so many; {_DEFAULT_COUNT}, or 100 with --until-regret.",
        ),
        click.option(
            "--until-regret", type=at_least_0, help="As many as it takes, such as 0.05 for 5 %."
        ),
        click.option("--budget-usd", type=at_least_0, help="The plan must not cost more."),
        click.option("--budget-machine-hours", type=at_least_0, help="The same without prices."),
        weight_options,
        click.option(
            "--steps", default=DEFAULT_STEPS, show_default=True, type=click.IntRange(1, MAX_STEPS)
        ),
        click.option(
            "--warmup-steps", default=5, show_default=True, type=click.IntRange(0, MAX_STEPS)
        ),
        click.option(
            "--seed",
            default=0,
            show_default=True,
            type=click.IntRange(min=0),
            help="Decides between equals.",
        ),
    )
    return with_options(options, command)


@click.command()
@_grid_options
@_choice_options
@prices_option
@region_option
@click.option("--out", type=click.Path(path_type=Path), help="Write the sweep file there.")
@json_option
def plan(
    *,
    origin: str,
    model: str | None,
    dataset: str | None,
    script: str | None,
    script_sha256: str | None,
    script_parameters: tuple[str, ...],
    fingerprint: str | None,
    prices_file: Path | None,
    region: str | None,
    out: Path | None,
    as_json: bool,
    **choice: Any,
) -> None:
    """Say which measurements would make the advice sure soonest for their cost.

    Prints a sweep file for `farm submit`, with the reasons as comments. --json prints proposals,
    regret_before_ratio, regret_after_ratio, cost, cost_unit, stopped_because and sweep, the text
    of the file. The exit status is 1 where there is nothing to propose, unless the regret asked
    for is reached already.
    """
    from farm.recommend.plans.planning import make_plan
    from farm.registry import catalogue

    loaded = settings()
    task = _task(model, dataset, prices_of(loaded, prices_file, region).usd_per_hour, choice)
    with store(loaded) as engine:
        with reading(engine) as session:
            asked = script_asked(
                session,
                origin=origin,
                script=script,
                script_sha256=script_sha256,
                script_parameters=script_parameters,
            )
        if asked is not None:
            task = dataclasses.replace(task, model=asked.model, dataset=asked.dataset)
        known = _known(engine, origin, task, fingerprint)
    planned = make_plan(known, task, catalogue=catalogue())
    _print(planned, origin, task, out=out, as_json=as_json)
    goal = task.until_regret_ratio
    if not planned.plan.proposals and (goal is None or planned.plan.regret_after_ratio > goal):
        raise click.exceptions.Exit(1)


def _task(
    model: str | None, dataset: str | None, prices: Mapping[str, float], choice: dict[str, Any]
) -> Task:
    from farm.recommend.plans.grid import Axes
    from farm.recommend.plans.planning import Task

    types: str | None = choice["instance_types"]
    name = "--one-way-delays-ms"
    delays_ms = _milliseconds(name, choice["one_way_delays_ms"])
    axes = Axes(
        strategies=choice["strategies"],
        world_sizes=_counts(choice, "world_sizes", most=MAX_WORLD_SIZE),
        global_batch_sizes=_counts(choice, "global_batch_sizes", most=MAX_GLOBAL_BATCH_SIZE),
        one_way_delays_s=tuple(DELAY.read(delay_ms, name) for delay_ms in delays_ms),
        instance_types=tuple(part.strip() for part in types.split(",")) if types else (),
    )
    until: float | None = choice["until_regret"]
    return Task(
        axes=axes,
        model=model,
        dataset=dataset,
        count=choice["count"] or (_DEFAULT_COUNT if until is None else 100),
        until_regret_ratio=until,
        budget_usd=choice["budget_usd"],
        budget_machine_hours=choice["budget_machine_hours"],
        step_count=choice["steps"],
        warmup_step_count=choice["warmup_steps"],
        prices_usd_per_hour=prices,
        alpha=choice["alpha"],
        beta=choice["beta"],
        seed=choice["seed"],
    )


def _known(engine: Any, origin: str, task: Task, fingerprint: str | None) -> KnownMeasurements:
    """Read what is known of one kind of hardware, and say of which if there are several."""
    from farm.recommend.plans.known_origin import read_origin

    try:
        with reading(engine) as session:
            found = read_origin(
                session,
                origin=origin,
                model=task.model,
                dataset=task.dataset,
                fingerprint=fingerprint,
            )
    except InvalidSpec as error:
        raise InvalidSpec(f"--{error.field}", error.value, error.expected) from None
    if len(found.fingerprints) > 1:
        shown, *others = (short_fingerprint(key or "none") for key in found.fingerprints)
        to_stderr(
            f"planned for the hardware {shown}, which was measured most; others "
            f"({', '.join(others)}) by --fingerprint"
        )
    return found.known


def _print(planned: Planned, origin: str, task: Task, *, out: Path | None, as_json: bool) -> None:
    from farm.recommend.plans.sweep_file import SweepForm, sweep_text
    from farm.registry import catalogue

    chosen = planned.plan
    form = SweepForm(
        name=f"plan for {origin}",
        origin=origin,
        step_count=task.step_count,
        warmup_step_count=task.warmup_step_count,
        cost_unit=planned.cost_unit,
    )
    text = sweep_text(chosen, form, catalogue=catalogue()) if chosen.proposals else None
    if out is not None and text is not None:
        _write(out, text)
    if as_json:
        print_json(
            {
                "proposals": chosen.proposals,
                "question_count": chosen.choice_count,
                "regret_before_ratio": chosen.regret_before_ratio,
                "regret_after_ratio": chosen.regret_after_ratio,
                "cost": chosen.cost,
                "cost_unit": planned.cost_unit,
                "stopped_because": chosen.stopped_because,
                "sweep": text,
            }
        )
    elif out is not None and text is not None:
        click.echo(f"{counted(len(chosen.proposals), 'measurement')} in {out}: farm submit {out}")
    elif text is not None:
        click.echo(text, nl=False)
    if planned.considered_count < planned.grid_count:
        to_stderr(
            f"looked at {planned.considered_count} of "
            f"{counted(planned.grid_count, 'configuration')}; "
            "name strategies, world sizes or batch sizes to look at others"
        )
    if chosen.stopped_because is not None:
        to_stderr(chosen.stopped_because)
    elif not chosen.proposals:
        regret = percent(chosen.regret_before_ratio, 2)
        to_stderr(f"the expected regret is {regret} already")


def _write(out: Path, text: str) -> None:
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidSpec(
            "--out", str(out), f"a file that can be written ({error.strerror or error})"
        ) from None


def _counts(choice: Mapping[str, Any], name: str, *, most: int) -> tuple[int, ...]:
    text: str | None = choice[name]
    option = f"--{name.replace('_', '-')}"
    return whole_numbers(option, text, most=most, example="1,2,4") if text else ()


def _milliseconds(option: str, text: str | None) -> tuple[float, ...]:
    try:
        return tuple(map(float, text.split(","))) if text else ()
    except ValueError:
        raise InvalidSpec(option, text, "milliseconds such as 0,20,100") from None

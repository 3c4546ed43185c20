"""`farm plan`: what to measure next, as a sweep file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from farm.cli.advice.questions import (
    SCRIPT_OPTIONS,
    origin_option,
    prices_of,
    prices_option,
    region_option,
    requested_script,
    with_options,
)
from farm.cli.output import json_option, print_json, to_stderr
from farm.cli.ranges import Real, weight_options, whole_numbers
from farm.cli.session import settings, store
from farm.configuration.axes import DELAY
from farm.configuration.spec import (
    DEFAULT_WARMUP_STEPS,
    LARGEST,
    MAX_GLOBAL_BATCH_SIZE,
    MAX_SEED,
    MAX_STEPS,
    MAX_WORLD_SIZE,
)
from farm.configuration.sweep import DEFAULT_STEPS
from farm.errors import InvalidSpec
from farm.recommend.contracts import DEFAULT_PLANNED, MAX_PLANNED
from farm.store.engine import reading
from farm.text.display import percent, short_fingerprint
from farm.text.plurals import counted

if TYPE_CHECKING:
    import sqlalchemy as sa

    from farm.recommend.plans.planning import Task
    from farm.recommend.plans.proposed import Proposed

_F = TypeVar("_F", bound=Callable[..., Any])


def _grid_options(command: _F) -> _F:
    options = (
        origin_option,
        click.option("--model", help="Only this; needed where nothing is measured yet."),
        click.option("--dataset", help="Only this; needed where nothing is measured yet."),
        *SCRIPT_OPTIONS,
        click.option("--strategy", "strategies", multiple=True, help="Only this; may be repeated."),
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
            type=click.IntRange(1, MAX_PLANNED),
            help=f"At most this many; {DEFAULT_PLANNED}, or {MAX_PLANNED} with --until-regret.",
        ),
        click.option(
            "--until-regret",
            type=at_least_0,
            help="As many as needed to reach this regret, such as 0.05 for 5 %.",
        ),
        click.option("--budget-usd", type=at_least_0, help="The plan must not cost more."),
        click.option("--budget-machine-hours", type=at_least_0, help="The same without prices."),
        weight_options,
        click.option(
            "--steps", default=DEFAULT_STEPS, show_default=True, type=click.IntRange(1, MAX_STEPS)
        ),
        click.option(
            "--warmup-steps",
            default=DEFAULT_WARMUP_STEPS,
            show_default=True,
            type=click.IntRange(0, MAX_STEPS),
        ),
        click.option(
            "--seed",
            default=0,
            show_default=True,
            type=click.IntRange(0, MAX_SEED),
            help="Decides between equal proposals.",
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
    """Propose the measurements that improve the advice most for their cost.

    Prints a sweep file for `farm submit`, with the reasons as comments. --json prints what GET
    /api/v1/plan answers: proposals, their cost, regrets, sweep, the text of the file, and more.
    The exit status is 1 if there is nothing to propose, unless the requested regret is reached
    already.
    """
    loaded = settings()
    task = _task(model, dataset, prices_of(loaded, prices_file, region).usd_per_hour, choice)
    with store(loaded) as engine:
        with reading(engine) as session:
            measured = requested_script(
                session,
                origin=origin,
                script=script,
                script_sha256=script_sha256,
                script_parameters=script_parameters,
            )
        if measured is not None:
            task = dataclasses.replace(task, model=measured.model, dataset=measured.dataset)
        proposed = _propose(engine, task, origin=origin, fingerprint=fingerprint)
    _print(proposed, out=out, as_json=as_json)
    goal, chosen = task.until_regret_ratio, proposed.planned.plan
    if not chosen.proposals and (goal is None or chosen.regret_after_ratio > goal):
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
    return Task(
        axes=axes,
        model=model,
        dataset=dataset,
        count=choice["count"],
        until_regret_ratio=choice["until_regret"],
        budget_usd=choice["budget_usd"],
        budget_machine_hours=choice["budget_machine_hours"],
        step_count=choice["steps"],
        warmup_step_count=choice["warmup_steps"],
        prices_usd_per_hour=prices,
        alpha=choice["alpha"],
        beta=choice["beta"],
        seed=choice["seed"],
    )


def _propose(engine: sa.Engine, task: Task, *, origin: str, fingerprint: str | None) -> Proposed:
    """Plan for one kind of hardware, and say of which if there are several."""
    from farm.recommend.plans.proposed import propose

    try:
        proposed = propose(engine, task, origin=origin, fingerprint=fingerprint)
    except InvalidSpec as error:
        if error.field != "fingerprint":
            raise
        raise InvalidSpec(f"--{error.field}", error.value, error.expected) from None
    if len(proposed.fingerprints) > 1:
        shown, *others = (short_fingerprint(key or "none") for key in proposed.fingerprints)
        to_stderr(
            f"planned for the hardware {shown}, which was measured most; others "
            f"({', '.join(others)}) by --fingerprint"
        )
    return proposed


def _print(proposed: Proposed, *, out: Path | None, as_json: bool) -> None:
    planned, chosen, text = proposed.planned, proposed.planned.plan, proposed.sweep
    if out is not None and text is not None:
        _write(out, text)
    if as_json:
        print_json(proposed.to_json())
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

"""`farm recommend`: which configuration to train on, with its evidence."""

from __future__ import annotations

import click

from farm.cli import cells
from farm.cli.output import Column, json_option, print_json, print_table
from farm.cli.session import settings, store
from farm.errors import InvalidSpec
from farm.recommend.contracts import Objective, Option, Question, Recommendation
from farm.recommend.service import recommend as ask
from farm.store.engine import reading

_COLUMNS = (
    Column("strategy"),
    Column("world size", is_right=True),
    Column("instance type"),
    Column("step time", is_right=True),
    Column("epoch", is_right=True),
    Column("training", is_right=True),
    Column("cost", is_right=True),
    Column("accuracy", is_right=True),
    Column("runs", is_right=True),
    Column("basis"),
    Column("remark"),
)


@click.command()
@click.option("--model", help="May be left out where the origin has one workload.")
@click.option("--dataset", help="May be left out where the origin has one workload.")
@click.option("--global-batch-size", required=True, type=click.IntRange(min=1))
@click.option("--one-way-delay-ms", default=0.0, show_default=True, type=click.FloatRange(min=0))
@click.option("--origin", default="farm", show_default=True, help="Whose measurements.")
@click.option("--strategy", "strategies", multiple=True, help="Only this; may be repeated.")
@click.option("--world-sizes", help="Only these, such as 2,3,4; one machine is always compared.")
@click.option("--alpha", default=1.0, show_default=True, help="Weight of time, in 1/s.")
@click.option("--beta", default=0.0, show_default=True, help="Weight of cost, in 1/USD.")
@click.option("--epochs", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--deadline-s", type=click.FloatRange(min=0), help="The training must not be longer.")
@click.option("--min-accuracy", type=click.FloatRange(0, 1), help="From 0 to 1.")
@json_option
def recommend(
    *,
    model: str | None,
    dataset: str | None,
    global_batch_size: int,
    one_way_delay_ms: float,
    origin: str,
    strategies: tuple[str, ...],
    world_sizes: str | None,
    alpha: float,
    beta: float,
    epochs: int,
    deadline_s: float | None,
    min_accuracy: float | None,
    as_json: bool,
) -> None:
    """Rank what was measured by alpha x time + beta x cost, best first.

    The exit status is 1 where nothing known fits. --json prints what GET /api/v1/recommendation
    answers: recommended, reason, options, pareto and warnings.
    """
    question = Question(
        origin=origin,
        model=model,
        dataset=dataset,
        global_batch_size=global_batch_size,
        one_way_delay_s=one_way_delay_ms / 1000,
        epochs=epochs,
        strategies=strategies,
        world_sizes=_whole_numbers(world_sizes),
    )
    objective = Objective(
        alpha=alpha, beta=beta, deadline_s=deadline_s, min_accuracy_ratio=min_accuracy
    )
    with store(settings()) as engine, reading(engine) as session:
        answer = ask(session, question=question, objective=objective)
    if as_json:
        print_json(answer.to_json())
    else:
        _print_answer(answer)
    if answer.recommended is None:
        raise click.exceptions.Exit(1)


def verdict(answer: Recommendation) -> str:
    """Say in one line what is recommended and on what that rests, or why nothing is."""
    best = answer.recommended
    if best is None:
        return f"nothing, because {answer.reason}"
    runs = f"{best.repetition_count} run" + ("s" if best.repetition_count > 1 else "")
    return (
        f"world size {best.world_size} ({best.strategy}): {cells.duration(best.time_per_epoch_s)} "
        f"an epoch, {best.basis} in {runs}"
    )


def _print_answer(answer: Recommendation) -> None:
    click.echo(f"Recommended: {verdict(answer)}")
    if answer.options:
        print_table(_COLUMNS, [_option_cells(option) for option in answer.options])
    for warning in answer.warnings:
        click.echo(f"farm: {warning}", err=True)


def _option_cells(option: Option) -> list[str]:
    return [
        cells.text(option.strategy),
        str(option.world_size),
        cells.text(option.instance_type),
        cells.duration(option.step_time_s),
        cells.duration(option.time_per_epoch_s),
        cells.duration(option.time_s),
        "-" if option.cost_usd is None else f"{option.cost_usd:.4f} USD",
        cells.percent(option.accuracy, decimals=1),
        str(option.repetition_count),
        option.basis,
        option.excluded_because or "",
    ]


def _whole_numbers(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidSpec("--world-sizes", text, "whole numbers such as 2,3,4") from None

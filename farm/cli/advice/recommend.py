"""`farm recommend`: which configuration to train on, with its evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from farm.cells.option_table import OptionLine, interval_text, option_columns, option_lines
from farm.cells.reading import with_cells
from farm.cells.result_table import notes
from farm.cli.advice.questions import (
    SCRIPT_OPTIONS,
    WORKLOAD_OPTIONS,
    origin_option,
    prices_of,
    prices_option,
    recommender_cache,
    region_option,
    with_options,
)
from farm.cli.output import json_option, print_json, print_table, to_stderr
from farm.cli.ranges import CountRange, Real, weight_options, whole_numbers
from farm.cli.session import settings, store
from farm.configuration.axes import PROFILE_AXES, profile_fields
from farm.configuration.axis import Axis
from farm.configuration.spec import (
    LARGEST,
    MAX_GLOBAL_BATCH_SIZE,
    MAX_STEPS,
    MAX_WORLD_SIZE,
    TrainingPass,
)
from farm.errors import InvalidSpec
from farm.recommend.answering.headline import named
from farm.recommend.answering.measured import distinguishing_fields
from farm.recommend.contracts import Objective, Option, Question, Recommendation
from farm.recommend.prices import Prices
from farm.recommend.service import recommend as ask
from farm.store.engine import reading
from farm.text import display
from farm.text.columns import Column
from farm.values.fields import Amount, WholeNumber

_F = TypeVar("_F", bound=Callable[..., Any])

_MOST_SHOWN = 20


def _network_option(axis: Axis) -> Callable[[_F], _F]:
    kind = axis.type
    if isinstance(kind, WholeNumber):
        number: CountRange | Real = CountRange(kind.low, kind.high)
    else:
        assert isinstance(kind, Amount)
        number = Real(kind.low, kind.high, max_open=kind.is_below_high)
    is_said = axis.absent is not None
    return click.option(
        f"--{axis.name.replace('_', '-')}",
        default=axis.value_at(axis.address(axis.absent)) if is_said else None,
        show_default=is_said,
        type=number,
        help=axis.sentence,
    )


def _question_options(command: _F) -> _F:
    options = (
        *WORKLOAD_OPTIONS,
        *SCRIPT_OPTIONS,
        click.option(
            "--pass",
            "training_pass",
            type=click.Choice([p.value for p in TrainingPass]),
            default=TrainingPass.FORWARD_BACKWARD.value,
            show_default=True,
        ),
        click.option(
            "--global-batch-size", required=True, type=CountRange(1, MAX_GLOBAL_BATCH_SIZE)
        ),
        *map(_network_option, PROFILE_AXES),
        origin_option,
        click.option("--strategy", "strategies", multiple=True, help="Only this; may be repeated."),
        click.option(
            "--world-sizes", help="Only these, such as 2,3,4; one machine is always compared."
        ),
        click.option("--instance-types", help="Only these, with commas between them."),
        click.option("--network", "networks", multiple=True, help="Only this; may be repeated."),
        click.option(
            "--epochs",
            type=CountRange(1, MAX_STEPS),
            help="Number of epochs to train; 1 by default.",
        ),
        click.option(
            "--target-accuracy", type=Real(0, 1, min_open=True), help="Train until it is reached."
        ),
    )
    return with_options(options, command)


def _objective_options(command: _F) -> _F:
    at_least_0 = Real(0, LARGEST)
    options = (
        weight_options,
        click.option("--budget-usd", type=at_least_0, help="The training must not cost more."),
        click.option("--deadline-s", type=at_least_0, help="The training must not be longer."),
        click.option("--min-accuracy", type=Real(0, 1), help="Least accuracy, from 0 to 1."),
        click.option(
            "--machines", type=CountRange(1, MAX_WORLD_SIZE), help="Number of available machines."
        ),
    )
    return with_options(options, command)


@click.command()
@_question_options
@_objective_options
@prices_option
@region_option
@json_option
def recommend(
    *,
    prices_file: Path | None,
    region: str | None,
    alpha: float,
    beta: float,
    budget_usd: float | None,
    deadline_s: float | None,
    min_accuracy: float | None,
    machines: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Rank configurations by alpha x time + beta x cost, best first.

    Configurations that were not measured are predicted from measurements, with 80 % and 90 %
    intervals. The exit status is 1 if no known configuration fits. --json prints what GET
    /api/v1/recommendation answers: recommended, reason, options, pareto and warnings.
    """
    question = _question(**options)
    objective = Objective(
        alpha=alpha,
        beta=beta,
        budget_usd=budget_usd,
        deadline_s=deadline_s,
        min_accuracy_ratio=min_accuracy,
        max_machine_count=machines,
    )
    loaded = settings()
    prices = prices_of(loaded, prices_file, region)
    with store(loaded) as engine, reading(engine) as session:
        answer = ask(
            session,
            question=question,
            objective=objective,
            prices=prices,
            cache=recommender_cache(loaded),
        )
        shown = [] if as_json else option_lines(answer.options[:_MOST_SHOWN], question)
        shown = with_cells(session, shown)
    if as_json:
        print_json(answer.to_json())
    else:
        _print_answer(answer, shown, prices)
    if answer.recommended is None:
        raise click.exceptions.Exit(1)


def _question(
    *,
    training_pass: str,
    world_sizes: str | None,
    instance_types: str | None,
    epochs: int | None,
    target_accuracy: float | None,
    **others: Any,
) -> Question:
    if epochs is not None and target_accuracy is not None:
        raise click.UsageError("--epochs and --target-accuracy exclude each other")
    network = {axis.name: others.pop(axis.name) for axis in PROFILE_AXES}
    try:
        profile = profile_fields(network)
    except InvalidSpec as error:
        option = f"--{error.field.replace('_', '-')}"
        expected = error.expected.replace("one_way_delay_ms", "--one-way-delay-ms")
        raise InvalidSpec(option, error.value, expected) from None
    return Question(
        training_pass=TrainingPass(training_pass),
        **profile,
        world_sizes=()
        if world_sizes is None
        else whole_numbers("--world-sizes", world_sizes, most=MAX_WORLD_SIZE, example="2,3,4"),
        instance_types=_names(instance_types),
        epochs=epochs or 1,
        target_accuracy_ratio=target_accuracy,
        **others,
    )


def _print_answer(answer: Recommendation, shown: Sequence[OptionLine], prices: Prices) -> None:
    click.echo(f"Recommended: {answer.headline}")
    if answer.options:
        for line in worth_measuring(answer):
            click.echo(f"Worth measuring: {line}")
        _print_options(answer, shown)
        for line in least_lines(answer):
            click.echo(line)
        if len(answer.pareto) > 1:
            click.echo("Pareto front: no other option beats it in time, cost and accuracy together")
    for line in _price_lines(answer, prices):
        click.echo(line)
    for warning in answer.warnings:
        to_stderr(warning)


def least_lines(answer: Recommendation) -> list[str]:
    """Return a line each for the option with the least time, cost and energy, or why there is none.

    If the length of an epoch is not known, options are compared by one step, without amounts.
    """
    by, unknown = distinguishing_fields(answer.options), answer.least_unknown_because
    lines = []
    for name, title, of, write in (
        ("fastest", "Least time", "time_s", display.duration),
        ("cheapest", "Least cost", "cost_usd", display.dollars),
        ("least_energy", "Least energy", "energy_j", display.joules),
    ):
        option: Option | None = getattr(answer, name)
        if option is None:
            lines.append(f"{title}: not known, since {unknown[name]}")
            continue
        head, _, unit = of.rpartition("_")
        amount, high = getattr(option, of), getattr(option, f"{head}_high_{unit}")
        most = "" if high is None else f", at most {write(high)} (90 %)"
        amount_text = "" if amount is None else f": {write(amount)}{most}"
        lines.append(f"{title}: {named(option, by)}{amount_text}")
    return lines


def worth_measuring(answer: Recommendation) -> list[str]:
    """Return a line for each guess that may be better, with the reason why it is a guess."""
    by = distinguishing_fields(answer.options)
    lines = []
    for option in answer.worth_measuring:
        time_s = option.step_time_s if option.time_per_epoch_s is None else option.time_per_epoch_s
        of = "a step" if option.time_per_epoch_s is None else "an epoch"
        time = f"{display.duration(time_s)} {of} (90 %: {interval_text(option)})"
        why = option.speculative_because
        lines.append(
            f"{named(option, by)}: {time}, {f'a guess, since {why}' if why else option.basis}"
        )
    return lines


def _print_options(answer: Recommendation, shown: Sequence[OptionLine]) -> None:
    on_front = set(map(id, answer.pareto))
    remarks = [_remark(line.option, on_front=id(line.option) in on_front) for line in shown]
    columns = [*option_columns(shown), (Column("remark"), remarks)]
    texts = [column for _, column in columns]
    print_table([column for column, _ in columns], [list(row) for row in zip(*texts, strict=True)])
    hidden_count = len(answer.options) - len(shown)
    if hidden_count:
        click.echo(f"and {hidden_count} more; --json has all")
    for note in notes([line.cell for line in shown if line.cell is not None]):
        click.echo(note)


def _remark(option: Option, *, on_front: bool) -> str:
    remarks = ["Pareto front"] if on_front else []
    if option.speculative_because:
        remarks.append("a guess")
    if not option.is_synchronous:
        remarks.append("other updates")
    if option.disturbed_ids:
        remarks.append(f"{len(option.disturbed_ids)} of {len(option.measurement_ids)} disturbed")
    if option.set_aside_ids:
        remarks.append(f"{len(option.set_aside_ids)} disturbed not counted")
    if option.excluded_because:
        remarks.append(option.excluded_because)
    return ", ".join(remarks)


def _price_lines(answer: Recommendation, prices: Prices) -> list[str]:
    used = dict.fromkeys(o.instance_type for o in answer.options if o.cost_usd is not None)
    known = [prices.by_type[name] for name in used if name is not None]
    return [
        f"price of {p.instance_type}: {p.usd_per_hour:g} USD an hour in {p.region} on {p.date} "
        f"({p.source})"
        for p in known
    ]


def _names(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise InvalidSpec("--instance-types", text, "names with commas between them")
    return names

"""The pages that answer a question: what to train on, with figures, and what to measure next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import Blueprint, redirect, render_template, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session
from werkzeug.datastructures import MultiDict

from farm.cells.option_table import option_columns, option_lines
from farm.cells.reading import with_cells
from farm.cells.result_table import notes
from farm.charts.chart import ChartAxis, ChartSeries, Figure, Mark
from farm.errors import InvalidSpec, NotFound
from farm.measuring.measurement import OK, OWN_ORIGIN
from farm.recommend.answering.measured import (
    UNNAMED,
    DistinguishingFields,
    distinctions,
    distinguishing_fields,
    name_of,
    servers_words,
)
from farm.recommend.contracts import (
    MACHINE_STATUSES,
    Basis,
    Evidence,
    Objective,
    Option,
    Question,
    Recommendation,
)
from farm.recommend.objective import is_compared_by_step
from farm.recommend.service import recommend, settle
from farm.store.measurements.imports import origin_names
from farm.store.measurements.known_axes import known_axes
from farm.store.measurements.measurements import measurements_of
from farm.store.result_tables import MeasurementRow
from farm.text.columns import Column
from farm.text.display import count, dollars, duration, short_fingerprint
from farm.text.plurals import counted
from web.access.scopes import costly
from web.advice.plans import needing_maths, propose
from web.advice.questions import (
    RecommendationParameters,
    given_question,
    is_as_given,
    price_fields,
    read_objective,
    read_prices,
    read_question,
)
from web.backend import backend, read_session
from web.drawing.plotly import page_with_charts
from web.drawing.rendered import RenderedFigure, drawn
from web.errors import status_of
from web.parameters import read_from

if TYPE_CHECKING:
    from farm.recommend.plans.planning import Task
    from farm.recommend.plans.proposed import Proposed

bp = Blueprint("advice", __name__)

_OPTIONS_SHOWN = 40
_ROWS_SHOWN = 20
_FAILURES_SHOWN = 12
MOST_WAYS = 12  # more lines than these cannot be told apart
_WORLD_SIZE = ChartAxis(title="World size", write=count, is_counted=True)
_COST = ChartAxis(title="Cost", write=dollars)


@dataclass(frozen=True, slots=True)
class AnswerInterval:
    """A value with its 90 % interval; None: nothing tells it."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAnswer:
    """An answer with what stands around it on the page. `rests_on`: what the best option does.

    `not_working`: what failed by itself, how, and how often. `kinds_left_out`: of machines and
    strategies, since so many lines cannot be told apart. `distinguishing_fields`: the fields in
    which options differ beside strategy and sizes. `columns`: of the table of options, whose signs
    `notes` explain.
    """

    question: Question
    answer: Recommendation
    figures: Sequence[RenderedFigure[Figure]]
    kinds_left_out: int
    distinguishing_fields: DistinguishingFields
    columns: Sequence[tuple[Column, Sequence[str]]]
    notes: Sequence[str]
    rests_on: Sequence[MeasurementRow]
    not_working: Sequence[tuple[str, str, int]]


@bp.get("/advice")
@costly
def get_advice() -> ResponseReturnValue:
    """Answer the question in the address, by the names of the API's query; without one, ask it.

    Parameters that are empty, as forms send them, count as absent; without them the address is
    one to be kept, so that is where a form leads in the end.
    """
    given = given_question()
    if not is_as_given(given):
        kept: dict[str, Any] = given.to_dict()
        return redirect(url_for(".get_advice", **kept), HTTPStatus.SEE_OTHER)
    shown: ShownAnswer | None = None
    error: InvalidSpec | NotFound | None = None
    with read_session() as session:
        origins = origin_names(session)
        # This farm is asked about first, unless it has measured nothing yet.
        given.setdefault("origin", origins[0] if origins else OWN_ORIGIN)
        axes = known_axes(session, given["origin"])
        if set(given) - {"origin"}:  # that alone is how another origin is chosen
            try:
                shown = _answer(session, given)
            except (InvalidSpec, NotFound) as refusal:
                error = refusal
    page = page_with_charts(
        "advice.html",
        given=given,
        origins=origins,
        axes=axes,
        shown=shown,
        error=error,
        error_field=error.field if isinstance(error, InvalidSpec) else None,
        price_fields=price_fields(given.get("prices", ""), axes, backend().prices),
        distinctions=distinctions,
        servers_words=servers_words,
        prices=sorted(backend().prices.by_type.values(), key=lambda p: p.instance_type),
        options_shown=_OPTIONS_SHOWN,
    )
    page.status_code = HTTPStatus.OK if error is None else status_of(error)
    return page


def _answer(session: Session, given: MultiDict[str, str]) -> ShownAnswer:
    query, cache = read_from(RecommendationParameters, given), backend().recommender_cache
    question = read_question(query)
    answer = recommend(
        session,
        question=question,
        objective=read_objective(query),
        prices=read_prices(query, backend().prices),
        cache=cache,
        may_wait=False,
    )
    question, knowledge = settle(session, question, cache)
    best = answer.recommended
    lines = with_cells(session, option_lines(answer.options[:_OPTIONS_SHOWN], question))
    return ShownAnswer(
        question=question,
        answer=answer,
        figures=[drawn(figure) for figure in figures_of(answer)],
        kinds_left_out=max(0, len(way_names(answer.options)) - MOST_WAYS),
        distinguishing_fields=distinguishing_fields(answer.options),
        columns=option_columns(lines),
        notes=notes([line.cell for line in lines if line.cell is not None]),
        rests_on=measurements_of(session, best.measurement_ids[:_ROWS_SHOWN]) if best else [],
        not_working=_not_working(
            knowledge.evidence.get(question.training_pass, ()), question.global_batch_size
        ),
    )


def _not_working(
    evidence: Sequence[Evidence], global_batch_size: int
) -> list[tuple[str, str, int]]:
    """Return what failed by itself, how and how often, beginning near the batch asked about."""
    known = [e for e in evidence if e.status != OK and e.status not in MACHINE_STATUSES]
    by = distinguishing_fields(
        [e.configuration for e in known], ("instance_type", "setup", "network")
    )
    failed = Counter(
        (name_of(e.configuration, by), e.configuration.global_batch_size, e.status) for e in known
    )
    ordered = sorted(failed, key=lambda key: (abs(key[1] - global_batch_size), key))
    return [
        (f"{name}, batch {count(batch)}", status, failed[key])
        for key in ordered[:_FAILURES_SHOWN]
        for name, batch, status in [key]
    ]


def time_of(option: Option, *, by_step: bool) -> AnswerInterval | None:
    """Return the time of the training, or of one step where lengths are not known.

    The interval is that of an epoch, which the training has so many of, or of a step.
    """
    value = option.step_time_s if by_step else option.time_s
    one, low, high = (
        (option.step_time_s, option.step_low_s, option.step_high_s)
        if by_step or option.low_s is None
        else (option.time_per_epoch_s, option.low_s, option.high_s)
    )
    if value is None:
        return None
    if not one or low is None or high is None:
        return AnswerInterval(value, None, None)
    return AnswerInterval(value, value * low / one, value * high / one)


def cost_of(option: Option) -> AnswerInterval | None:
    """Return the cost of the training: as uncertain as its time, since prices are known."""
    time = time_of(option, by_step=False)
    if option.cost_usd is None or time is None or not time.value:
        return None
    factor = option.cost_usd / time.value
    return AnswerInterval(
        option.cost_usd,
        None if time.low is None else time.low * factor,
        None if time.high is None else time.high * factor,
    )


def way_names(options: Sequence[Option]) -> dict[tuple[object, ...], str]:
    """Name each way of training in the options: by its strategy, and what tells it from others."""
    ways = dict.fromkeys(_way(option) for option in options)
    by = distinguishing_fields(options)
    named: dict[tuple[object, ...], str] = {}
    for option in options:
        way = _way(option)
        parts = [str(way[0] or "unnamed strategy")]
        for position in range(1, len(way)):
            if len({other[position] for other in ways}) > 1 and way[position]:
                parts.append(_part(position, way[position]))
        parts += [words for words in distinctions(option, by) if words.startswith(UNNAMED)]
        # Of a way with options of one machine and of gangs, only these lack a network's name.
        named[way] = max(named.get(way, ""), ", ".join(parts), key=len)
    return named


def figures_of(answer: Recommendation) -> list[Figure]:
    """Return what can be shown of an answer: nothing where it has no options."""
    by_step = is_compared_by_step(answer.options)
    titled = "Time of one step" if by_step else "Time of the training"
    figures = [
        _against_world_size(
            answer.options,
            lambda option: time_of(option, by_step=by_step),
            y=ChartAxis(title=titled, write=duration),
        ),
        _against_world_size(answer.options, cost_of, y=_COST),
        _pareto(answer),
    ]
    return [figure for figure in figures if figure is not None]


def _way(option: Option) -> tuple[object, ...]:
    return (
        option.strategy,
        option.instance_type,
        option.network,
        option.setup,
        option.framework,
        option.server_count,
        option.fingerprint,
    )


def _part(position: int, value: object) -> str:
    if position == 5:
        return counted(int(str(value)), "server")
    if position == 6:
        return f"hardware {short_fingerprint(str(value))}"
    return str(value)


def _against_world_size(
    options: Sequence[Option], read: Callable[[Option], AnswerInterval | None], *, y: ChartAxis
) -> Figure | None:
    names = way_names(options)
    by_way: dict[tuple[object, ...], list[Mark]] = {}
    for option in options:  # the best first, so the ways of the best options are shown
        span = read(option)
        if span is not None:
            by_way.setdefault(_way(option), []).append(
                _mark(option, span, _named(option, names), x=option.world_size, write=y.write)
            )
    shown_ways = list(by_way.items())[:MOST_WAYS]
    if not shown_ways:
        return None
    left_out = len(by_way) - len(shown_ways)
    shown = [mark for _, marks in shown_ways for mark in marks]
    least, most = min(shown, key=lambda mark: mark.y), max(shown, key=lambda mark: mark.y)
    return Figure(
        title=f"{y.title} against the world size",
        summary=f"from {y.write(least.y)} at {least.x:g} to {y.write(most.y)} at {most.x:g}"
        + (f"; the {MOST_WAYS} best of {len(by_way)} kinds" if left_out else ""),
        x=_WORLD_SIZE,
        y=y,
        series=[
            ChartSeries(name=names[way], marks=sorted(marks, key=lambda mark: mark.x))
            for way, marks in shown_ways
        ],
    )


def _pareto(answer: Recommendation) -> Figure | None:
    names = way_names(answer.options)
    on_front = {id(option) for option in answer.pareto}
    front: list[Mark] = []
    others: list[Mark] = []
    for option in answer.options:
        time, cost = time_of(option, by_step=False), cost_of(option)
        if time is not None and cost is not None:
            name = f"{_named(option, names)}, {dollars(cost.value)}"
            mark = _mark(option, time, name, x=cost.value, write=duration)
            (front if id(option) in on_front else others).append(mark)
    if len(front) + len(others) < 2:
        return None
    series = [
        ChartSeries(name="Pareto front", marks=sorted(front, key=lambda mark: mark.x)),
        ChartSeries(name="others", marks=others, is_joined=False),
    ]
    return Figure(
        title="Time against cost",
        summary=f"{len(front)} of {len(front) + len(others)} options on the Pareto front",
        x=_COST,
        y=ChartAxis(title="Time of the training", write=duration),
        series=[one for one in series if one.marks],
    )


def _named(option: Option, names: Mapping[tuple[object, ...], str]) -> str:
    return f"{names[_way(option)]}, world size {option.world_size}"


def _mark(
    option: Option,
    span: AnswerInterval,
    name: str,
    *,
    x: float,
    write: Callable[[float | None], str],
) -> Mark:
    interval = ""
    if span.low is not None and span.high is not None:
        interval = f" (90 %: {write(span.low)} to {write(span.high)})"
    return Mark(
        x=x,
        y=span.value,
        low=span.low,
        high=span.high,
        is_solid=option.basis == Basis.MEASURED.value,
        note=f"{name}: {write(span.value)}{interval}, {option.basis}",
    )


@bp.get("/advice/plan")
@costly
def get_plan() -> ResponseReturnValue:
    """Show what to measure next for the question of this address. Query: as of `/advice`.

    It takes seconds to find out. Until then the page says so, and loads itself again.
    """
    given = given_question()
    given.setdefault("origin", OWN_ORIGIN)
    query = read_from(RecommendationParameters, given)
    question, objective = read_question(query), read_objective(query)
    prices = read_prices(query, backend().prices).usd_per_hour
    with read_session() as session:
        question, _ = settle(session, question, backend().recommender_cache)
    proposed: Proposed | None = None
    error: InvalidSpec | None = None
    try:
        proposed = propose(_task(question, objective, prices), origin=question.origin)
    except InvalidSpec as refusal:
        error = refusal
    return render_template(
        "plan.html", given=given, question=question, proposed=proposed, error=error
    )


def _task(question: Question, objective: Objective, prices: Mapping[str, float]) -> Task:
    """Return the task of planning on the axes of the question."""
    with needing_maths():
        from farm.recommend.plans.grid import Axes
        from farm.recommend.plans.planning import Task

    return Task(
        axes=Axes(
            strategies=question.strategies,
            world_sizes=question.world_sizes,
            global_batch_sizes=(question.global_batch_size,),
            one_way_delays_s=(question.one_way_delay_s,),
            instance_types=question.instance_types,
        ),
        model=question.model,
        dataset=question.dataset,
        prices_usd_per_hour=prices,
        alpha=objective.alpha,
        beta=objective.beta,
    )

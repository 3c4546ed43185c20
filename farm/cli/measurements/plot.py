"""`farm plot`: figures of a sweep for paper, as PNG, SVG or PDF."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from farm.charts.files.style import FORMS
from farm.cli.advice.questions import prices_of, prices_option, region_option
from farm.cli.output import json_option, print_json, row_bar, to_stderr
from farm.cli.session import JOB_ID, settings, store
from farm.errors import FarmError, InvalidSpec
from farm.processes.whole_file import write_whole
from farm.store.engine import reading
from farm.store.sweeps.sweeps import find_sweep

if TYPE_CHECKING:
    from farm.cells.choice import Choice
    from farm.cells.table import SweepTable
    from farm.charts.plots import Plot, PlotKind, PlotRequest

_KINDS = ("lines", "bars", "map", "pareto", "series", "history", "prediction")
# The parameters of a sweep's page, as options are called.
_OPTIONS = {"metric": "--metric", "along": "--along", "by": "--by", "x": "--over", "y": "--down"}
_FIXED = "at_"


@click.command()
@click.argument("sweep")
@click.option("--kind", "kinds", help=f"Of {', '.join(_KINDS)}, with commas; all that there are.")
@click.option("--metric", help="Of lines, bars and the map; such as throughput.")
@click.option("--along", metavar="AXIS", help="Axis of the lines, such as one_way_delay_ms.")
@click.option("--by", metavar="AXIS", help="Axis that distinguishes lines, or bars side by side.")
@click.option("--over", metavar="AXIS", help="The columns of the map.")
@click.option("--down", metavar="AXIS", help="The rows of the map.")
@click.option("--at", "held", metavar="AXIS=VALUE", multiple=True, help="Only this; repeatable.")
@click.option("--job", "job_id", type=JOB_ID, metavar="ID", help="Job of series and history.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="./plots/SWEEP")
@click.option("--format", "forms", default="png,svg", show_default=True, help="Also pdf.")
@prices_option
@region_option
@json_option
def plot(
    sweep: str,
    *,
    kinds: str | None,
    metric: str | None,
    along: str | None,
    by: str | None,
    over: str | None,
    down: str | None,
    held: tuple[str, ...],
    job_id: int | None,
    out: Path | None,
    forms: str,
    prices_file: Path | None,
    region: str | None,
    as_json: bool,
) -> None:
    """Draw the measurements of a SWEEP (its id or name), and list the files.

    \b
    lines       step time, efficiency and cost, or --metric, along a number, with 95 % intervals
    bars        the metric of every cell, side by side
    map         the metric over two axes
    pareto      time against cost of an epoch, and what nothing else beats in both
    series      CPU, memory and network of a job's roles, the steps laid over
    history     step time of a cell in all sweeps, and the versions that changed
    prediction  every cell as predicted from the others, against what was measured

    Axes are named as in the sweep file. --along and --by make a panel for each value of what else
    varies. The same figures are on the sweep's page.
    """
    given = {"metric": metric, "along": along, "by": by, "x": over, "y": down}
    folder = out or Path("plots") / (re.sub(r"[^\w.-]+", "-", sweep).strip(".-") or "sweep")
    wanted = _listed("--format", forms, FORMS)
    if job_id is not None and kinds is None:
        kinds = "series"
    asked_kinds = _listed("--kind", kinds, _KINDS) if kinds is not None else None
    files = _plot(
        sweep,
        given={name: text for name, text in given.items() if text is not None},
        held=held,
        kinds=asked_kinds,
        job_id=job_id,
        folder=folder,
        forms=wanted,
        prices=(prices_file, region),
    )
    if as_json:
        print_json({"plots": files})
    else:
        for one in files:
            for path in one["files"]:
                click.echo(path)


def _plot(
    sweep: str,
    *,
    given: Mapping[str, str],
    held: Sequence[str],
    kinds: Sequence[str] | None,
    job_id: int | None,
    folder: Path,
    forms: Sequence[str],
    prices: tuple[Path | None, str | None],
) -> list[dict[str, Any]]:
    """Draw and write; return what each plot is and where."""
    from farm.cells.reading import read_sweep
    from farm.charts.files.style import require
    from farm.charts.plots import PlotKind, PlotRequest

    require()
    loaded = settings()
    with store(loaded) as engine, reading(engine) as session:
        found = find_sweep(session, sweep)
        table = read_sweep(session, found.id, prices=prices_of(loaded, *prices)).table
        choice = _choice(given, held, table)
        request = PlotRequest(
            sweep_id=found.id, choice=choice, is_of_metric="metric" in given, job_id=job_id
        )
        of_kinds = [PlotKind(name) for name in kinds or _KINDS]
        drawn = _drawn(session, table, request, of_kinds, is_all=kinds is None)
    return [_written(one, folder, forms) for one in drawn]


def _drawn(
    session: Any,
    table: SweepTable,
    request: PlotRequest,
    kinds: Sequence[PlotKind],
    *,
    is_all: bool,
) -> list[Plot]:
    """Return the plots. `is_all`: of a kind that cannot be drawn is said why, and no more."""
    from farm.charts.plots import PlotKind, plots_of

    drawn: list[Plot] = []
    for kind in kinds:
        try:
            is_slow = kind is PlotKind.PREDICTION
            with row_bar("predicting", noun="fits") if is_slow else nullcontext() as show:
                drawn += plots_of(session, table, request, kind, show=show)
        except FarmError as error:
            if not is_all:
                raise
            to_stderr(f"no {kind.value}: {error}")
    if not drawn:
        raise FarmError("nothing of this sweep can be drawn yet")
    return drawn


def _written(one: Plot, folder: Path, forms: Sequence[str]) -> dict[str, Any]:
    from farm.charts.files.style import file_of

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidSpec(
            "--out", str(folder), f"a folder to write to ({error.strerror})"
        ) from None
    figure = one.draw()
    paths = [folder / f"{one.name}.{form}" for form in forms]
    for path, form in zip(paths, forms, strict=True):
        write_whole(path, file_of(figure, form))
    return {
        "kind": one.kind.value,
        "title": one.title,
        "summary": one.summary,
        "files": [str(path) for path in paths],
    }


def _choice(given: Mapping[str, str], held: Sequence[str], table: SweepTable) -> Choice:
    """Read the options as the sweep's page reads its address.

    Raises:
        InvalidSpec: an option names nothing that this sweep has; those that it has are listed.
    """
    from farm.cells.choice import read_choice

    parameters = {**given, **_held(held, table)}
    try:
        return read_choice(parameters, table)
    except InvalidSpec as error:
        option = _OPTIONS.get(error.field) or f"--at {error.field.removeprefix(_FIXED)}"
        expected = error.expected.replace("than x", "than --over")
        raise InvalidSpec(option, error.value, expected) from None


def _held(held: Sequence[str], table: SweepTable) -> dict[str, str]:
    known = {axis.name: axis for axis in table.axes}
    fixed: dict[str, str] = {}
    for text in held:
        name, is_there, value = (part.strip() for part in text.partition("="))
        axis = known.get(name)
        if axis is None or not is_there or not value:
            expected = f"AXIS=VALUE with one of {', '.join(known) or 'none: it varies nothing'}"
            raise InvalidSpec("--at", text, expected)
        # 20 and 20.0 are the same delay.
        same = [
            axis.address(v)
            for v in table.values[name]
            if _number(axis.address(v)) == _number(value)
        ]
        fixed[f"{_FIXED}{name}"] = same[0] if same else value
    return fixed


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _listed(option: str, text: str, known: Sequence[str]) -> list[str]:
    """Return the names that are listed with commas, in the order in which they are known."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise InvalidSpec(option, name, f"of {', '.join(known)}, with commas")
    if not names:
        raise InvalidSpec(option, text, f"of {', '.join(known)}, with commas")
    return [name for name in known if name in names]

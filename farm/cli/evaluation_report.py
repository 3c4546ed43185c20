"""An evaluation as a page of Markdown with pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from farm.cli.evaluation_tables import (
    DOUBT_COLUMNS,
    FEW_SHOT_COLUMNS,
    SPLIT_COLUMNS,
    doubt_cells,
    few_shot_cells,
    split_cells,
)
from farm.cli.output import Column
from farm.cli.whole_file import write_whole
from farm.errors import InvalidSpec

if TYPE_CHECKING:
    from farm.recommend.evaluating.evaluation import Evaluation

_WORDS = """\
*Held out* is what the predictor did not see: with `random`, a tenth of the configurations at a
time; else all measurements of one batch size, delay and so on. *Error* is
|predicted / measured - 1|. A *choice* takes what is predicted to be least of {objective}; its
*regret* is how much more of that it really takes than the best. What was not held out enters a
choice with its measured time, as in an answer; *unseen* are the regrets where every option has the
prediction of the fold that held it out. *In 80 %* is how often the
measurement fell into the 80 % interval, *width* the median of its high / low - 1, and *score* the
mean interval score of ln(time), with that of intervals of constant width beside it: less is
better. What was held out has no part in the calibration of the intervals either."""


def write_report(evaluation: Evaluation, folder: Path) -> list[Path]:
    """Write the page and its pictures, named after the origin; return where they are.

    Raises:
        InvalidSpec: the folder cannot be written to, or matplotlib is not installed.
    """
    try:
        from farm.cli.evaluation_pictures import draw
    except ModuleNotFoundError as error:
        raise InvalidSpec(
            "--report", str(folder), f"{error.name}: pip install 'benchfarm[plot]'"
        ) from None
    images = folder / "images"
    try:
        images.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidSpec("--report", str(folder), f"a folder ({error.strerror})") from None
    pictures = {}
    for name, (content, alt) in draw(evaluation).items():
        path = images / f"{evaluation.origin}-{name}.svg"
        write_whole(path, content)
        pictures[path] = alt
    page = folder / f"{evaluation.origin}.md"
    write_whole(page, page_of(evaluation, _links(pictures, folder)).encode())
    return [page, *pictures]


def _links(pictures: dict[Path, str], folder: Path) -> list[str]:
    return [f"![{alt}]({path.relative_to(folder)})" for path, alt in pictures.items()]


def page_of(evaluation: Evaluation, pictures: Sequence[str]) -> str:
    """Return the page's Markdown."""
    workload = " on ".join(name for name in (evaluation.model, evaluation.dataset) if name)
    objective = "step time"
    if evaluation.machine_price or evaluation.is_weak:
        price = f" x (1 + machines x {evaluation.machine_price:g})" * bool(evaluation.machine_price)
        objective = f"time{' per example' if evaluation.is_weak else ''}{price}"
    command = f"farm evaluate --origin {evaluation.origin} --seed {evaluation.seed}"
    parts = [
        f"# {evaluation.origin}: how good the predictions are",
        f"{workload}: {evaluation.observation_count} measurements with a time, "
        f"{evaluation.failure_count} that failed. Written by `{command} --report FOLDER`.",
        _WORDS.format(objective=objective),
        *pictures,
        *_table(SPLIT_COLUMNS, [split_cells(score) for score in evaluation.splits]),
    ]
    if evaluation.few_shots:
        parts += [
            "## After few measurements",
            "Starting from nothing, in the order in which the planner asks for them or at random; "
            "what was measured has its measured time, with an error of 2 %.",
            *_table(FEW_SHOT_COLUMNS, [few_shot_cells(score) for score in evaluation.few_shots]),
        ]
    if evaluation.suspicious:
        parts += [
            "## Suspicious measurements",
            "They count less, as the table says, and nothing is left out.",
            *_table(DOUBT_COLUMNS, [doubt_cells(doubt) for doubt in evaluation.suspicious]),
        ]
    return "\n\n".join(parts) + "\n"


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [
        " | ".join(column.title for column in columns),
        " | ".join("---:" if column.is_right else "---" for column in columns),
        *(" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows),
    ]
    return ["\n".join(f"| {line} |" for line in lines)]

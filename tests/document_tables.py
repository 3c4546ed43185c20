"""Tables of documents that follow from declarations in the code.

`python -m tests.document_tables` writes each between its two markers; tests/unit hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.figures import root
from benchmarks.marked_part import MarkedPart
from farm.core.measurement_table import MEASUREMENT_TABLE
from farm.trainers.models import MODELS
from web.farm.metrics import METRICS

_SHAPES = (((8, 8, 1), 10), ((28, 28, 1), 10), ((32, 32, 3), 10), ((224, 224, 3), 1000))


@dataclass(frozen=True, slots=True)
class DocumentTable:
    """`page` is a file in docs. `lines` makes the table, with its titles."""

    page: str
    part: MarkedPart
    lines: Callable[[], list[str]]


def main() -> None:
    """Write all of them."""
    for one in TABLES:
        one.part.write(root() / "docs" / one.page, one.lines())


def measurement_columns() -> list[str]:
    """Return the columns that an export writes and an import reads."""
    return _table(
        ("column", "kind", "unit", "meaning", "if empty in an import"),
        (
            (f"`{column.name}`", column.kind.value, column.unit, column.meaning, column.if_empty)
            for column in MEASUREMENT_TABLE
        ),
    )


def metrics() -> list[str]:
    """Return what `GET /metrics` serves."""
    return _table(
        ("metric", "kind", "means"), ((f"`{m.name}`", m.kind, m.meaning) for m in METRICS)
    )


def models() -> list[str]:
    """Return every model at every shape that it takes."""
    return _table(
        ("model", "images", "classes", "parameters", "forward Mflop", "gradients MB", "kept MB"),
        _models(),
        number_count=5,
    )


def _models() -> Iterator[tuple[str, ...]]:
    for model in MODELS:
        for shape, class_count in _SHAPES:
            if min(shape[:2]) < model.facts.smallest_side:
                continue
            size = model.describe(shape, class_count)
            yield (
                f"`{model.facts.name}`",
                "x".join(map(str, shape)),
                str(class_count),
                f"{size.parameter_count:,}",
                f"{size.forward_flop_per_example / 1e6:,.2f}",
                f"{size.gradient_bytes / 1e6:,.2f}",
                f"{size.activation_bytes_per_example / 1e6:,.3f}",
            )


def _table(
    titles: Sequence[str], rows: Iterator[tuple[str, ...]], *, number_count: int = 0
) -> list[str]:
    """Return the lines of a table; its last `number_count` columns are aligned to the right."""
    ruler = ["---"] * (len(titles) - number_count) + ["---:"] * number_count
    return [f"| {' | '.join(cells)} |" for cells in (titles, ruler, *rows)]


TABLES = (
    DocumentTable("importing.md", MarkedPart("columns"), measurement_columns),
    DocumentTable("operations.md", MarkedPart("metrics"), metrics),
    DocumentTable("models.md", MarkedPart("models"), models),
)

if __name__ == "__main__":
    main()

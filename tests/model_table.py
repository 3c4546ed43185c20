"""The table of docs/models.md. `python -m tests.model_table` prints it."""

from __future__ import annotations

from collections.abc import Iterator

from farm.trainers.models import MODELS

SHAPES = (((8, 8, 1), 10), ((28, 28, 1), 10), ((32, 32, 3), 10), ((224, 224, 3), 1000))
_TITLES = ("model", "images", "classes", "parameters", "forward Mflop", "gradients MB", "kept MB")


def table() -> Iterator[str]:
    """Yield the lines: every model at every shape that it takes."""
    yield _line(*_TITLES)
    yield _line("---", "---", *["---:"] * 5)
    for model in MODELS:
        for shape, class_count in SHAPES:
            if min(shape[:2]) < model.facts.smallest_side:
                continue
            size = model.describe(shape, class_count)
            yield _line(
                f"`{model.facts.name}`",
                "x".join(map(str, shape)),
                str(class_count),
                f"{size.parameter_count:,}",
                f"{size.forward_flop_per_example / 1e6:,.2f}",
                f"{size.gradient_bytes / 1e6:,.2f}",
                f"{size.activation_bytes_per_example / 1e6:,.3f}",
            )


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print("\n".join(table()))

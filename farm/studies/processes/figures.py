"""The processes study's figures: what they show. `farm.charts.files` draws them."""

from __future__ import annotations

from farm.charts.bars import Bars, BarSeries
from farm.charts.chart import ChartAxis, ChartSeries, Figure, Mark
from farm.studies.processes.set_ups import SetUp, SetUps
from farm.studies.run_groups import mark_of
from farm.text.display import decimal, duration, percent


def time_figures(found: SetUps) -> list[Figure]:
    """Time per epoch, and the speed-up over one process, against batch size."""
    first, last = found.batches[0], found.batches[-1]
    alone = found.alone
    level = [
        ChartSeries(
            name=one.name,
            marks=[Mark(x=first, y=1.0), Mark(x=last, y=1.0)],
            has_dots=False,
            style=0,
        )
        for one in ([alone] if alone else [])
    ]
    ratios = [
        ChartSeries(
            name=one.name,
            marks=[
                mark
                for batch in found.batches
                if (mark := mark_of(found.speed_ups(one, batch), x=batch))
            ],
            style=_style(found, one),
        )
        for one in found.others
    ]
    return [
        Figure(
            title="time per epoch",
            summary="Time per epoch against batch size, a line for each set-up.",
            x=_batch_axis(),
            y=ChartAxis(title="time per epoch", write=duration, is_log=True),
            series=[
                ChartSeries(name=one.name, marks=_marks(one), style=_style(found, one))
                for one in found.all
            ],
        ),
        Figure(
            title="speed-up over 1 process",
            summary="Epoch time of one process over that of each set-up, against batch size.",
            x=_batch_axis(),
            y=ChartAxis(title="times as fast"),
            series=[*level, *ratios],
        ),
    ]


def learning_bars(found: SetUps) -> list[Bars]:
    """Loss and accuracy on the test split by batch size: equal bars are equal trainings."""
    return [
        _bars(found, "test_loss", ChartAxis(title="test loss", write=decimal)),
        _bars(found, "accuracy", ChartAxis(title="test accuracy", write=percent)),
    ]


def _bars(found: SetUps, column: str, y: ChartAxis) -> Bars:
    return Bars(
        title=y.title,
        summary=f"The {y.title} after the last epoch by batch size, a bar for each set-up.",
        x="global batch",
        y=y,
        groups=[str(batch) for batch in found.batches],
        series=[
            BarSeries(
                name=one.name,
                marks=[
                    point.mark(column, x=place) if (point := one.at(batch)) else None
                    for place, batch in enumerate(found.batches)
                ],
            )
            for one in found.all
        ],
    )


def _batch_axis() -> ChartAxis:
    return ChartAxis(title="global batch", write=_whole, is_log=True, is_counted=True)


def _marks(one: SetUp) -> list[Mark]:
    return [
        mark
        for point in one.points
        if (mark := point.mark("time_per_epoch_s", x=point.first.global_batch_size))
    ]


def _style(found: SetUps, one: SetUp) -> int:
    """One process looks the same in every panel, whether it is there or not."""
    return found.all.index(one) + (found.alone is None)


def _whole(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"

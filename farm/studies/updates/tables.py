"""The tables of the page on strategies of update. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from farm.studies.text import MISSING, kb, mb, ms, percent, significant, span, table
from farm.studies.updates.charts import busiest_bytes_per_step
from farm.studies.updates.kinds import (
    APART,
    ASYNCHRONOUS,
    ASYNCHRONOUS_APART,
    CENTRAL,
    COPIES,
    COUNTERPARTS,
    GLOO,
    KINDS,
    ONE_SERVER,
    RING,
    SERVERS,
)
from farm.studies.updates.points import Row, ThroughputPoint

_SHARED_OUT = (RING, GLOO, SERVERS, COPIES, ASYNCHRONOUS)
_OVER_ONE_NODE = (CENTRAL, ONE_SERVER)


def counterparts_table() -> str:
    """Say which strategy of the study is which of ours."""
    text = table(
        ["here called", "the study", "ours", "how well they correspond"],
        [[c.kind, c.published or MISSING, c.ours or MISSING, c.how_well] for c in COUNTERPARTS],
    )
    return text.replace("---:", ":---")  # words, not numbers


def node_bytes(row: Row) -> tuple[float, float] | None:
    """Return what theory says that leaves a node for a step: of one that trains on average, and
    of the one that sends most. None where there is no theory, or nothing is exchanged.

    What a process sends to another one of its own node does not leave it.
    """
    gradient_bytes, n = row.median_of("gradient_bytes"), row.first.world_size
    if gradient_bytes is None or n < 2:
        return None
    ring = 2 * (n - 1) / n * gradient_bytes
    if row.kind in _SHARED_OUT:
        return ring, ring
    if row.kind in _OVER_ONE_NODE:
        return ring, (n - 1) * gradient_bytes
    if row.kind in (APART, ASYNCHRONOUS_APART):
        return gradient_bytes, n * gradient_bytes
    return None


def traffic_table(rows: Sequence[Row]) -> str:
    """Write what leaves a node for a step, beside what has to."""
    shown = []
    for row in ordered(rows):
        theory = node_bytes(row)
        measured = row.median_of("wire_bytes_per_step"), busiest_bytes_per_step(row)
        if theory is None:
            continue
        cells = [row.kind, str(row.nodes)]
        for expected, found in zip(theory, measured, strict=True):
            over = None if found is None else found / expected - 1
            cells += [kb(expected), kb(found), percent(over, is_signed=True)]
        shown.append(cells)
    titles = ["a node: theory (kB)", "measured (kB)", "", "the most: theory (kB)", "measured (kB)"]
    return table(["strategy", "nodes", *titles, ""], shown)


def memory_table(rows: Sequence[Row]) -> str:
    """Write the memory of a process by its role."""
    shown = []
    for row in ordered(rows):
        cells = [row.kind, str(row.nodes)]
        for column in ("worker_resident_bytes", "server_resident_bytes"):
            ends = row.span_of(column)
            cells += [mb(row.median_of(column)), span(map(mb, ends)) if ends else MISSING]
        shown.append(cells)
    spread = "least to most"
    return table(
        ["strategy", "nodes", "trains (MB)", spread, "serves (MB)", spread],
        shown,
    )


def configurations_table(
    rows: Sequence[Row], efficiencies: Mapping[tuple[str, str, int, int], ThroughputPoint]
) -> str:
    """Write every configuration with its medians."""
    shown = []
    for row in ordered(rows):
        ends = row.span_of("throughput_examples_per_s")
        point = efficiencies.get(place_of(row))
        shown.append(
            [
                row.kind,
                f"`{row.first.strategy or MISSING}`",
                str(row.nodes),
                str(row.batch),
                row.training_pass.replace("_", " and "),
                str(len(row.runs)),
                significant(row.median_of("throughput_examples_per_s")),
                span(map(significant, ends)) if ends else MISSING,
                percent(point.efficiency if point else None),
                ms(row.median_of("step_time_s")),
                percent(row.median_of("idle_ratio")),
            ]
        )
    titles = ["", "nodes", "batch of a node", "pass", "runs", "examples/s", "least to most"]
    return table(["strategy", *titles, "of as many alone", "step (ms)", "idle"], shown)


def place_of(row: Row) -> tuple[str, str, int, int]:
    """Return where a row's point stands."""
    return row.kind, row.training_pass, row.batch, row.nodes


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Return rows by pass, batch, strategy and nodes."""
    places = {kind: place for place, kind in enumerate(KINDS)}
    return sorted(
        rows,
        key=lambda r: (
            r.training_pass != "forward_backward",
            r.batch,
            places.get(r.kind, len(places)),
            r.kind,
            r.nodes,
        ),
    )

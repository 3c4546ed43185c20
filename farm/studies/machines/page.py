"""The machines study's page: every number in it comes from the runs, or is a published one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from string import Template

from farm.errors import FarmError
from farm.importers.anwar2021 import ANWAR2021
from farm.importers.published import read_publication
from farm.measuring.measurement import OK
from farm.measuring.study_run import StudyRun
from farm.registry import model_size
from farm.studies import conditions
from farm.studies.conditions import refuse_other_work
from farm.studies.contracts import Drawing, Page
from farm.studies.machines.cells import CellTimes, Fastest, groups_of, own_times, published_times
from farm.studies.machines.claims import ORDERINGS, values_of
from farm.studies.machines.figures import draw_epochs, draw_examples, paired_batches
from farm.studies.machines.tables import (
    configurations_table,
    fastest_table,
    trips_span,
    trips_table,
)
from farm.studies.orderings import judge, orderings_table
from farm.studies.run_groups import one_kind
from farm.studies.text import MISSING, delay_ms, listing, percent, significant, span, whole


def machines_page(runs: Sequence[StudyRun]) -> Page:
    """Make the page and its figures.

    Raises:
        FarmError: there is no run with a time, or the runs are not of the same work.
    """
    kept = one_kind(runs)
    if not kept:
        raise FarmError("the machines study has no measured run to show")
    _refuse_other_work(kept)
    published = published_times(read_publication(ANWAR2021).measurements)
    own = own_times(kept)
    template = Template(files("farm.studies.machines").joinpath("page.md").read_text())
    text = template.substitute(
        **_conditions(runs, kept, own),
        **_theirs(published),
        findings=conditions.findings(kept, lambda some: _findings(published, own_times(some))),
        disturbed=conditions.disturbed(kept),
        verdicts_rest_on=conditions.verdicts_rest_on(kept),
        paired=_paired(published, own),
        published_fastest=fastest_table(published),
        own_fastest=fastest_table(own),
        trips=trips_table(published, own),
        orderings=orderings_table(
            ORDERINGS,
            published=values_of(published),
            own=values_of(own_times(conditions.undisturbed(kept))),
        ),
        configurations=configurations_table(groups_of(kept), own),
    )
    return Page(
        text=text,
        drawings=(
            Drawing("machines-epoch-time", partial(draw_epochs, published, own)),
            Drawing("machines-example-time", partial(draw_examples, published, own)),
        ),
    )


def _refuse_other_work(runs: Sequence[StudyRun]) -> None:
    """Its cells are told apart by batch, machines and delay: other work would be pooled in them."""
    refuse_other_work(
        {
            "model": {run.model for run in runs},
            "data set": {run.dataset for run in runs},
            "strategy of gangs": {run.strategy for run in runs if run.world_size > 1},
        },
        compares="machines with one model, data set and strategy",
    )


def _conditions(
    runs: Sequence[StudyRun], kept: Sequence[StudyRun], own: CellTimes
) -> dict[str, str]:
    first = kept[0]
    counts = sorted(len(group.runs) for group in groups_of(kept))
    steps = sorted({run.timed_step_count for run in kept if run.timed_step_count})
    size = model_size(first.model or "", first.dataset or "")
    return {
        "model": first.model or MISSING,
        "dataset": first.dataset or MISSING,
        "parameters": MISSING if size is None else whole(size.parameter_count),
        "world_sizes": listing([str(size) for size in own.world_sizes]),
        "batches": listing([whole(batch) for batch in own.batches]),
        "delays": listing([delay_ms(delay_s) for delay_s in own.delays_s]),
        "repetitions": span(map(str, counts)),
        "steps": span(map(str, steps)),
        "runs": str(len(kept)),
        "cores": str(max(run.core_count for run in kept)),
        "machine": conditions.machine(kept),
        "round_trips": conditions.round_trips(kept),
        "noise": conditions.noise(kept),
        "left_out": conditions.left_out(runs, kept),
        "failures": _failures(runs),
        "large_batch": whole(own.large_batch),
    }


def _theirs(published: CellTimes) -> dict[str, str]:
    size = model_size("small_cnn", "mnist")
    return {
        "citation": ANWAR2021.citation,
        "published_parameters": MISSING if size is None else whole(size.parameter_count),
        "published_batches": listing([whole(batch) for batch in published.batches]),
        "published_delays": listing([delay_ms(delay_s) for delay_s in published.delays_s]),
        "published_large_batch": whole(published.large_batch),
    }


def _failures(runs: Sequence[StudyRun]) -> str:
    failed = sorted(
        {
            f"batch {whole(run.global_batch_size)} on {run.world_size}: {run.status}"
            for run in runs
            if run.status != OK
        }
    )
    if not failed:
        return ""
    return f"Without a time, which is a result as well: {listing(failed)}.\n\n"


def _findings(published: CellTimes, own: CellTimes) -> list[str]:
    verdicts = [
        (judge(one, values_of(published)[one.of]), judge(one, values_of(own)[one.of]))
        for one in ORDERINGS
    ]
    told = [(there.holds, here.holds) for there, here in verdicts if there.holds is not None]
    same = sum(there is here for there, here in told)
    open_count = sum(here is None for _, here in told)
    untold = f", and {open_count} cannot be told here" if open_count else ""
    return [
        f"**{same} of {len(told)} orderings of the study hold here as well**{untold}: see "
        "[below](#what-agrees).",
        *_trips(published, own),
        *_gains(published, own),
        *_fastest(published, own),
    ]


def _trips(published: CellTimes, own: CellTimes) -> list[str]:
    return [
        f"**With {size} machines a step waits for {trips_span(own, size)} round trips here, and "
        f"for {trips_span(published, size)} in the study**, by batch size. No overlap would make "
        f"it {2 * size - 1}."
        for size in own.world_sizes
        if size > 1 and MISSING not in (trips_span(own, size), trips_span(published, size))
    ]


def _gains(published: CellTimes, own: CellTimes) -> list[str]:
    """Say what the large batch gains by more machines, under no delay and the longest."""
    lines = []
    for source, who in ((own, "Here"), (published, "In the study")):
        batch = source.large_batch
        if batch is None:
            continue
        parts = []
        for delay_s in sorted({source.delays_s[0], source.delays_s[-1]}):
            found = source.fastest(batch, delay_s)
            if found is None or found.speedup is None:
                continue
            gain = (
                "one machine is the fastest"
                if found.world_size == 1
                else f"{found.world_size} machines are {significant(found.speedup)} times as fast "
                "as one"
            )
            if found.others:
                gain += f" (the intervals leave open {_open(found)})"
            parts.append(f"{gain} at {delay_ms(delay_s)} ms")
        if parts:
            lines.append(f"{who}, at batch {whole(batch)}, {listing(parts)}.")
    return lines


def _open(found: Fastest) -> str:
    """List the numbers of machines of which each may be the fastest."""
    return listing([str(size) for size in sorted((found.world_size, *found.others))])


def _fastest(published: CellTimes, own: CellTimes) -> list[str]:
    """Say in how many places one machine is the fastest."""
    counts = []
    for source in (own, published):
        found = [
            fastest
            for batch in source.batches
            for delay_s in source.delays_s
            if (fastest := source.fastest(batch, delay_s)) and fastest.speedup is not None
        ]
        alone = sum(one.world_size == 1 and not one.others for one in found)
        counts.append((alone, len(found)))
    if not all(total for _, total in counts):
        return []
    (ours, of_ours), (theirs, of_theirs) = counts
    return [
        f"One machine is clearly the fastest in {ours} of {of_ours} combinations of batch and "
        f"delay here ({percent(ours / of_ours)}), and in {theirs} of {of_theirs} of the study "
        f"({percent(theirs / of_theirs)})."
    ]


def _paired(published: CellTimes, own: CellTimes) -> str:
    pairs = paired_batches(published, own)
    return listing([f"{whole(theirs)} above {whole(ours)}" for theirs, ours in pairs])

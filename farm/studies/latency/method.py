"""What the latency study's page says of its machine, its noise and its limits."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from farm.measuring.study_run import StudyRun
from farm.studies import conditions
from farm.studies.latency.cells import Curve, Panel
from farm.studies.text import kb, percent, span


def method_texts(runs: Sequence[StudyRun], shown: Sequence[Panel]) -> dict[str, str]:
    """Return what the template's sentences on method and limits leave open, by name.

    `runs` are all of the study, `shown` what is left of them in one kind of hardware.
    """
    curves = [curve for panel in shown for curve in panel.curves]
    kept = [run for curve in curves for run in curve.runs]
    gradients = [run.gradient_bytes or 0 for run in kept if run.world_size > 1]
    return {
        "sharing": _sharing(curves),
        "machine": conditions.machine(kept),
        "counts": _counts(curves, kept),
        "round_trips": conditions.round_trips(kept),
        "noise": conditions.noise(kept),
        "left_out": conditions.left_out(runs, kept),
        "largest_gradients": kb(max(gradients, default=0)),
    }


def _sharing(curves: Sequence[Curve]) -> str:
    """Say which gangs had fewer cores than ranks."""
    crowded = {curve.world_size: curve for curve in curves if curve.ranks_on_a_core > 1}
    if not crowded:
        return "Every rank had a core of its own, so that they computed side by side."
    sentences = [
        f"{size} hosts shared {curve.core_count} {'core' if curve.core_count == 1 else 'cores'}: "
        f"{curve.ranks_on_a_core} of them took turns on one, so that the computing of a step takes "
        f"{curve.ranks_on_a_core}/{size} of what one host needs for it, where {size} machines "
        f"would need 1/{size}."
        for size, curve in sorted(crowded.items())
    ]
    sizes = {curve.world_size for curve in curves} - set(crowded) - {1}
    sentences += [f"{size} hosts had a core each." for size in sorted(sizes)]
    return " ".join(sentences)


def _counts(curves: Sequence[Curve], kept: Sequence[StudyRun]) -> str:
    points = [point for curve in curves for point in curve.points]
    steps = sorted({run.timed_step_count for run in kept if run.timed_step_count})
    text = (
        f"{len(kept)} runs of {len(points)} configurations, "
        f"each of {span(map(str, steps))} timed steps"
    )
    halves = [half for point in points if (half := point.half_width_ratio) is not None]
    if halves:
        middle, most = percent(statistics.median(halves)), percent(max(halves))
        text += (
            f"; half of the 95 % interval is {middle} of the median as a rule, and {most} at most"
        )
    return text

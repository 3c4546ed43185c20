"""What the latency study's page says of its machine, its noise and its limits."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from farm.core.measurement import OK
from farm.core.study_run import StudyRun
from farm.studies.latency_cells import Curve, Panel
from farm.studies.text import delay_ms, listing, ms, percent, significant, span


def method_texts(runs: Sequence[StudyRun], shown: Sequence[Panel]) -> dict[str, str]:
    """Return what the template's sentences on method and limits leave open, by name.

    `runs` are all of the study, `shown` what is left of them in one kind of hardware.
    """
    curves = [curve for panel in shown for curve in panel.curves]
    kept = [run for curve in curves for run in curve.runs]
    gradients = [run.gradient_bytes or 0 for run in kept if run.world_size > 1]
    return {
        "sharing": _sharing(curves),
        "machine": _machine(kept),
        "counts": _counts(curves, kept),
        "round_trips": _round_trips(curves),
        "noise": _noise(kept),
        "left_out": _left_out(runs, kept),
        "largest_gradients": significant(max(gradients, default=0) / 1000),
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


def _machine(kept: Sequence[StudyRun]) -> str:
    first = kept[0]
    dates = sorted(run.measured_at.date().isoformat() for run in kept)
    parts = [
        first.cpu_model or "a CPU without a name",
        f"{max(run.core_count for run in kept)} cores used",
        *([f"{first.memory_bytes / 2**30:.1f} GiB"] if first.memory_bytes else []),
        *(
            f"{name} {version}"
            for name, version in (
                ("Linux", first.kernel),
                ("Python", first.python_version),
                ("TensorFlow", first.tensorflow_version),
                ("Benchfarm", first.benchfarm_version),
            )
            if version
        ),
    ]
    return f"{', '.join(parts)}; measured {'on' if dates[0] == dates[-1] else 'from'} {span(dates)}"


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


def _round_trips(curves: Sequence[Curve]) -> str:
    by_delay: dict[float, list[float]] = {}
    for curve in curves:
        for run in curve.runs:
            if run.rtt_s is not None and curve.world_size > 1:
                by_delay.setdefault(run.one_way_delay_s, []).append(run.rtt_s)
    parts = [
        f"{span(map(ms, sorted(rtts_s)))} ms at {delay_ms(delay_s)} ms one way"
        for delay_s, rtts_s in sorted(by_delay.items())
    ]
    return listing(parts) if parts else "none was measured"


def _noise(kept: Sequence[StudyRun]) -> str:
    """Say how many runs were flagged, and by what; and how many were not the first attempt."""
    parts = []
    for size in sorted({run.world_size for run in kept if run.flags}):
        of_size = [run for run in kept if run.world_size == size]
        kinds = Counter(kind for run in of_size for kind in run.flags)
        named = ", ".join(f"`{kind}` {count}" for kind, count in kinds.most_common())
        flagged = sum(bool(run.flags) for run in of_size)
        hosts = "1 host" if size == 1 else f"{size} hosts"
        parts.append(f"{flagged} of {len(of_size)} runs of {hosts} ({named})")
    text = f"Flagged are {listing(parts)}." if parts else "None is flagged."
    if any(run.world_size > run.core_count and "foreign_load" in run.flags for run in kept):
        text += " Ranks that share a core take each other for a foreign load."
    repeated = sum(run.attempt_count > 1 for run in kept)
    if repeated:
        text += f" {repeated} runs are not their job's first attempt: the others were void or lost."
    return text


def _left_out(runs: Sequence[StudyRun], kept: Sequence[StudyRun]) -> str:
    failed = Counter(run.status for run in runs if run.status != OK)
    others = len(runs) - sum(failed.values()) - len(kept)
    parts = [f"{count} that ended as `{kind}`" for kind, count in failed.most_common()]
    if others:
        parts.append(f"{others} on other hardware or without a step time")
    return listing(parts) if parts else "none"

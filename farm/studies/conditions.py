"""What the pages of studies say of their machine, of noise, and of what was left out. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from farm.core.measurement import OK
from farm.core.study_run import StudyRun
from farm.errors import FarmError
from farm.studies.text import delay_ms, listing, ms, span


def refuse_other_work(found: Mapping[str, Iterable[object]], *, compares: str) -> None:
    """Refuse runs of several kinds of work, which the page's cells would pool unseen.

    `found`: by the name of what must be the same, what the runs have; `compares`: what and by what.

    Raises:
        FarmError: something has more than one value; it names them.
    """
    several = [
        f"{what} {', '.join(sorted(map(str, values)))}"
        for what, values in ((what, set(values)) for what, values in found.items())
        if len(values) > 1
    ]
    if several:
        raise FarmError(f"this page compares {compares}; got {'; '.join(several)}")


def epochs_of(runs: Iterable[StudyRun]) -> set[int | None]:
    """Return the numbers of epochs asked for; what failed does not tell."""
    return {run.epochs for run in runs if run.status == OK}


def machine(runs: Sequence[StudyRun]) -> str:
    """Name the machine, its software, and when it measured."""
    first = runs[0]
    dates = sorted(run.measured_at.date().isoformat() for run in runs)
    parts = [
        first.cpu_model or "a CPU without a name",
        f"{max(run.core_count for run in runs)} cores used",
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


def noise(runs: Sequence[StudyRun], *, of: str = "host") -> str:
    """Say how many runs were flagged, and by what; and how many were not the first attempt.

    `of`: what a rank has to itself in this study, such as a host.
    """
    parts = []
    for size in sorted({run.world_size for run in runs if run.flags}):
        of_size = [run for run in runs if run.world_size == size]
        kinds = Counter(kind for run in of_size for kind in run.flags)
        named = ", ".join(f"`{kind}` {count}" for kind, count in kinds.most_common())
        flagged = sum(bool(run.flags) for run in of_size)
        hosts = f"1 {of}" if size == 1 else f"{size} {of}s"
        parts.append(f"{flagged} of {len(of_size)} runs of {hosts} ({named})")
    text = f"Flagged are {listing(parts)}." if parts else "None is flagged."
    if any(run.world_size > run.core_count and "foreign_load" in run.flags for run in runs):
        text += " Ranks that share a core take each other for a foreign load."
    repeated = sum(run.attempt_count > 1 for run in runs)
    if repeated:
        text += f" {repeated} runs are not their job's first attempt: the others were void or lost."
    return text


def round_trips(runs: Sequence[StudyRun]) -> str:
    """Say which round trips were measured at each delay that was asked for."""
    by_delay: dict[float, list[float]] = {}
    for run in runs:
        if run.rtt_s is not None and (run.world_size > 1 or run.server_count):
            by_delay.setdefault(run.one_way_delay_s, []).append(run.rtt_s)
    parts = [
        f"{span(map(ms, sorted(rtts_s)))} ms at {delay_ms(delay_s)} ms one way"
        for delay_s, rtts_s in sorted(by_delay.items())
    ]
    return listing(parts) if parts else "none was measured"


def left_out(runs: Sequence[StudyRun], kept: Sequence[StudyRun]) -> str:
    """Say which runs the page does not rest on, and why."""
    failed = Counter(run.status for run in runs if run.status != OK)
    others = len(runs) - sum(failed.values()) - len(kept)
    parts = [f"{count} that ended as `{kind}`" for kind, count in failed.most_common()]
    if others:
        parts.append(f"{others} on other hardware or without a step time")
    return listing(parts) if parts else "none"

"""Writes what a study's page says of its findings, machine, noise and failures. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from farm.errors import FarmError
from farm.measuring.measurement import OK
from farm.measuring.study_run import RUN_AXES, StudyRun
from farm.studies.orderings import PlacedValues
from farm.studies.run_groups import RunGroup
from farm.studies.text import MISSING, delay_ms, kb, listing, ms, span, whole
from farm.text import display
from farm.text.plurals import counted

# What the runs of one configuration have in common.
_CONFIGURATION = (*(axis.field for axis in RUN_AXES), "framework", "epochs")
# Numbers in a claim that say what it is about; all others are what was measured.
_ABOUT = (
    r"(?:With|On|From|At|batch|batch of) \d[\d ]*|\d+ (?:hosts?|machines?|nodes?|process(?:es)?)\b"
    r"|\d+ of \d+ (?:orderings|combinations)|\d+ (?:hold|are the other)\b"
)
_NUMBERS = re.compile(rf"({_ABOUT})|\d(?:[\d .]*\d)?")

# What may have to be the same in all runs of a page: its column, and which runs tell it.
_WORK: Mapping[str, tuple[str, Callable[[StudyRun], bool]]] = {
    "model": ("model", lambda _: True),
    "data set": ("dataset", lambda _: True),
    "batch": ("global_batch_size", lambda _: True),
    "number of ranks": ("world_size", lambda _: True),
    "number of servers": ("server_count", lambda _: True),
    "place of the servers": ("server_placement", lambda _: True),
    "strategy of gangs": ("strategy", lambda run: run["world_size"] > 1),
    "delay": ("one_way_delay_s", lambda run: run["world_size"] > 1 or bool(run["server_count"])),
    "number of epochs": ("epochs", lambda run: run.status == OK),
}

Claims = Callable[[Sequence[StudyRun]], Sequence[str]]


def findings(runs: Sequence[StudyRun], claims: Claims) -> str:
    """Write what the runs show, leaving out what only the disturbed ones show.

    `claims` makes the sentences from runs. A claim stays where the undisturbed runs alone lead to
    the same one, numbers aside. Beside it stands how many of its runs were disturbed: those of the
    configurations without which it would be another.
    """
    made = claims(runs)
    quiet_runs = undisturbed(runs)
    if len(quiet_runs) == len(runs):
        return "\n".join(f"- {claim}" for claim in made)
    quiet = {_shape(claim): claim for claim in _claimed(claims, quiet_runs)}
    kept = [claim for claim in made if _shape(claim) in quiet]
    lines = [f"{disturbed(runs)} A finding is given only where the undisturbed runs alone show it."]
    if left_out := len(made) - len(kept):
        findings_are = "finding is" if left_out == 1 else "findings are"
        lines[0] += f" So {left_out} of {len(made)} {findings_are} left out."
    needed = _needed(kept, runs, claims, list(dict.fromkeys(map(_configuration, runs))))
    if kept:
        lines.append("")
    for claim in kept:
        behind = [run for run in runs if _configuration(run) in needed[claim]]
        count = sum(bool(run.flags) for run in behind)
        note = f" *({count} of the {len(behind)} runs behind it were disturbed" if count else ""
        if count and quiet[_shape(claim)] != claim:
            note += f"; the undisturbed ones alone: {quiet[_shape(claim)]}"
        lines.append(f"- {claim}{note}{')*' if note else ''}")
    return "\n".join(lines)


def disturbed(runs: Sequence[StudyRun]) -> str:
    """Say in one sentence how many runs something disturbed, and what, the most frequent first."""
    count = sum(bool(run.flags) for run in runs)
    if not count:
        return "None of the runs was disturbed."
    kinds = Counter(kind for run in runs for kind in run.flags)
    named = listing([f"`{kind}` {of_kind}" for kind, of_kind in kinds.most_common()])
    return f"**{count} of {len(runs)} runs were disturbed**: {named}."


def verdicts_rest_on(runs: Sequence[StudyRun]) -> str:
    """Say the same above a table of verdicts, which are those of `undisturbed` runs."""
    also = " This table rests on the undisturbed runs alone."
    return disturbed(runs) + (also if any(run.flags for run in runs) else "")


def undisturbed(runs: Sequence[StudyRun]) -> list[StudyRun]:
    """Return the runs that nothing disturbed."""
    return [run for run in runs if not run.flags]


def of_undisturbed(
    runs: Sequence[StudyRun], values: Callable[[Sequence[StudyRun]], PlacedValues]
) -> PlacedValues:
    """Return what claims are held against; nothing where too few undisturbed runs are left."""
    try:
        return values(undisturbed(runs))
    except FarmError:
        return {}


def _claimed(claims: Claims, runs: Sequence[StudyRun]) -> Sequence[str]:
    try:
        return claims(runs)
    except FarmError:  # nothing is left to make a page of
        return ()


def _needed(
    kept: Sequence[str],
    runs: Sequence[StudyRun],
    claims: Claims,
    among: Sequence[tuple[object, ...]],
) -> dict[str, set[tuple[object, ...]]]:
    """Return for each claim the configurations without which it would not be made.

    Half of the configurations at a time is left out, and halves again of those that matter.
    """
    found: dict[str, set[tuple[object, ...]]] = {claim: set() for claim in kept}
    if not kept:
        return found
    left = set(_claimed(claims, [run for run in runs if _configuration(run) not in among]))
    changed = [claim for claim in kept if claim not in left]
    if len(among) == 1:
        return found | {claim: set(among) for claim in changed}
    half = len(among) // 2
    for part in (among[:half], among[half:]):
        for claim, needed in _needed(changed, runs, claims, part).items():
            found[claim] |= needed
    return found


def _configuration(run: StudyRun) -> tuple[object, ...]:
    return tuple(run[name] for name in _CONFIGURATION)


def _shape(claim: str) -> str:
    return _NUMBERS.sub(lambda found: found[1] or "#", claim).replace("**", "")


def refuse_other_work(runs: Iterable[StudyRun], *work: str, compares: str) -> None:
    """Refuse runs of different work, which the page would mix up in one cell.

    `work`: names of what must be the same, of `_WORK`; `compares`: what and by what.

    Raises:
        FarmError: something has more than one value; it names them.
    """
    several = []
    for what in work:
        column, tells = _WORK[what]
        values = {str(run[column]) for run in runs if tells(run)}
        if len(values) > 1:
            several.append(f"{what} {', '.join(sorted(values))}")
    if several:
        raise FarmError(f"this page compares {compares}; got {'; '.join(several)}")


def texts(
    runs: Sequence[StudyRun],
    kept: Sequence[StudyRun],
    groups: Sequence[RunGroup],
    *,
    of: str = "host",
) -> dict[str, str]:
    """Return what every page may say of its runs, by the name that `page.md` has for it.

    `kept`: the runs that the page rests on, in their `groups`. `of`: what a rank has to itself in
    this study, such as a host.
    """
    first = kept[0]
    steps = sorted({run["timed_step_count"] for run in kept if run["timed_step_count"]})
    frameworks = sorted({run.framework for run in kept if run.framework})
    batches = sorted({run["global_batch_size"] for run in kept})
    return {
        "model": first["model"] or MISSING,
        "dataset": first["dataset"] or MISSING,
        "gradients": kb(max(run.gradient_bytes or 0 for run in kept)),
        "epochs": counted(first["epochs"], "epoch") if first["epochs"] else f"{MISSING} epochs",
        "batches": listing([whole(batch) for batch in batches]),
        "delays": listing([delay_ms(s) for s in sorted({run["one_way_delay_s"] for run in kept})]),
        "world_sizes": listing([str(size) for size in sorted({run["world_size"] for run in kept})]),
        "frameworks": listing(frameworks) if frameworks else MISSING,
        "runs": str(len(kept)),
        "repetitions": span(map(str, sorted(len(group.runs) for group in groups))),
        "steps": span(map(str, steps)),
        "cores": str(max(run.core_count for run in kept)),
        "machine": machine(kept),
        "round_trips": round_trips(kept),
        "noise": noise(kept, of=of),
        "disturbed": disturbed(kept),
        "verdicts_rest_on": verdicts_rest_on(kept),
        "left_out": left_out(runs, kept),
    }


def machine(runs: Sequence[StudyRun]) -> str:
    """Name the machine, its software, and when it measured."""
    first = runs[0]
    dates = sorted(run.measured_at.date().isoformat() for run in runs)
    parts = [
        first.cpu_model or "a CPU without a name",
        f"{max(run.core_count for run in runs)} cores used",
        *([display.plain(display.byte_count(first.memory_bytes))] if first.memory_bytes else []),
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


def noise(runs: Sequence[StudyRun], *, of: str) -> str:
    """Say how many runs were flagged, and by what; and how many were not the first attempt."""
    parts = []
    for size in sorted({run["world_size"] for run in runs if run.flags}):
        of_size = [run for run in runs if run["world_size"] == size]
        kinds = Counter(kind for run in of_size for kind in run.flags)
        named = ", ".join(f"`{kind}` {count}" for kind, count in kinds.most_common())
        flagged = sum(bool(run.flags) for run in of_size)
        parts.append(f"{flagged} of {len(of_size)} runs of {counted(size, of)} ({named})")
    text = f"Flagged are {listing(parts)}." if parts else "None is flagged."
    if any(run["world_size"] > run.core_count and "foreign_load" in run.flags for run in runs):
        text += " Ranks that share a core take each other for a foreign load."
    repeated = sum(run.attempt_count > 1 for run in runs)
    if repeated:
        text += f" {repeated} runs are not their job's first attempt: the others were void or lost."
    return text


def round_trips(runs: Sequence[StudyRun]) -> str:
    """Say which round trips were measured at each delay that was asked for."""
    by_delay: dict[float, list[float]] = {}
    for run in runs:
        if run.rtt_s is not None and (run["world_size"] > 1 or run["server_count"]):
            by_delay.setdefault(run["one_way_delay_s"], []).append(run.rtt_s)
    parts = [
        f"{span(map(ms, sorted(rtts_s)))} ms at {delay_ms(delay_s)} ms one way"
        for delay_s, rtts_s in sorted(by_delay.items())
    ]
    return listing(parts) if parts else "none was measured"


def failures(runs: Sequence[StudyRun], name: Callable[[StudyRun], str]) -> str:
    """Name the configurations that failed, and how; "" where none has."""
    failed = sorted({f"{name(run)}: {run.status}" for run in runs if run.status != OK})
    return listing(failed) if failed else ""


def left_out(runs: Sequence[StudyRun], kept: Sequence[StudyRun]) -> str:
    """Say which runs the page does not rest on, and why."""
    failed = Counter(run.status for run in runs if run.status != OK)
    others = len(runs) - sum(failed.values()) - len(kept)
    parts = [f"{count} that ended as `{kind}`" for kind, count in failed.most_common()]
    if others:
        parts.append(f"{others} on other hardware or without a step time")
    return listing(parts) if parts else "none"

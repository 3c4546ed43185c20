"""What the servers study's page says in sentences: each is made from the numbers it speaks of."""

from __future__ import annotations

import statistics

from farm.studies.pairs import differences, ratios
from farm.studies.run_groups import RunGroup, study_interval
from farm.studies.servers.lines import ASYNC, NAMES, SYNC, ServerLines
from farm.studies.servers.tables import share
from farm.studies.text import delay_ms, listing, percent, significant, span


def findings(lines: ServerLines) -> list[str]:
    """Return one line for each that the runs tell."""
    return [*_growths(lines), *_waiting(lines), *_idleness(lines), *_accuracies(lines)]


def _growths(lines: ServerLines) -> list[str]:
    """How much longer a step becomes by the way, from the nearest to the farthest."""
    parts = []
    for strategy, line in lines.gangs.items():
        near, far = line[0], line[-1]
        near_s, far_s = near.median_of("step_time_s"), far.median_of("step_time_s")
        apart_s = far.first.one_way_delay_s - near.first.one_way_delay_s
        if near_s is None or far_s is None or apart_s <= 0:
            continue
        growth = (far_s - near_s) / apart_s
        parts.append(
            f"{significant(growth)} ms, which is {growth / 2:.1f} round trips, with `{strategy}`"
        )
    if not parts:
        return []
    return [f"Each millisecond of one-way delay makes a step longer by {listing(parts)}."]


def _waiting(lines: ServerLines) -> list[str]:
    """Whether waiting for the slowest can be told from not waiting, by delay."""
    by_verdict: dict[str, list[str]] = {}
    for delay_s, values in lines.waiting_ratios.items():
        interval = study_interval(values)
        middle = statistics.median(values)
        if interval is None or interval.low_s <= 1 <= interval.high_s:
            verdict = "as long as an asynchronous one within what repetitions differ by"
        elif middle > 1:
            verdict = "longer than an asynchronous one"
        else:
            verdict = "shorter than an asynchronous one"
        by_verdict.setdefault(verdict, []).append(f"{middle:.2f} times at {delay_ms(delay_s)} ms")
    return [
        f"A synchronous step is {verdict}: {listing(parts)} one way, by the ratios of runs with"
        " the same seed."
        for verdict, parts in by_verdict.items()
    ]


def _idleness(lines: ServerLines) -> list[str]:
    parts = []
    for delay_s in dict.fromkeys((lines.delays_s[0], lines.delays_s[-1])):
        known = [
            f"{share(idle)} with `{strategy}`"
            for strategy in lines.gangs
            if (point := lines.at(strategy, delay_s))
            and (idle := point.median_of("idle_ratio")) is not None
        ]
        if known:
            parts.append(f"at {delay_ms(delay_s)} ms one way {listing(known)}")
    return [f"Of a step a rank is idle {'; '.join(parts)}."] if parts else []


def _accuracies(lines: ServerLines) -> list[str]:
    text = []
    medians = {
        strategy: [value for point in line if (value := point.median_of("accuracy")) is not None]
        for strategy, line in lines.gangs.items()
    }
    parts = [
        f"{span(map(percent, sorted(values)))} with `{strategy}`"
        for strategy, values in medians.items()
        if values
    ]
    if parts:
        text.append(f"From the same examples the accuracy is {listing(parts)}, by delay.")
    for strategy in (SYNC, ASYNC):
        alone = lines.alone_like(strategy)
        line = lines.gangs.get(strategy, ())
        accuracy = alone.median_of("accuracy") if alone else None
        if alone is None or accuracy is None or not medians.get(strategy):
            continue
        text.append(
            f"One machine with as large updates ({alone.first.global_batch_size} examples) reaches"
            f" {percent(accuracy)}; of the same seed {_most_apart(line, alone)} away from it is the"
            f" farthest {NAMES[strategy]} run."
        )
    text += _duels(lines)
    late = [v for p in lines.gangs.get(ASYNC, ()) if (v := p.mean_of("staleness_mean")) is not None]
    if late:
        text.append(
            "Between an asynchronous rank's reading of the weights and its update come"
            f" {span(significant(value) for value in sorted(late))} updates of the other ranks,"
            " on average, by delay."
        )
    return text


def _duels(lines: ServerLines) -> list[str]:
    """Count who is more accurate, seed by seed and delay by delay: three seeds tell no more."""
    quotients = [
        quotient
        for delay_s in lines.delays_s
        if (sync := lines.at(SYNC, delay_s)) and (other := lines.at(ASYNC, delay_s))
        for quotient in ratios(other, sync, "accuracy")
    ]
    if not quotients:
        return []
    ahead, behind = sum(q > 1 for q in quotients), sum(q < 1 for q in quotients)
    return [
        f"In {len(quotients)} pairs of runs with the same seed and delay the asynchronous one is"
        f" the more accurate {ahead} times, and the synchronous one {behind} times."
    ]


def _most_apart(line: tuple[RunGroup, ...], alone: RunGroup) -> str:
    """Write the largest difference between runs of the same seed, in points of accuracy."""
    apart = [value for point in line for value in differences(point, alone, "accuracy")]
    return f"{max(apart, default=0.0) * 100:.1f} points"

"""The latency study's tables, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from farm.lab.wirefilter import MAX_BANDWIDTH_BYTES_PER_S
from farm.studies.latency.cells import Curve, Panel, worth_it_up_to_s
from farm.studies.text import MISSING, delay_ms, kb, ms, percent, significant, span, table

_PROFILED = (("0", "rank_0_compute_s"), ("others", "other_ranks_compute_s"))


def fits_table(shown: Sequence[Panel]) -> str:
    """The fitted lines: a, r, and up to which delay the gang beats one host."""
    rows = []
    for panel in shown:
        for curve in panel.gangs:
            fit = curve.fit
            if fit is None:
                continue
            upto_s = worth_it_up_to_s(curve, panel.alone) if panel.alone else None
            rows.append(
                [
                    *_names(curve),
                    f"{ms(fit.intercept)} ({ms(fit.intercept_low)} to {ms(fit.intercept_high)})",
                    f"{fit.slope:.2f} ({fit.slope_low:.2f} to {fit.slope_high:.2f})",
                    str(curve.serial_trips),
                    percent(curve.bend_ratio),
                    str(fit.count),
                    ms(panel.alone.points[0].step_time_s) if panel.alone else MISSING,
                    "never" if upto_s is None else ms(upto_s),
                ]
            )
    titles = ("a (ms)", "r", "2 n - 1", "bend", "runs", "one host (ms)", "pays up to (ms)")
    return table(["model", "batch", "hosts", *titles], rows)


def traffic_table(shown: Sequence[Panel]) -> str:
    """Bytes that one rank sends for a step, against the least that a ring must."""
    rows = []
    for curve in (c for panel in shown for c in panel.gangs):
        expected = curve.expected_bytes_per_step
        sent, wire = curve.mean_of("sent_bytes_per_step"), curve.mean_of("wire_bytes_per_step")
        if not expected:
            continue
        rows.append(
            [
                *_names(curve),
                kb(max(run.gradient_bytes or 0 for run in curve.runs)),
                kb(expected),
                kb(sent),
                MISSING if sent is None else percent(sent / expected - 1, is_signed=True),
                kb(wire),
                MISSING if wire is None else percent(wire / expected - 1, is_signed=True),
            ]
        )
    titles = ("gradients (kB)", "theory (kB)", "sent (kB)", "", "on the wire (kB)", "")
    return table(["model", "batch", "hosts", *titles], rows)


def shares_table(shown: Sequence[Panel]) -> str:
    """What a consists of: computing on shared cores, the wire, and the rest."""
    rows = []
    for panel in shown:
        for curve in panel.gangs:
            if curve.fit is None or panel.alone is None:
                continue
            share = curve.ranks_on_a_core / curve.world_size
            computing_s = panel.alone.points[0].step_time_s * share
            wire = curve.mean_of("wire_bytes_per_step")
            wire_s = None if wire is None else wire / MAX_BANDWIDTH_BYTES_PER_S
            rest_s = curve.fit.intercept - computing_s - (wire_s or 0.0)
            rows.append(
                [
                    *_names(curve),
                    str(curve.core_count),
                    f"{curve.ranks_on_a_core}/{curve.world_size}",
                    ms(computing_s),
                    ms(wire_s),
                    ms(rest_s),
                    ms(curve.fit.intercept),
                ]
            )
    titles = ("cores", "share", "computing (ms)", "wire (ms)", "rest (ms)", "a (ms)")
    return table(["model", "batch", "hosts", *titles], rows)


def profile_table(shown: Sequence[Panel]) -> str:
    """What ranks spend outside of collectives, by delay: the first, and the others."""
    curves = [c for panel in shown for c in panel.gangs]
    delays_s = sorted({p.one_way_delay_s for c in curves for p in c.points})
    rows = []
    for curve in curves:
        for who, column in _PROFILED:
            known = {p.one_way_delay_s: getattr(p, column) for p in curve.points}
            rows.append([*_names(curve), who, *(ms(known.get(delay_s)) for delay_s in delays_s)])
    titles = [f"{delay_ms(delay_s)} ms" for delay_s in delays_s]
    text = table(["model", "batch", "hosts", "rank", *titles], rows)
    grown = {who: _growths(curves, column) for who, column in _PROFILED}
    if all(grown.values()):
        trips = {who: [f"{ratio:.2f}" for ratio in grown[who]] for who in grown}
        text += (
            f"\n\nFor each millisecond of round trip rank 0 spends {span(trips['0'])} ms more "
            f"there, and the others {span(trips['others'])} ms."
        )
    return text


def _growths(curves: Sequence[Curve], column: str) -> list[float]:
    """Return, from the shortest to the longest delay, the growth of a time over that of the RTT."""
    found = []
    for curve in curves:
        near, far = curve.points[0], curve.points[-1]
        low, high = getattr(near, column), getattr(far, column)
        if near is far or None in (low, high) or near.rtt_s is None or far.rtt_s is None:
            continue
        found.append((high - low) / (far.rtt_s - near.rtt_s))
    return sorted(found)


def configurations_table(shown: Sequence[Panel]) -> str:
    """Every configuration with its median, its interval and its runs."""
    rows = []
    for curve in (c for panel in shown for c in panel.curves):
        for point in curve.points:
            flagged = sum(bool(run.flags) for run in point.runs)
            rows.append(
                [
                    *_names(curve),
                    delay_ms(point.one_way_delay_s) if curve.world_size > 1 else MISSING,
                    ms(point.rtt_s),
                    f"{ms(point.step_time_s)} ± {percent(point.half_width_ratio)}",
                    significant(point.step_time_s * point.steps_per_epoch),
                    str(len(point.runs)),
                    str(flagged),
                ]
            )
    titles = ("delay (ms)", "RTT (ms)", "step time (ms)", "epoch (s)", "runs", "flagged")
    return table(["model", "batch", "hosts", *titles], rows)


def _names(curve: Curve) -> list[str]:
    return [f"`{curve.model}`", str(curve.global_batch_size), str(curve.world_size)]

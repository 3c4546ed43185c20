"""The result of an agent that trained several ranks, from theirs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from farm.errors import InvalidSpec
from farm.messages.trainer_lines import SCRIPT_TIMES, Exchange, TrainerResult
from farm.statistics import mean
from farm.values.codec import to_json


def result_of_ranks(
    results: Sequence[TrainerResult], *, is_synchronous: bool = True
) -> TrainerResult:
    """Return the first rank's, with the mean payload of all ranks and their memory together.

    `is_synchronous`: an update is one of all ranks; otherwise theirs are added up.
    Where ranks exchange unequal amounts, such as by way of rank 0, the first is not as the others.
    So it is where a script's examples are shared unevenly: theirs are added up, and their times
    are means. Nothing is told that one of them does not know.
    """
    first, *others = results
    if not others:
        return first
    return dataclasses.replace(
        first,
        payload_rx_bytes=_mean_bytes([one.payload_rx_bytes for one in results]),
        payload_tx_bytes=_mean_bytes([one.payload_tx_bytes for one in results]),
        peak_resident_bytes=sum(one.peak_resident_bytes for one in results),
        data_wait_s=_mean_of_known([one.data_wait_s for one in results]),
        exchange=first.exchange if is_synchronous else _exchange_of_all(results),
        details={**first.details, **_script_times(results)},
    )


def _script_times(results: Sequence[TrainerResult]) -> dict[str, object]:
    """Return what the scripts told, as a result's details have it; empty: they are none."""
    try:
        told = [one.script_times for one in results]
    except InvalidSpec:
        return {}  # the server says so of the first
    first = told[0]
    if first is None:
        return {}
    counts = [None if one is None else one.examples_count for one in told]
    waits_s = [None if one is None else one.data_wait_s for one in told]
    pauses_s = [one.pause_s for one in told if one is not None]
    times = dataclasses.replace(
        first,
        pause_s=math.fsum(pauses_s) / len(pauses_s),
        data_wait_s=_mean_of_known(waits_s),
        examples_count=None if None in counts else sum(filter(None, counts)),
    )
    return {SCRIPT_TIMES: to_json(times)}


def _exchange_of_all(results: Sequence[TrainerResult]) -> Exchange | None:
    """Return what ranks counted that keep weights of their own; None where one has not."""
    exchanges = [one.exchange for one in results]
    counts = [one.update_count for one in exchanges if one is not None]
    first = exchanges[0]
    if first is None or len(counts) < len(exchanges):
        return None
    return dataclasses.replace(first, update_count=sum(counts))


def _mean_bytes(counts: Sequence[int | None]) -> int | None:
    value = _mean_of_known(counts)
    return None if value is None else round(value)


def _mean_of_known(values: Sequence[float | None]) -> float | None:
    """Return the mean; None where a rank does not know its value."""
    return None if None in values else mean(values)

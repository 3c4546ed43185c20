"""The result of an agent that trained several ranks, from theirs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from farm.messages.trainer_lines import TrainerResult
from farm.statistics.means import mean


def result_of_ranks(results: Sequence[TrainerResult]) -> TrainerResult:
    """Return the first rank's, with the mean payload of all ranks and their memory together.

    Where ranks exchange unequal amounts, such as by way of rank 0, the first is not as the others.
    No payload is told unless all of them counted theirs.
    """
    first, *others = results
    if not others:
        return first
    return dataclasses.replace(
        first,
        payload_rx_bytes=_mean_bytes([one.payload_rx_bytes for one in results]),
        payload_tx_bytes=_mean_bytes([one.payload_tx_bytes for one in results]),
        peak_resident_bytes=sum(one.peak_resident_bytes for one in results),
    )


def _mean_bytes(counts: Sequence[int | None]) -> int | None:
    value = None if None in counts else mean(counts)
    return None if value is None else round(value)

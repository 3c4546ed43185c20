"""Messages and bytes of an all-reduce."""

from __future__ import annotations

from farm.configuration.catalogue import GangShape, Traffic


def ring_all_reduce(rank_count: int, summed_bytes: float) -> Traffic:
    """Return what one of n ranks sends to sum b bytes around a ring.

    2(n-1) messages, one in each phase of scatter-reduce and all-gather, together 2(n-1)/n x b
    bytes, which no all-reduce can undercut (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce
    algorithms for clusters of workstations").
    """
    messages = 2 * (rank_count - 1)
    return Traffic(messages=messages, bytes=messages / rank_count * summed_bytes)


def periodic_all_reduce(gang: GangShape, summed_bytes: float) -> Traffic:
    """Return the mean over steps of a ring all-reduce in every k-th, k = steps_between_averages."""
    ring = ring_all_reduce(gang.world_size, summed_bytes)
    step_count = gang.steps_between_averages
    return Traffic(
        messages=ring.messages / step_count, bytes=ring.bytes / step_count, period=step_count
    )

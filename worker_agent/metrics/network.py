"""Bytes that the kernel received and sent on the gang's interface, everyone's together."""

from __future__ import annotations

import logging

import psutil

from worker_agent.metrics.contracts import Watched
from worker_agent.metrics.rates import Rates

logger = logging.getLogger(__name__)


def create(watched: Watched) -> NetworkMetric | None:
    return NetworkMetric(watched.interface)


class NetworkMetric:
    def __init__(self, interface: str) -> None:
        self._interface = interface
        self._rates = Rates()

    def read(self, tick: int) -> dict[str, float | None]:
        """Read the counters; without the interface both are None until it is back."""
        # psutil would hide a reset of the counters as if they had wrapped.
        counters = psutil.net_io_counters(pernic=True, nowrap=False).get(self._interface)
        if counters is None:
            return {"net_rx_bytes_per_s": None, "net_tx_bytes_per_s": None}
        return self._rates.update(
            tick,
            {
                "net_rx_bytes_per_s": counters.bytes_recv,
                "net_tx_bytes_per_s": counters.bytes_sent,
            },
        )

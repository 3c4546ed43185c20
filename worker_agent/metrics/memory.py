"""Memory of the whole machine that is not available to a new process."""

from __future__ import annotations

import psutil

from worker_agent.metrics.contracts import Watched


def create(watched: Watched) -> MemoryMetric | None:
    return MemoryMetric()


class MemoryMetric:
    def read(self, tick: int) -> dict[str, int | None]:
        memory = psutil.virtual_memory()
        return {"memory_used_bytes": memory.total - memory.available}

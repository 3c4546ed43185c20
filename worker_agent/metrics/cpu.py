"""Load of the agent's cores, and the time that the hypervisor took from them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from farm.measuring.noise import INTERRUPT_EXTRA
from worker_agent.metrics.contracts import Watched
from worker_agent.metrics.rates import Rates

PROC_STAT = Path("/proc/stat")


def create(watched: Watched) -> CpuMetric | None:
    return CpuMetric(watched.cpus)


class CpuMetric:
    def __init__(self, cpus: tuple[int, ...]) -> None:
        self._cpus = frozenset(cpus)
        self._rates = Rates()

    def read(self, tick: int) -> dict[str, float | None]:
        """Read /proc/stat: shares of the time that the kernel itself accounted for."""
        rates = self._rates.update(tick, parse_stat(PROC_STAT.read_text(), self._cpus))
        return {
            "machine_cpu_ratio": _share(rates["busy"], rates["total"]),
            "machine_steal_ratio": _share(rates["steal"], rates["total"]),
            INTERRUPT_EXTRA: _share(rates["interrupt"], rates["total"]),
        }


def parse_stat(text: str, cpus: Collection[int]) -> dict[str, int]:
    """Sum the clock ticks of `cpus` since boot: busy, in interrupts, stolen, and all of them."""
    busy = interrupt = steal = total = 0
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        if not (name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cpus):
            continue
        # user nice system idle iowait irq softirq steal; what follows is contained in user.
        fields = [int(field) for field in rest.split()[:8]]
        total += sum(fields)
        steal += fields[7]
        interrupt += fields[5] + fields[6]
        busy += sum(fields) - fields[3] - fields[4] - fields[7]
    return {"busy": busy, "interrupt": interrupt, "steal": steal, "total": total}


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None

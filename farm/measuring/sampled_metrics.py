"""The metrics of samples that charts show second by second, declared in SAMPLED."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from farm.measuring.noise import NoiseLimits
from farm.sampling.names import cpu_extra, resident_extra
from farm.text.display import byte_count, byte_rate, percent

_LIMITS = NoiseLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledMetric:
    """One metric.

    - `name`: its column of samples, which ends with its unit
    - `title`: of its chart; `role_title`: of its chart by role, empty: there is none
    - `unit`: of a value; empty: it is a share
    - `write`: a value for people
    - `role_extra`: the extra that has the same of the processes of a role, by the role's name
    - `limit`: of what disturbs a rank, what flags a measurement when it lasts: a second below it is
      not drawn. None: the metric is always drawn
    - `is_stored`: samples have a column of it; else it is computed from others
    """

    name: str
    title: str
    write: Callable[[float | None], str]
    unit: str = ""
    role_title: str = ""
    role_extra: Callable[[str], str] | None = None
    limit: float | None = None
    is_stored: bool = True


FOREIGN_LOAD = SampledMetric(
    name="foreign_load_ratio",
    title="Used by other programs",
    write=percent,
    limit=_LIMITS.foreign_load_ratio.flag,
    is_stored=False,
)
# In the order in which a page has their charts.
SAMPLED: tuple[SampledMetric, ...] = (
    SampledMetric(
        name="cpu_ratio",
        title="CPU of the trainers",
        role_title="CPU by role",
        role_extra=cpu_extra,
        write=percent,
    ),
    SampledMetric(
        name="resident_bytes",
        title="Memory of the trainers",
        role_title="Memory by role",
        role_extra=resident_extra,
        unit="B",
        write=byte_count,
    ),
    SampledMetric(
        name="net_rx_bytes_per_s",
        title="Received",
        role_title="Received by role",
        unit="B/s",
        write=byte_rate,
    ),
    SampledMetric(
        name="net_tx_bytes_per_s",
        title="Sent",
        role_title="Sent by role",
        unit="B/s",
        write=byte_rate,
    ),
    SampledMetric(
        name="machine_steal_ratio",
        title="Stolen by the hypervisor",
        write=percent,
        limit=_LIMITS.steal_ratio.flag,
    ),
    FOREIGN_LOAD,
    SampledMetric(
        name="throttled_ratio",
        title="Held back by a CPU quota",
        write=percent,
        limit=_LIMITS.throttled_ratio.flag,
    ),
    SampledMetric(
        name="swap_bytes_per_s",
        title="To and from swap",
        unit="B/s",
        write=byte_rate,
        limit=_LIMITS.swap_bytes_per_s.flag,
    ),
)
# What a rank uses, and what disturbs it.
USED = tuple(metric for metric in SAMPLED if metric.limit is None)
DISTURBING = tuple(metric for metric in SAMPLED if metric.limit is not None)
USED_BY_ROLE = tuple(metric for metric in USED if metric.role_title)

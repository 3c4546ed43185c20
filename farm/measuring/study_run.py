"""One measured job of a study, and the columns of a study's data file."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from farm.configuration.axes import AXES
from farm.measuring.quantities import QUANTITIES
from farm.values.fields import did_you_mean

# In the order of the file: axes by their field, quantities by their name, and fields of `StudyRun`.
# Older files lack the last columns, but no file lacks one of FIRST_COLUMNS.
FIRST_COLUMNS = (
    *("job_id", "measured_at", "status"),
    *("model", "dataset", "strategy", "world_size", "global_batch_size", "one_way_delay_s"),
    *("repetition", "attempt_count"),
    *("step_time_s", "timed_step_count", "steps_per_epoch", "time_per_epoch_s"),
    *("rtt_s", "gradient_bytes", "parameter_count", "sent_bytes_per_step", "wire_bytes_per_step"),
    *("rank_0_compute_s", "other_ranks_compute_s", "cpu_ratio", "control_ratio"),
    *("flags", "network", "core_count", "fingerprint", "cpu_model", "memory_bytes", "kernel"),
    *("tensorflow_version", "python_version", "benchfarm_version"),
)
COLUMNS = (
    *FIRST_COLUMNS,
    *("framework", "server_count", "server_placement", "replicas_per_rank"),
    *("steps_between_averages", "epochs", "accuracy", "received_bytes_per_step", "idle_ratio"),
    *("push_s", "pull_s", "update_count", "staleness_mean", "staleness_max"),
    *("throughput_examples_per_s", "training_loss", "test_loss"),
    *("resident_bytes", "net_rx_bytes_per_s", "net_tx_bytes_per_s"),
    *("server_cpu_ratio", "server_resident_bytes"),
    *("server_rx_bytes_per_s", "server_tx_bytes_per_s"),
    *("training_pass", "worker_resident_bytes", "largest_wire_bytes_per_step"),
)
RUN_AXES = tuple(axis for axis in AXES if axis.field in COLUMNS)
RUN_QUANTITIES = tuple(one for one in QUANTITIES if one.name in COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRun:
    """A configuration and its measurement; `run["step_time_s"]` is one of COLUMNS.

    `values`: of RUN_AXES by field, and of RUN_QUANTITIES by name. Of these `cpu_ratio` and
    `resident_bytes` are those of the ranks that train; where servers run beside them,
    `resident_bytes` is that of both together, `worker_resident_bytes` and `server_resident_bytes`
    of either.

    `status` is "ok", or the kind of failure that is this configuration's result. `attempt_count`:
    how many the job took; all but the last were void or lost. `flags`: the kinds of what disturbed
    it. `core_count`: distinct cores that the gang's agents had together; fewer than `world_size`
    where hosts shared them. `network`: of the agents, or what emulated it.

    `rtt_s` is the largest measured between two ranks. `sent_bytes_per_step` is the payload of one
    rank's own connections, `wire_bytes_per_step` all that left its interface, headers and what was
    sent again too, and `largest_wire_bytes_per_step` that of the rank that sends most, of those
    that train. `rank_0_compute_s` is what of a profiled step rank 0 spent outside of collectives,
    `other_ranks_compute_s` the mean of the others'. `training_loss` and `test_loss` are rank 0's
    at the end. `server_...` are means over the ranks that only serve.
    """

    values: Mapping[str, Any]
    job_id: int
    measured_at: dt.datetime
    status: str
    repetition: int
    attempt_count: int
    flags: tuple[str, ...]
    core_count: int
    network: str | None
    fingerprint: str | None
    cpu_model: str | None
    memory_bytes: int | None
    kernel: str | None
    tensorflow_version: str | None
    python_version: str | None
    benchfarm_version: str | None
    framework: str | None = None
    gradient_bytes: int | None
    parameter_count: int | None
    rtt_s: float | None
    wire_bytes_per_step: float | None
    largest_wire_bytes_per_step: float | None = None
    rank_0_compute_s: float | None
    other_ranks_compute_s: float | None
    control_ratio: float | None
    training_loss: float | None = None
    test_loss: float | None = None
    worker_resident_bytes: int | None = None
    server_resident_bytes: int | None = None
    server_cpu_ratio: float | None = None
    server_rx_bytes_per_s: float | None = None
    server_tx_bytes_per_s: float | None = None

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> StudyRun:
        """Make a run of the values of columns, those of FIRST_COLUMNS at least.

        Without a value an axis is as in jobs from before it, and a quantity is not known.
        """
        values = {axis.field: columns.get(axis.field, axis.value_in({})) for axis in RUN_AXES}
        values |= {one.name: columns.get(one.name) for one in RUN_QUANTITIES}
        own = {column: value for column, value in columns.items() if column not in values}
        return cls(values=values, **own)

    def __getitem__(self, column: str) -> Any:
        """Return the value of a column.

        Raises:
            KeyError: there is no such column.
        """
        if column in self.values:
            return self.values[column]
        if column in COLUMNS:
            return getattr(self, column)
        hint = did_you_mean(column, COLUMNS)
        raise KeyError(f"a run of a study has no column '{column}'{hint}")

"""One measured job of a study, with the values that the study's page shows."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRun:
    """The columns of a study's data file, in their order.

    `status` is "ok", or the kind of failure that is this configuration's result. `attempt_count`:
    how many the job took; all but the last were void or lost. `core_count`: distinct cores that
    the gang's agents had together; fewer than `world_size` where hosts shared them. `rtt_s` is
    the largest measured between two ranks. `sent_bytes_per_step` is the payload of one rank's own
    connections, `wire_bytes_per_step` all that left its interface, headers and what was sent
    again too. `rank_0_compute_s` is what of a profiled step rank 0 spent outside of collectives,
    `other_ranks_compute_s` the mean of the others'. `flags`: the kinds of what disturbed it.

    `training_loss` and `test_loss` are rank 0's at the end. `cpu_ratio` and `resident_bytes` are
    those of the ranks that train; `server_...` of the ranks that only serve, on average over them.
    Where servers run beside ranks that train, `resident_bytes` is that of both together,
    `worker_resident_bytes` and `server_resident_bytes` of either. `largest_wire_bytes_per_step` is
    `wire_bytes_per_step` of the rank that sends most, of those that train.

    What came after the first study has a default, and may be absent from a file.
    """

    job_id: int
    measured_at: dt.datetime
    status: str
    model: str | None
    dataset: str | None
    strategy: str | None
    world_size: int
    global_batch_size: int
    one_way_delay_s: float
    repetition: int
    attempt_count: int
    step_time_s: float | None
    timed_step_count: int | None
    steps_per_epoch: int | None
    time_per_epoch_s: float | None
    rtt_s: float | None
    gradient_bytes: int | None
    parameter_count: int | None
    sent_bytes_per_step: float | None
    wire_bytes_per_step: float | None
    rank_0_compute_s: float | None
    other_ranks_compute_s: float | None
    cpu_ratio: float | None
    control_ratio: float | None
    flags: tuple[str, ...]
    network: str | None
    core_count: int
    fingerprint: str | None
    cpu_model: str | None
    memory_bytes: int | None
    kernel: str | None
    tensorflow_version: str | None
    python_version: str | None
    benchfarm_version: str | None
    framework: str | None = None
    server_count: int | None = None
    server_placement: str | None = None
    replicas_per_rank: int | None = None
    steps_between_averages: int | None = None
    epochs: int | None = None
    accuracy: float | None = None
    received_bytes_per_step: float | None = None
    idle_ratio: float | None = None
    push_s: float | None = None
    pull_s: float | None = None
    update_count: int | None = None
    staleness_mean: float | None = None
    staleness_max: int | None = None
    throughput_examples_per_s: float | None = None
    training_loss: float | None = None
    test_loss: float | None = None
    resident_bytes: int | None = None
    net_rx_bytes_per_s: float | None = None
    net_tx_bytes_per_s: float | None = None
    server_cpu_ratio: float | None = None
    server_resident_bytes: int | None = None
    server_rx_bytes_per_s: float | None = None
    server_tx_bytes_per_s: float | None = None
    training_pass: str | None = None
    worker_resident_bytes: int | None = None
    largest_wire_bytes_per_step: float | None = None

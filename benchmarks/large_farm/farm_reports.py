"""Makes up the reports of agents and ranks, and their measurements, as rows of the store."""

from __future__ import annotations

import datetime as dt
import functools
import math
import random
from typing import Any

from farm.configuration.spec import TENSORFLOW, JobSpec, NetworkProfile
from farm.gang.lifecycle import AttemptState, RankPhase
from farm.measuring.measurement import OK
from farm.messages.agents import AgentFacts, Hardware
from farm.messages.commands import RankAddress
from farm.messages.reports import (
    PeerBandwidth,
    PeerRtt,
    PeersMeasured,
    Prepared,
    RankEnded,
    RankStarted,
    Shaped,
)
from farm.messages.trainer_lines import (
    DatasetSource,
    Failure,
    FailureKind,
    StepProfile,
    TrainerResult,
)
from farm.values.codec import to_json

AGENTS_OF_A_KIND = 50
_PARAMETERS = {"mlp": 101_770, "shallow_cnn": 431_080, "small_cnn": 122_570}
_EXAMPLES = {"mnist": 60_000, "cifar10": 50_000}
_SECONDS_AN_EXAMPLE = {"mlp": 2e-5, "shallow_cnn": 4e-4, "small_cnn": 2e-4}
_UNLIMITED_BYTES_PER_S = 1.25e9


@functools.cache
def facts_of(number: int) -> AgentFacts:
    """Return what an agent says of itself: one on each machine, of two kinds of hardware."""
    kind = number // AGENTS_OF_A_KIND % 2
    return AgentFacts(
        machine_id=f"machine-{number:03}",
        address=f"10.0.{number // 250}.{number % 250 + 1}",
        interface="eth0",
        first_port=20_000,
        last_port=20_099,
        cpus=tuple(range(4 + 4 * kind)),
        labels={"instance_type": ("m5.xlarge", "m5.2xlarge")[kind], "zone": "a"},
        capabilities=("network", "tc_netem", TENSORFLOW),
        hardware=Hardware(
            cpu_model=f"A made-up CPU of kind {kind}",
            core_count=4 + 4 * kind,
            memory_bytes=(16 + 16 * kind) * 2**30,
            kernel="Linux 6.1.0",
            tensorflow_version="2.21.0",
            python_version="3.11.7",
            benchfarm_version="0.1.0",
        ),
    )


def rank_row(token: int, rank: int, world_size: int, agent: int) -> dict[str, Any]:
    """Return the row of a rank that trains, but for the name of its agent."""
    return {
        "attempt_id": token,
        "rank": rank,
        "phase": RankPhase.STARTED,
        "commanded_at": None,
        "hardware": _hardware(agent),
        "ended": None,
        "ended_at": None,
        "control_s": 0.1,
        **_barriers(rank, world_size),
    }


def end_of_rank(
    rank: int, spec: JobSpec, *, state: AttemptState, lasts_s: float, at: dt.datetime
) -> dict[str, Any]:
    """Return the columns of the row that a rank's end fills."""
    if state in (AttemptState.LOST, AttemptState.CANCELLED):
        return {}
    return {
        "phase": RankPhase.ENDED,
        "ended": _ended(rank, spec, has_failed=state is AttemptState.FAILED, lasts_s=lasts_s),
        "ended_at": at,
    }


def measured(
    job_id: int,
    token: int,
    spec: JobSpec,
    *,
    agent: int,
    at: dt.datetime,
    has_failed: bool,
    rng: random.Random,
) -> dict[str, Any]:
    """Return the measurement of a job, be it of a configuration that failed."""
    times = _times(spec, step_time_s=step_time_s(spec) * rng.lognormvariate(0.0, 0.03))
    if has_failed:
        times = {**dict.fromkeys(times), "status": FailureKind.OUT_OF_MEMORY.value}
    network, facts = spec.network or NetworkProfile(), facts_of(agent)
    return {
        "origin": "farm",
        "source_key": f"job {job_id}",
        "job_id": job_id,
        "attempt_id": token,
        "created_at": at,
        "model": spec.model,
        "dataset": spec.dataset,
        "training_pass": spec.training_pass.value,
        "framework": "tensorflow 2.21.0",
        "strategy": spec.strategy,
        "network": "tc_netem" if spec.network else None,
        "instance_type": facts.labels["instance_type"],
        "world_size": spec.world_size,
        "server_count": 0,
        "global_batch_size": spec.global_batch_size,
        "one_way_delay_s": network.one_way_delay_s,
        "bandwidth_bytes_per_s": network.bandwidth_bytes_per_s,
        "packet_loss_ratio": 0.0,
        "jitter_s": 0.0,
        "repetition": spec.repetition,
        "fingerprint": facts.hardware.fingerprint,
        "flags": [],
        "details": {
            "agents": [f"agent-{agent + rank:03}" for rank in range(spec.world_size)],
            "hardware": [_hardware(agent)] * spec.world_size,
            "dataset_source": to_json(_source(spec.dataset)),
            "seed": spec.seed,
        },
        **times,
    }


def step_time_s(spec: JobSpec) -> float:
    """Return what a step takes: its share of the work, then a ring over the network."""
    ranks, network = spec.world_size, spec.network or NetworkProfile()
    compute_s = 0.002 + _SECONDS_AN_EXAMPLE[spec.model] * spec.global_batch_size / ranks
    if ranks == 1:
        return compute_s
    bytes_per_s = network.bandwidth_bytes_per_s or _UNLIMITED_BYTES_PER_S
    sent_s = 2 * (ranks - 1) / ranks * 4 * _PARAMETERS[spec.model] / bytes_per_s
    return compute_s + sent_s + 2 * (ranks - 1) * network.one_way_delay_s


def _times(spec: JobSpec, *, step_time_s: float) -> dict[str, Any]:
    steps_per_epoch = math.ceil(_EXAMPLES[spec.dataset] / spec.global_batch_size)
    return {
        "status": OK,
        "step_time_s": step_time_s,
        "step_time_p25_s": step_time_s * 0.97,
        "step_time_p75_s": step_time_s * 1.04,
        "step_time_spread_s": step_time_s * 0.07,
        "step_time_low_s": step_time_s * 0.995,
        "step_time_high_s": step_time_s * 1.005,
        "timed_step_count": 500,
        "outlier_step_count": 2,
        "steps_per_epoch": steps_per_epoch,
        "time_per_epoch_s": step_time_s * steps_per_epoch,
        "throughput_examples_per_s": spec.global_batch_size / step_time_s,
        "parameter_count": _PARAMETERS[spec.model],
        "gradient_bytes": 4 * _PARAMETERS[spec.model],
        "compute_s": step_time_s * 0.6,
        "communication_s": step_time_s * 0.35,
        "profiled_step_time_s": step_time_s * 1.01,
        "cpu_ratio": 0.8,
        "resident_bytes": 900_000_000,
        "net_rx_bytes_per_s": 1e6,
        "net_tx_bytes_per_s": 1e6,
        "control_ratio": 1.0,
    }


@functools.cache
def _hardware(agent: int) -> object:
    return to_json(facts_of(agent).hardware)


@functools.cache
def _barriers(rank: int, world_size: int) -> dict[str, object]:
    """Return what a rank reports on its way to its first step, as JSON."""
    peers = [peer for peer in range(world_size) if peer != rank]
    untouched = tuple(PeerRtt(rank=peer, rtt_s=2e-4, probe_count=20) for peer in peers)
    shaped = tuple(PeerRtt(rank=peer, rtt_s=0.0402, probe_count=20) for peer in peers)
    bandwidths = tuple(
        PeerBandwidth(rank=peer, bytes_per_s=1.2e7, byte_count=10_000_000) for peer in peers
    )
    address = RankAddress(
        rank=rank, host=f"10.0.0.{rank + 1}", probe_port=20_000, trainer_ports=(20_001,)
    )
    reports = {
        "prepared": Prepared(
            address=address,
            framework="tensorflow 2.21.0",
            dataset=_source("cifar10"),
            prepare_s=3.0,
        ),
        "peers": PeersMeasured(rtts=untouched, control_s=0.1),
        "shaped": Shaped(emulator="tc_netem", rtts=shaped, bandwidths=bandwidths),
        "started": RankStarted(
            parameter_count=122_570, gradient_bytes=490_280, connect_s=0.4, first_step_s=1.1
        ),
    }
    return {name: to_json(report) for name, report in reports.items()}


def _source(dataset: str) -> DatasetSource:
    return DatasetSource(
        name=dataset,
        origin=f"~/.keras/datasets/{dataset}",
        sha256="0" * 64,
        is_synthetic=False,
        train_examples_count=_EXAMPLES[dataset],
        test_examples_count=10_000,
    )


def _ended(rank: int, spec: JobSpec, *, has_failed: bool, lasts_s: float) -> object:
    if has_failed:
        failure = Failure(kind=FailureKind.OUT_OF_MEMORY, message="killed for its memory")
        ended = RankEnded(
            result=None, failure=failure, timed_begun_s=None, log_tail="no memory left\n" * 40
        )
        return to_json(ended)
    time_s = step_time_s(spec)
    result = TrainerResult(
        timed_step_count=500,
        window_step_count=500,
        timed_window_s=max(1.0, lasts_s - 20.0),
        timed_begun_monotonic_s=10.0,
        interface_rx_bytes=10**9,
        interface_tx_bytes=10**9,
        payload_rx_bytes=10**9,
        payload_tx_bytes=10**9,
        train_loss=0.5,
        val_accuracy_ratio=0.7 if rank == 0 else None,
        peak_resident_bytes=900_000_000,
        seed=spec.seed,
        profile=StepProfile(
            step_count=20,
            step_time_s=time_s * 1.01,
            compute_s=time_s * 0.6,
            communication_s=time_s * 0.35,
        ),
    )
    return to_json(RankEnded(result=result, failure=None, timed_begun_s=5.0, log_tail=""))

"""Computes the measurement of a finished attempt from its rows.

It first judges whether anything disturbed the ranks; a void attempt yields no measurement. Nothing
is read or written here, so an attempt whose rows make no sense is known before anything is written.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from farm.configuration.axes import AXES, AXES_WITHOUT_COLUMN, spec_values
from farm.configuration.axis import AxisKind
from farm.configuration.catalogue import DatasetFacts, Traffic
from farm.configuration.model_size import ModelSize
from farm.configuration.spec import TCP_PROXY, JobSpec, NetworkProfile, TrainingPass
from farm.errors import InvalidSpec
from farm.gang.snapshots import AttemptView
from farm.measuring.measurement import (
    OK,
    OWN_ORIGIN,
    AttemptFigures,
    RankOutcome,
    averaged,
    servers,
)
from farm.measuring.noise import (
    NoiseLimits,
    NoiseVerdict,
    RankEvidence,
    judge_noise,
    ranks_on_a_core,
)
from farm.measuring.quantities import FURTHER_QUANTITIES, measure
from farm.messages.agents import Hardware
from farm.messages.reports import Prepared, RankEnded, RankStarted, Shaped
from farm.messages.trainer_lines import Failure
from farm.sampling.names import LOOPBACK_INTERFACE, TRAINER_READS_EXTRA, TRAINER_WRITES_EXTRA
from farm.store.gangs.attempts import AttemptReports, Member
from farm.store.series.series import unpacked
from farm.values.codec import content_hash, from_json

# In a measurement's details (`net_bytes_of`) where received and sent bytes are not the interface's.
OF_CONNECTIONS = "the trainers' own TCP connections"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEvidence:
    """The reports of a successful attempt's agents, in their order, and their verdict.

    `timed_steps_s`: of the ranks that tell the gang's time, by rank.
    """

    spec: JobSpec
    outcomes: tuple[RankOutcome, ...]
    is_synchronous: bool
    timed_steps_s: Mapping[int, tuple[float, ...]]
    verdict: NoiseVerdict

    @property
    def unreported_steps(self) -> str | None:
        """Name a rank whose timed steps are not all stored; None: all are.

        If a spool was removed, its unsent reports are lost.
        """
        each = self.spec.ranks_per_agent
        for rank, times_s in self.timed_steps_s.items():
            trained = self.outcomes[rank // each].result.timed_step_count
            if len(times_s) != trained:
                return f"rank {rank} trained {trained} timed steps, and {len(times_s)} arrived"
        return None


def clocks(attempt: AttemptView, *, is_synchronous: bool) -> Sequence[tuple[int, int]]:
    """Return the ranks whose steps give the time of the gang, in their order.

    Each is given by the place of its agent in the gang and its process there. `is_synchronous`: its
    ranks step together, so that rank 0 tells it.
    """
    rank_count = 1 if is_synchronous else attempt.spec.world_size
    return [divmod(rank, attempt.spec.ranks_per_agent) for rank in range(rank_count)]


def evidence_of(
    attempt: AttemptView, reports: AttemptReports, *, limits: NoiseLimits, is_synchronous: bool
) -> AttemptEvidence:
    """Judge by its reports how far a successful attempt was disturbed.

    Raises:
        InvalidSpec: its rows are not what this version writes.
    """
    outcomes = _outcomes(reports)
    timed_steps_s = {
        rank: tuple(
            time_s for chunk in reports.chunks.get(clock, ()) for time_s in unpacked(chunk).times_s
        )
        for rank, clock in enumerate(clocks(attempt, is_synchronous=is_synchronous))
    }
    ranks = [
        RankEvidence(
            agent_id=view.agent_id,
            outcome=outcome,
            control=reports.control_runs.get(view.rank),
            ranks_per_core=ranks_on_a_core(
                attempt.spec, view.rank, member.rank.hardware.get("core_count")
            ),
        )
        for view, outcome, member in zip(attempt.ranks, outcomes, reports.members, strict=True)
    ]
    between = attempt.spec.steps_between_averages
    judged = {rank: averaged(times_s, between) for rank, times_s in timed_steps_s.items()}
    return AttemptEvidence(
        spec=attempt.spec,
        outcomes=outcomes,
        is_synchronous=is_synchronous,
        timed_steps_s=timed_steps_s,
        verdict=judge_noise(
            ranks,
            timed_steps_s=judged,
            limits=limits,
            ranks_per_agent=attempt.spec.ranks_per_agent,
        ),
    )


def measurement_of(
    attempt: AttemptView,
    reports: AttemptReports,
    *,
    evidence: AttemptEvidence | None,
    failure: Failure | None,
    now: dt.datetime,
    traffic: Callable[[float], Traffic] | None = None,
    dataset: DatasetFacts | None = None,
    size: ModelSize | None = None,
) -> dict[str, Any]:
    """Return the measurement of a successful attempt, or the failed cell of an impossible one.

    By the columns of `MeasurementRow`. Exactly one of `evidence` and `failure` is given.
    `traffic`: what the attempt's strategy sends for a step, by the bytes of its gradients.
    `dataset` and `size`: those of the attempt's workload, None where nobody knows them.

    Raises:
        InvalidSpec: what the ranks reported adds up to no finite number, or is not what this
            version writes.
    """
    values = _configuration(attempt, reports.members, now=now)
    values["status"] = failure.kind.value if failure else OK
    values["flags"] = []
    if evidence is not None:
        figures = _figures(attempt, evidence, reports, traffic=traffic, dataset=dataset, size=size)
        measured = measure(figures)
        further = {one.name: measured.values[one.name] for one in FURTHER_QUANTITIES}
        values |= {name: one for name, one in measured.values.items() if name not in further}
        values |= _conditions(attempt, reports)
        values |= _judged(evidence.verdict)
        values["details"] |= _further(figures, evidence.verdict)
        if further:
            values["details"]["quantities"] = further
        if reasons := {**measured.unknown_because, **_unmeasured(attempt, reports)}:
            values["details"]["unmeasured"] = reasons
    elif failure is not None:
        values["details"]["failure"] = failure.message
    for name, value in (*values.items(), *values["details"].get("quantities", {}).items()):
        # JSON has no such number, so a request for measurements would get none at all.
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidSpec(name, value, "a finite number")
    return values


def _configuration(
    attempt: AttemptView, members: Sequence[Member], *, now: dt.datetime
) -> dict[str, Any]:
    """Return the columns of the configuration, the hardware and the attempt."""
    spec = attempt.spec
    values = spec_values(spec)
    further = {
        axis.field: values[axis.field]
        for axis in AXES_WITHOUT_COLUMN
        if values[axis.field] != axis.value_in({})
    }
    hardware = [m.rank.hardware for m in members]
    prepared = [from_json(Prepared, m.rank.prepared) for m in members if m.rank.prepared]
    sha256 = prepared[0].model_sha256 if prepared else None
    types = sorted({m.labels.get("instance_type", "") for m in members} - {""})
    return {
        "origin": OWN_ORIGIN,
        "source_key": f"job {attempt.job_id}",
        "job_id": attempt.job_id,
        "attempt_id": attempt.token,
        "created_at": now,
        **{
            axis.stored: values[axis.field]
            for axis in AXES
            if axis.kind is not AxisKind.LINK and axis.has_column
        },
        "framework": prepared[0].framework if prepared else None,
        "instance_type": "+".join(types) or None,
        "repetition": spec.repetition,
        "epochs": spec.epochs,
        "fingerprint": _fingerprint(hardware, model_sha256=sha256),
        "details": {
            "agents": [m.rank.agent_id for m in members],
            "hardware": hardware,
            "dataset_source": (members[0].rank.prepared or {}).get("dataset"),
            **({} if sha256 is None else {"model_sha256": sha256}),
            "seed": spec.seed,
            **({"axes": further} if further else {}),
        },
    }


def _further(figures: AttemptFigures, verdict: NoiseVerdict) -> dict[str, Any]:
    """Return the values that have no column of their own."""
    found: dict[str, Any] = {"largest_outlier_s": verdict.largest_outlier_s}
    if figures.exchange.staleness_counts is not None:
        found["staleness_counts"] = list(figures.exchange.staleness_counts)
    found |= _operations(figures)
    if any(rank.result.interface == LOOPBACK_INTERFACE for rank in figures.training):
        found["net_bytes_of"] = OF_CONNECTIONS
    if apart := servers(figures.spec, figures.ranks):
        found["servers"] = [dataclasses.asdict(server) for server in apart]
    return found


def _operations(figures: AttemptFigures) -> dict[str, Any]:
    """Return reads and writes per second, means over the ranks that train and their timed windows.

    Of the machine's disks, and the trainers' own calls, of which most never reach a disk.
    """
    found = {
        "disk_operations": (
            figures.mean_of(lambda s: s.disk_read_operations_per_s),
            figures.mean_of(lambda s: s.disk_write_operations_per_s),
        ),
        "trainer_operations": (
            figures.mean_of(lambda s: s.extra.get(TRAINER_READS_EXTRA)),
            figures.mean_of(lambda s: s.extra.get(TRAINER_WRITES_EXTRA)),
        ),
    }
    return {
        name: {"read_per_s": read_per_s, "write_per_s": write_per_s}
        for name, (read_per_s, write_per_s) in found.items()
        if read_per_s is not None or write_per_s is not None
    }


def _judged(verdict: NoiseVerdict) -> dict[str, Any]:
    return {
        "step_time_low_s": verdict.step_time_low_s,
        "step_time_high_s": verdict.step_time_high_s,
        "outlier_step_count": verdict.outlier_step_count,
        "control_ratio": verdict.control_ratio,
        "flags": [flag.to_json() for flag in verdict.flags],
    }


def _figures(
    attempt: AttemptView,
    evidence: AttemptEvidence,
    reports: AttemptReports,
    *,
    traffic: Callable[[float], Traffic] | None,
    dataset: DatasetFacts | None,
    size: ModelSize | None,
) -> AttemptFigures:
    spec = attempt.spec
    ranks = [member.rank for member in reports.members]
    prepared = from_json(Prepared, ranks[0].prepared)
    started = from_json(RankStarted, ranks[0].started)
    is_training = spec.training_pass is TrainingPass.FORWARD_BACKWARD
    gradient_bytes = started.gradient_bytes if is_training else None
    return AttemptFigures(
        spec=spec,
        ranks=evidence.outcomes,
        timed_steps_s=evidence.timed_steps_s,
        train_examples_count=prepared.dataset.train_examples_count,
        is_synchronous=evidence.is_synchronous,
        traffic=traffic(gradient_bytes) if traffic and gradient_bytes is not None else None,
        dataset=dataset,
        size=size,
    )


def _conditions(attempt: AttemptView, reports: AttemptReports) -> dict[str, Any]:
    """Return the columns of the model's size and of the network as it was found."""
    ranks = [member.rank for member in reports.members]
    started = from_json(RankStarted, ranks[0].started)
    shaped = [from_json(Shaped, rank.shaped) for rank in ranks if rank.shaped]
    return {
        "parameter_count": started.parameter_count,
        "gradient_bytes": started.gradient_bytes,
        "network": measured_network(attempt.spec.interface, shaped[0].emulator if shaped else None),
        "rtt_s": max((p.rtt_s for s in shaped for p in s.rtts), default=None),
        "measured_bandwidth_bytes_per_s": min(
            (p.bytes_per_s for s in shaped for p in s.bandwidths), default=None
        ),
        "loaded_rtt_s": max((p.rtt_s for s in shaped for p in s.loaded_rtts), default=None),
    }


def _unmeasured(attempt: AttemptView, reports: AttemptReports) -> dict[str, str]:
    """Return why columns that every measurement could have are None, by column."""
    shaped = [from_json(Shaped, m.rank.shaped) for m in reports.members if m.rank.shaped]
    if len(shaped) < 2 or any(one.loaded_rtts for one in shaped):
        return {}
    network = attempt.spec.network or NetworkProfile()
    if network.bandwidth_bytes_per_s is None:
        return {"loaded_rtt_s": "the job limits no bandwidth, so nothing has to queue"}
    reasons = (one.loaded_rtt_unknown for one in shaped)
    return {"loaded_rtt_s": next(filter(None, reasons), "the agents did not measure it")}


def measured_network(interface: str | None, emulator: str | None) -> str | None:
    """Name the measured network: the emulator, or the requested network.

    A network through a proxy is a different one, since TCP does not notice the delay.
    """
    if interface is None:
        return emulator
    return f"{interface}+{emulator}" if emulator == TCP_PROXY else interface


def _outcomes(reports: AttemptReports) -> tuple[RankOutcome, ...]:
    outcomes = []
    for member in reports.members:
        end = from_json(RankEnded, member.rank.ended)
        assert end.result is not None, "the attempt succeeded"
        outcomes.append(
            RankOutcome(
                rank=member.rank.rank,
                result=end.result,
                timed_begun_s=end.timed_begun_s,
                samples=tuple(reports.samples.get(member.rank.rank, ())),
            )
        )
    return tuple(outcomes)


def _fingerprint(hardware: Sequence[dict[str, Any]], *, model_sha256: str | None) -> str:
    """Return the hash of the gang's hardware: of the one kind, or of the mixture's kinds.

    And of the model, where it is a user's own file: what is in it may change under one name, and
    measurements of different fingerprints are never pooled.
    """
    kinds = sorted({from_json(Hardware, h).fingerprint for h in hardware})
    if model_sha256 is not None:
        return content_hash({"hardware": kinds, "model_sha256": model_sha256})
    return kinds[0] if len(kinds) == 1 else content_hash(kinds)

"""Upper limits of what one rank may report.

Values beyond them are a fault or a lie, and are refused on arrival. Otherwise a stolen agent could
fill the store, and the memory of the scheduler, which reads all of an attempt at its end.
"""

from __future__ import annotations

from dataclasses import dataclass

from farm.configuration.spec import MOST_STEPS_BY_EPOCHS, MOST_STEPS_READ, JobSpec
from farm.messages.reports import ReportBody, Samples, StepTimes
from farm.messages.trainer_lines import Epoch

# Beyond the time that the server has counted: clocks are set, and the memory of how long an attempt
# has been under way is lost with its process.
SLACK_S = 900.0
# After the job's time limit, for a rank that is made to end.
_ENDING_S = 600.0
# Of a job by epochs, whose steps an epoch depends on the data set, which only the agent has seen.
MOST_STEPS_PER_S = 10_000
# Of a script that trains to its end: each accuracy that it tells ends one.
MOST_SCRIPT_EPOCHS = 10_000
# Steps beside those that the job asks for, under the profiler: ten of them and their rest.
_PROFILED_STEPS = 100
# Of a report that is no series, as JSON: no line of a trainer, which is what it holds, is longer.
MOST_BODY_BYTES = 4 * 2**20
# Of all ranks of an attempt together, read at its end: some hundred megabytes.
MOST_SAMPLES_READ = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLimits:
    """Of one rank: its steps and epochs, and the seconds after *go* that it can have reached.

    `process_count`: how many ranks its agent trains.
    """

    process_count: int
    step_count: int
    epoch_count: int
    time_s: float


def rank_limits(spec: JobSpec, *, elapsed_s: float | None) -> RankLimits:
    """Return the limits of a rank of the job at this time.

    `elapsed_s`: since its attempt was leased; None: not known, and only the job's limits hold.
    """
    each = spec.ranks_per_agent
    time_s = spec.time_limit_s + _ENDING_S
    if elapsed_s is not None:
        time_s = min(time_s, max(0.0, elapsed_s) + SLACK_S)
    if spec.steps is not None:
        # At worst each full step is followed by the partial one that ends an epoch.
        step_count = 2 * (spec.warmup_step_count + spec.steps) + _PROFILED_STEPS
        return RankLimits(
            process_count=each, step_count=step_count, epoch_count=spec.steps, time_s=time_s
        )
    in_time = int(time_s * MOST_STEPS_PER_S)
    steps = min(MOST_STEPS_BY_EPOCHS + 2 * spec.warmup_step_count, in_time) + _PROFILED_STEPS
    epochs = MOST_SCRIPT_EPOCHS if spec.epochs is None else spec.epochs
    return RankLimits(
        process_count=each, step_count=steps, epoch_count=min(epochs, steps), time_s=time_s
    )


def excess_of_attempt(
    spec: JobSpec, *, clock_count: int, sample_count: int, step_count: int
) -> str | None:
    """Return which stored data of an attempt exceeds its limits; None: nothing.

    `step_count`: of the ranks that tell its time, `clock_count` of them.
    """
    limits = rank_limits(spec, elapsed_s=None)
    most_steps = min(clock_count * limits.step_count, MOST_STEPS_READ)
    if step_count > most_steps:
        return f"{step_count} step times of its ranks: at most {most_steps} are possible"
    most_samples = spec.agent_count * int(limits.time_s + 1)
    if sample_count > most_samples:
        return f"{sample_count} samples of its ranks: at most {most_samples} are possible"
    return None


def excess(body: ReportBody, limits: RankLimits) -> str | None:
    """Return which part of a report exceeds its rank's limits; None: nothing."""
    if isinstance(body, Samples):
        last = max((sample.tick for sample in body.samples), default=0)
        if last > limits.time_s:
            return f"tick {last}: its attempt has had time for {limits.time_s:.0f}"
    elif isinstance(body, StepTimes):
        if body.process >= limits.process_count:
            return f"steps of process {body.process}: its agent has {limits.process_count} ranks"
        end = body.first_step + len(body.times_s)
        if end > limits.step_count:
            return f"steps up to {end}: its job can have {limits.step_count} at most"
        if body.begun_s > limits.time_s:
            return f"steps {body.begun_s:.0f} s after go: there was time for {limits.time_s:.0f} s"
    elif isinstance(body, Epoch) and body.epoch >= limits.epoch_count:
        return f"epoch {body.epoch}: its job can have {limits.epoch_count} at most"
    return None

"""Computes a gang's throughput, hardware utilisation, memory and energy per step. Pure."""

from __future__ import annotations

import dataclasses
import itertools
import math

from farm.configuration.catalogue import ExampleKind
from farm.configuration.spec import TrainingPass
from farm.measuring.measurement import AttemptFigures, Unknown, timed_mean, timed_values
from farm.sampling.names import CPU_POWER_EXTRA, GPU_POWER_EXTRA
from farm.statistics import mean

# Of a forward pass: the gradients by the inputs and by the weights of a layer take as much each
# (Kaplan et al. 2020, "Scaling Laws for Neural Language Models", section 2.1).
_PASSES = {TrainingPass.FORWARD: 1, TrainingPass.FORWARD_BACKWARD: 3}


def tokens_per_s(figures: AttemptFigures) -> float | Unknown | None:
    """Return the tokens that the whole gang took in a second, hidden ones among them."""
    dataset = figures.dataset
    if dataset is None:
        return Unknown("a script does not report how many tokens an example has")
    if dataset.kind is not ExampleKind.TOKENS:
        return Unknown(f"its examples are {dataset.kind.value}")
    examples_per_s = figures.throughput_examples_per_s
    return None if examples_per_s is None else examples_per_s * dataset.example_shape[0]


def data_wait_ratio(figures: AttemptFigures) -> float | Unknown | None:
    """Return the share of a mean step in which a rank waited for its batch."""
    wait_s = figures.data_wait_s
    if wait_s is None and figures.chief.script_times is None:
        return Unknown("examples are in memory, so that steps do not wait for them")
    if wait_s is None:
        return Unknown("no wait for a DataLoader of PyTorch's was seen on every rank")
    step_s = mean(itertools.chain.from_iterable(figures.pace.values()))
    return min(1.0, wait_s / step_s) if step_s else None


def peak_device_memory_bytes(figures: AttemptFigures) -> int | Unknown:
    """Return the most memory that a GPU of the ranks that train had in use."""
    if figures.dataset is None:
        return Unknown("a script does not report how much GPU memory it uses")
    found = [rank.result.peak_device_memory_bytes for rank in figures.training]
    known = [one for one in found if one is not None]
    return max(known) if known else Unknown("no rank trained on a GPU")


def achieved_flop_per_s(figures: AttemptFigures) -> float | Unknown | None:
    """Return the FLOP of the model that the whole gang computed in a second.

    Throughput x forward FLOP of an example (`ModelSize`), x 3 with a backward pass: the *model
    FLOPs* of Chowdhery et al. 2022 ("PaLM", appendix B). What is computed twice counts once, and
    the update of the weights not at all.
    """
    if figures.dataset is None:
        return Unknown("a script does not report how many FLOP an example takes")
    if figures.size is None:
        return Unknown("how many FLOP an example takes is only known of models that are shipped")
    examples_per_s = figures.throughput_examples_per_s
    if examples_per_s is None:
        return None
    forward = figures.size.forward_flop_per_example
    return examples_per_s * forward * _PASSES[figures.spec.training_pass]


def peak_flop_per_s(figures: AttemptFigures) -> float | Unknown:
    """Return the compute rate of all ranks that train together.

    Each measured the rate of a matrix product before its steps, at the same time as the others. Of
    several on one agent the first reports, and the others are taken to be as fast.
    """
    if figures.dataset is None:
        return Unknown("no matrix product is measured with a script")
    rates = []
    for rank in figures.training:
        if rank.result.peak_flop_per_s is None:
            return Unknown(f"rank {rank.rank} did not measure a matrix product")
        rates.append(rank.result.peak_flop_per_s)
    return math.fsum(rates) * figures.spec.ranks_per_agent


def utilisation_ratio(figures: AttemptFigures) -> float | Unknown | None:
    """Return `achieved_flop_per_s` over `peak_flop_per_s`: the MFU of Chowdhery et al. 2022.

    Theirs is of the peak in a data sheet.
    """
    achieved, peak = achieved_flop_per_s(figures), peak_flop_per_s(figures)
    if achieved is None or isinstance(achieved, Unknown):
        return achieved
    if isinstance(peak, Unknown):
        return peak
    if achieved > peak:
        return Unknown(
            f"the steps came to {achieved / peak:.2f} times the FLOP/s of the matrix product: the"
            " model's layers run in another precision, or something slowed the product down"
        )
    return achieved / peak


def cpu_energy_per_step_j(figures: AttemptFigures) -> float | Unknown | None:
    """Return the energy of the machines' processors and memory in one step of the gang."""
    return _energy_per_step_j(figures, CPU_POWER_EXTRA, "processors")


def gpu_energy_per_step_j(figures: AttemptFigures) -> float | Unknown | None:
    """Return the energy of the machines' GPUs in one step of the gang."""
    return _energy_per_step_j(figures, GPU_POWER_EXTRA, "GPUs")


def energy_per_step_j(figures: AttemptFigures) -> float | Unknown | None:
    """Return the energy of processors, their memory and GPUs in one step of the gang."""
    cpus_j = cpu_energy_per_step_j(figures)
    if cpus_j is None or isinstance(cpus_j, Unknown) or not _have_gpus(figures):
        return cpus_j
    gpus_j = gpu_energy_per_step_j(figures)
    return gpus_j if gpus_j is None or isinstance(gpus_j, Unknown) else cpus_j + gpus_j


def _energy_per_step_j(figures: AttemptFigures, name: str, of_what: str) -> float | Unknown | None:
    """Return P x B / R: mean power of all machines, examples of a step, examples a second.

    Power is the mean over the seconds with timed steps, of the whole machine, idle or not. Ranks
    that only serve are taken to work while rank 0's steps are timed.
    """
    examples_per_s = figures.throughput_examples_per_s
    if examples_per_s is None:
        return None
    chief = next(rank for rank in figures.ranks if rank.rank == 0)
    power_w = 0.0
    for rank in figures.ranks:
        if not any(name in sample.extra for sample in rank.samples):
            return Unknown(f"the agent of rank {rank.rank} reads no energy of its {of_what} alone")
        trains = rank in figures.training
        of_steps = rank if trains else dataclasses.replace(chief, samples=rank.samples)
        mean_w = timed_mean([timed_values(of_steps, lambda sample: sample.extra.get(name))])
        if mean_w is None:
            return Unknown("fewer than two whole seconds with timed steps have a power: time more")
        power_w += mean_w
    examples_count = figures.examples_per_step or figures.spec.global_batch_size
    return power_w * examples_count / examples_per_s


def _have_gpus(figures: AttemptFigures) -> bool:
    """Whether an agent has sampled anything of a GPU."""
    extras = (sample.extra for rank in figures.ranks for sample in rank.samples)
    return any(name.startswith("gpu") for extra in extras for name in extra)

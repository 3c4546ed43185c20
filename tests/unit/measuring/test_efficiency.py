"""What a gang achieves a second, and at what expense."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from farm.configuration.catalogue import DatasetFacts, ExampleKind
from farm.configuration.model_size import ModelSize
from farm.configuration.spec import JobSpec, ServerPlacement, TrainingPass
from farm.measuring.measurement import AttemptFigures, RankOutcome
from farm.measuring.quantities import measure
from farm.messages.reports import Sample
from farm.messages.trainer_lines import TrainerResult

SPEC = JobSpec(
    model="m", dataset="d", strategy="mwms_ring", world_size=2, global_batch_size=64, steps=4
)
RESULT = TrainerResult(
    timed_step_count=4,
    window_step_count=4,
    timed_window_s=3.0,
    timed_begun_monotonic_s=100.0,
    interface_rx_bytes=None,
    interface_tx_bytes=None,
    payload_rx_bytes=None,
    payload_tx_bytes=None,
    train_loss=0.5,
    val_accuracy_ratio=None,
    peak_resident_bytes=1,
    seed=0,
)
IMAGES = DatasetFacts(
    name="d",
    summary="",
    train_examples_count=1000,
    test_examples_count=100,
    example_shape=(8, 8, 1),
    class_count=10,
    is_synthetic=False,
)
TOKENS = dataclasses.replace(IMAGES, example_shape=(32,), kind=ExampleKind.TOKENS)
SIZE = ModelSize(
    parameter_count=100,
    statistics_count=0,
    forward_flop_per_example=200,
    activation_bytes_per_example=40,
)
# 64 examples in 0.5 s
THROUGHPUT = 128.0


def measured(name: str, *results: TrainerResult, **given: Any) -> tuple[float | None, str | None]:
    """Return the value of a quantity, and why there is none."""
    ranks = [
        RankOutcome(rank=rank, result=result, timed_begun_s=1.5, samples=())
        for rank, result in enumerate(results or (RESULT, RESULT))
    ]
    facts: dict[str, Any] = {"spec": SPEC, "timed_steps_s": {0: [0.5] * 4}, **given}
    found = measure(AttemptFigures(ranks=ranks, train_examples_count=1000, **facts))
    return found.values[name], found.unknown_because.get(name)


def test_tokens_a_second_are_examples_times_their_length() -> None:
    assert measured("tokens_per_s", dataset=TOKENS) == (32 * THROUGHPUT, None)


@pytest.mark.parametrize(("dataset", "reason"), [(IMAGES, "images"), (None, "script")])
def test_only_sequences_of_tokens_have_tokens_a_second(
    dataset: DatasetFacts | None, reason: str
) -> None:
    value, why = measured("tokens_per_s", dataset=dataset)
    assert value is None
    assert reason in (why or "")


@pytest.mark.parametrize(
    ("training_pass", "passes"), [(TrainingPass.FORWARD, 1), (TrainingPass.FORWARD_BACKWARD, 3)]
)
def test_a_backward_pass_takes_twice_the_flop_of_a_forward_pass(
    training_pass: TrainingPass, passes: int
) -> None:
    spec = dataclasses.replace(SPEC, training_pass=training_pass)
    expected = passes * 200 * THROUGHPUT
    assert measured("achieved_flop_per_s", spec=spec, dataset=IMAGES, size=SIZE) == (expected, None)


@pytest.mark.parametrize(("dataset", "reason"), [(IMAGES, "shipped"), (None, "script")])
def test_flop_that_nobody_knows_are_no_figure(dataset: DatasetFacts | None, reason: str) -> None:
    value, why = measured("achieved_flop_per_s", dataset=dataset)
    assert value is None
    assert reason in (why or "")


def with_peak(flop_per_s: float | None) -> TrainerResult:
    return dataclasses.replace(RESULT, peak_flop_per_s=flop_per_s)


def test_utilisation_is_of_the_measured_peak_of_all_ranks_that_train() -> None:
    ranks = with_peak(1e5), with_peak(3e5)
    shipped = {"dataset": IMAGES, "size": SIZE}
    assert measured("peak_flop_per_s", *ranks, **shipped) == (4e5, None)
    achieved = 3 * 200 * THROUGHPUT
    assert measured("utilisation_ratio", *ranks, **shipped) == (achieved / 4e5, None)
    apart = dataclasses.replace(
        SPEC, strategy="ps_sync", server_count=1, server_placement=ServerPlacement.APART
    )
    of_three = measured("peak_flop_per_s", *ranks, RESULT, spec=apart, **shipped)
    assert of_three == (4e5, None)  # the third only serves
    two_each = dataclasses.replace(SPEC, world_size=4, axes={"ranks_per_agent": 2})
    assert measured("peak_flop_per_s", *ranks, spec=two_each, **shipped) == (8e5, None)


@pytest.mark.parametrize(
    ("second", "given", "reason"),
    [
        (None, {"dataset": IMAGES, "size": SIZE}, "rank 1"),
        (3e5, {"dataset": IMAGES}, "shipped"),
        (3e5, {}, "script"),
        (1e-9, {"dataset": IMAGES, "size": SIZE}, "times the FLOP/s"),
    ],
)
def test_no_utilisation_is_told_where_it_would_mislead(
    second: float | None, given: dict[str, Any], reason: str
) -> None:
    """As for reports of older agents, and where the peak is below what was achieved."""
    value, why = measured("utilisation_ratio", with_peak(1e4), with_peak(second), **given)
    assert value is None
    assert reason in (why or "")


def with_memory(used_bytes: int | None) -> TrainerResult:
    return dataclasses.replace(RESULT, peak_device_memory_bytes=used_bytes)


def test_device_memory_is_that_of_the_rank_with_most() -> None:
    ranks = with_memory(5), with_memory(7)
    assert measured("peak_device_memory_bytes", *ranks, dataset=IMAGES) == (7, None)


@pytest.mark.parametrize(("dataset", "reason"), [(IMAGES, "on a GPU"), (None, "script")])
def test_without_a_gpu_there_is_no_device_memory(dataset: DatasetFacts | None, reason: str) -> None:
    value, why = measured("peak_device_memory_bytes", dataset=dataset)
    assert value is None
    assert reason in (why or "")


def test_steps_on_examples_in_memory_wait_for_none() -> None:
    value, why = measured("data_wait_ratio", dataset=IMAGES)
    assert value is None
    assert "in memory" in (why or "")


def powered(*samples_by_rank: dict[str, float], **given: Any) -> dict[str, Any]:
    """Return the quantities of ranks whose agents sample that every second, for 4 timed seconds."""
    result = dataclasses.replace(RESULT, timed_window_s=4.0)
    ranks = [
        RankOutcome(
            rank=rank,
            result=result,
            timed_begun_s=0.0,
            samples=tuple(Sample(tick=tick, extra=extra) for tick in range(1, 5)),
        )
        for rank, extra in enumerate(samples_by_rank)
    ]
    facts: dict[str, Any] = {"spec": SPEC, "timed_steps_s": {0: [0.5] * 8}, **given}
    found = measure(AttemptFigures(ranks=ranks, train_examples_count=1000, **facts))
    names = ("cpu_energy_per_step_j", "gpu_energy_per_step_j", "energy_per_step_j")
    return {name: found.unknown_because.get(name, found.values[name]) for name in names}


def test_energy_is_the_power_of_all_machines_for_a_step() -> None:
    found = powered({"cpu_power_w": 100.0}, {"cpu_power_w": 60.0})
    assert found["energy_per_step_j"] == found["cpu_energy_per_step_j"] == 160 * 0.5
    assert "GPUs" in found["gpu_energy_per_step_j"]


def test_the_energy_of_gpus_is_added_to_that_of_processors() -> None:
    both = {"cpu_power_w": 100.0, "gpu_power_w": 700.0, "gpu0_ratio": 1.0}
    assert powered(both, both)["energy_per_step_j"] == 1600 * 0.5
    # Half of an energy is none.
    of_gpus, of_cpus = (
        powered(*[{"gpu_power_w": 700.0}] * 2),
        powered(*[{"cpu_power_w": 100.0, "gpu0_ratio": 1.0}] * 2),
    )
    assert of_gpus["gpu_energy_per_step_j"] == 1400 * 0.5
    assert "processors" in of_gpus["energy_per_step_j"]
    assert "GPUs" in of_cpus["energy_per_step_j"]


def test_a_machine_without_a_sensor_leaves_the_energy_unknown() -> None:
    found = powered({"cpu_power_w": 100.0}, {})
    assert "rank 1 reads no energy" in found["energy_per_step_j"]


def test_machines_that_only_serve_take_energy_too() -> None:
    apart = dataclasses.replace(
        SPEC, strategy="ps_sync", server_count=1, server_placement=ServerPlacement.APART
    )
    found = powered(*[{"cpu_power_w": 100.0}] * 3, spec=apart)
    assert found["energy_per_step_j"] == 300 * 0.5


def test_ranks_at_their_own_pace_take_the_energy_of_a_whole_batch() -> None:
    paces = {"timed_steps_s": {0: [0.5] * 8, 1: [0.25] * 16}, "is_synchronous": False}
    found = powered(*[{"cpu_power_w": 100.0}] * 2, **paces)
    # 24 halves of a batch in 4 s
    assert found["energy_per_step_j"] == pytest.approx(200 * 4 / 12)

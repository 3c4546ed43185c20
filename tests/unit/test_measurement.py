from __future__ import annotations

import dataclasses

import pytest

from farm.core.measurement import (
    RankOutcome,
    mean,
    measure,
    quantile,
    ring_bytes_per_step,
    scaling_efficiency_ratio,
    sent_bytes_per_step,
    step_statistics,
    timed_samples,
)
from farm.core.reports import Sample
from farm.core.spec import JobSpec
from farm.core.trainer_lines import Epoch, StepProfile, TrainerResult

SPEC = JobSpec(
    model="m", dataset="d", strategy="mwms_ring", world_size=2, global_batch_size=64, steps=4
)
RESULT = TrainerResult(
    timed_step_count=4,
    window_step_count=4,
    timed_window_s=2.0,
    timed_begun_monotonic_s=100.0,
    interface_rx_bytes=8000,
    interface_tx_bytes=8000,
    payload_rx_bytes=4000,
    payload_tx_bytes=4000,
    train_loss=0.5,
    val_accuracy_ratio=0.9,
    peak_resident_bytes=1,
    seed=0,
    profile=StepProfile(step_count=5, step_time_s=0.6, compute_s=0.4, communication_s=0.2),
)


def outcome(rank: int, **changes: object) -> RankOutcome:
    value = RankOutcome(
        rank=rank,
        result=RESULT,
        timed_begun_s=1.5,
        samples=tuple(Sample(tick=t, cpu_ratio=t / 10, resident_bytes=t) for t in range(6)),
    )
    return dataclasses.replace(value, **changes)  # type: ignore[arg-type] # any field


def test_quantiles_interpolate() -> None:
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.25) == 1.75
    assert quantile([7.0], 0.99) == 7.0


def test_one_slow_step_moves_the_spread_but_not_the_median() -> None:
    calm = step_statistics([0.5, 0.5, 0.5, 0.5])
    jolted = step_statistics([0.5, 9.5, 0.5, 0.5])
    assert calm is not None
    assert jolted is not None
    assert jolted.median_s == calm.median_s == 0.5
    assert jolted.spread_s > calm.spread_s == 0.0


def test_no_steps_have_no_statistics() -> None:
    assert step_statistics([]) is None


def test_only_seconds_wholly_within_the_timed_window_count() -> None:
    # The window is 1.5 s to 3.5 s after go; only tick 3 covers a second (2 to 3) inside it.
    assert [s.tick for s in timed_samples(outcome(0))] == [3]


def test_a_window_shorter_than_a_tick_falls_back_to_all_samples() -> None:
    short = outcome(0, result=dataclasses.replace(RESULT, timed_window_s=0.2))
    assert len(timed_samples(short)) == 6


def test_bytes_per_step_are_one_ranks_on_average() -> None:
    busy = dataclasses.replace(RESULT, payload_tx_bytes=12000)
    assert sent_bytes_per_step([outcome(0), outcome(1, result=busy)]) == 2000


def test_what_else_passed_the_interface_is_not_the_gangs() -> None:
    noisy = dataclasses.replace(RESULT, interface_tx_bytes=10**9)
    assert sent_bytes_per_step([outcome(0, result=noisy)]) == 1000


def test_partial_steps_send_as_many_bytes_as_full_ones() -> None:
    half_partial = dataclasses.replace(RESULT, timed_step_count=4, window_step_count=8)
    assert sent_bytes_per_step([outcome(0, result=half_partial)]) == 500


def test_bytes_that_were_not_counted_are_none_and_not_zero() -> None:
    uncounted = dataclasses.replace(RESULT, payload_tx_bytes=None)
    assert sent_bytes_per_step([outcome(0, result=uncounted)]) is None


@pytest.mark.parametrize(("world_size", "share"), [(1, 0.0), (2, 1.0), (4, 1.5)])
def test_the_rings_theory(world_size: int, share: float) -> None:
    assert ring_bytes_per_step(world_size=world_size, gradient_bytes=400) == 400 * share


def test_the_measurement_of_a_gang() -> None:
    measured = measure(
        SPEC,
        [outcome(0), outcome(1)],
        timed_steps_s=[0.4, 0.5, 0.5, 0.6],
        epochs=[],
        train_examples_count=1000,
    )
    assert measured.step_time_s == 0.5
    assert measured.timed_step_count == 4
    assert measured.throughput_examples_per_s == pytest.approx(64 * 4 / 2.0)
    assert measured.steps_per_epoch == 16
    assert measured.time_per_epoch_s == pytest.approx(8.0)
    assert measured.accuracy == 0.9
    assert measured.communication_s == pytest.approx(0.2)
    assert measured.cpu_ratio == pytest.approx(0.3)
    assert measured.resident_bytes == 3
    assert measured.net_rx_bytes_per_s is None


def test_epochs_that_were_run_say_the_time_of_an_epoch_themselves() -> None:
    epochs = [
        Epoch(
            epoch=i,
            train_s=s,
            step_count=16,
            train_loss=None,
            val_loss=None,
            val_accuracy_ratio=None,
        )
        for i, s in enumerate((9.0, 7.0, 8.0))
    ]
    measured = measure(
        SPEC, [outcome(0)], timed_steps_s=[0.5], epochs=epochs, train_examples_count=1000
    )
    assert measured.time_per_epoch_s == 8.0


def test_an_attempt_without_timed_steps_has_no_step_time() -> None:
    measured = measure(SPEC, [outcome(0)], timed_steps_s=[], epochs=[], train_examples_count=10)
    assert measured.step_time_s is None
    assert measured.throughput_examples_per_s is None
    assert measured.time_per_epoch_s is None


def test_two_machines_at_twice_the_throughput_scale_perfectly() -> None:
    ratio = scaling_efficiency_ratio(
        throughput_examples_per_s=200.0, world_size=2, single_examples_per_s=100.0
    )
    assert ratio == 1.0


def test_a_mean_leaves_out_what_was_not_measured() -> None:
    assert mean([1.0, None, 3.0]) == 2.0
    assert mean([None]) is None

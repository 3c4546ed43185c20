from __future__ import annotations

import dataclasses

import pytest

from farm.core.means import mean
from farm.core.measurement import (
    RankOutcome,
    averaged,
    measure,
    quantile,
    received_bytes_per_step,
    ring_bytes_per_step,
    scaling_efficiency_ratio,
    sent_bytes_per_step,
    servers,
    step_statistics,
    timed_samples,
)
from farm.core.reports import Sample
from farm.core.spec import JobSpec, ServerPlacement
from farm.core.trainer_lines import Epoch, Exchange, StepProfile, TrainerResult

APART = ServerPlacement.APART
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
        timed_steps_s={0: [0.4, 0.5, 0.5, 0.6]},
        epochs={},
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
        SPEC, [outcome(0)], timed_steps_s={0: [0.5]}, epochs={0: epochs}, train_examples_count=1000
    )
    assert measured.time_per_epoch_s == 8.0


def test_an_attempt_without_timed_steps_has_no_step_time() -> None:
    measured = measure(SPEC, [outcome(0)], timed_steps_s={}, epochs={}, train_examples_count=10)
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


def test_ranks_that_only_serve_are_in_no_mean() -> None:
    spec = dataclasses.replace(
        SPEC, strategy="ps_async", world_size=1, server_count=1, server_placement=APART
    )
    server = outcome(
        1,
        result=dataclasses.replace(
            RESULT, window_step_count=0, payload_tx_bytes=None, payload_rx_bytes=None, profile=None
        ),
        timed_begun_s=0.0,
        samples=tuple(Sample(tick=t, cpu_ratio=9.0, resident_bytes=10**9) for t in range(6)),
    )
    measured = measure(
        spec,
        [outcome(0), server],
        timed_steps_s={0: [0.5]},
        epochs={},
        train_examples_count=100,
        is_synchronous=False,
    )
    assert measured.cpu_ratio == pytest.approx(0.3)
    assert measured.resident_bytes == 3
    assert measured.sent_bytes_per_step == 1000
    [found] = servers(spec, [outcome(0), server])
    assert (found.rank, found.cpu_ratio, found.resident_bytes) == (1, 9.0, 10**9)


def test_a_server_is_looked_at_while_steps_were_timed() -> None:
    spec = dataclasses.replace(SPEC, world_size=1, server_count=1, server_placement=APART)
    busy_at_3 = tuple(Sample(tick=t, cpu_ratio=float(t == 3)) for t in range(6))
    [found] = servers(spec, [outcome(0), outcome(1, timed_begun_s=0.0, samples=busy_at_3)])
    assert found.cpu_ratio == 1.0


def test_ranks_that_go_at_their_own_pace_are_all_looked_at() -> None:
    spec = dataclasses.replace(SPEC, global_batch_size=65)
    measured = measure(
        spec,
        [outcome(0), outcome(1)],
        timed_steps_s={0: [0.1, 0.1], 1: [0.4, 0.4]},
        epochs={},
        train_examples_count=650,
        is_synchronous=False,
    )
    assert measured.step_time_s == pytest.approx(0.25)
    assert measured.timed_step_count == 4
    assert measured.throughput_examples_per_s == pytest.approx(
        # Both have made two steps of their share when the slower one is done.
        2 * 65 / 0.8
    )
    assert measured.time_per_epoch_s == pytest.approx(10 * 0.4)


def test_an_epoch_of_a_gang_out_of_step_ends_with_its_slowest_rank() -> None:
    def epoch(number: int, train_s: float) -> Epoch:
        return Epoch(
            epoch=number,
            train_s=train_s,
            step_count=4,
            train_loss=None,
            val_loss=None,
            val_accuracy_ratio=None,
        )

    measured = measure(
        SPEC,
        [outcome(0), outcome(1)],
        timed_steps_s={0: [0.1], 1: [0.1]},
        epochs={0: [epoch(0, 3.0), epoch(1, 6.0)], 1: [epoch(0, 5.0), epoch(1, 4.0)]},
        train_examples_count=100,
        is_synchronous=False,
    )
    assert measured.time_per_epoch_s == 5.5


def test_an_exchange_every_few_steps_is_not_hidden_by_the_median() -> None:
    assert averaged([1.0, 1.0, 4.0, 1.0, 1.0, 4.0, 9.0], 3) == (2.0, 2.0)
    assert averaged([1.0, 3.0], 8) == (2.0,)
    assert averaged([], 8) == ()
    spec = dataclasses.replace(SPEC, steps_between_averages=3)
    measured = measure(
        spec,
        [outcome(0)],
        timed_steps_s={0: [1.0, 1.0, 4.0] * 4},
        epochs={},
        train_examples_count=64,
    )
    assert measured.step_time_s == 2.0
    assert measured.timed_step_count == 12


def test_updates_staleness_and_waiting_are_those_of_the_ranks_that_train() -> None:
    def with_exchange(rank: int, *counts: int) -> RankOutcome:
        exchange = Exchange(
            update_count=sum(counts), push_s=0.1 + rank, pull_s=None, staleness_counts=counts
        )
        return outcome(rank, result=dataclasses.replace(RESULT, exchange=exchange))

    measured = measure(
        SPEC,
        [with_exchange(0, 2, 1), with_exchange(1, 0, 0, 1)],
        timed_steps_s={0: [0.5], 1: [0.5]},
        epochs={},
        train_examples_count=64,
        is_synchronous=False,
    )
    assert measured.update_count == 4
    assert measured.staleness_mean == pytest.approx(3 / 4)
    assert measured.staleness_max == 2
    assert measured.push_s == pytest.approx(0.6)
    assert measured.pull_s is None
    assert measured.idle_ratio == pytest.approx(1 / 3)


def test_a_synchronous_gang_updates_its_weights_once_a_step() -> None:
    both = dataclasses.replace(RESULT, exchange=Exchange(update_count=4))
    measured = measure(
        SPEC,
        [outcome(0, result=both), outcome(1, result=both)],
        timed_steps_s={0: [0.5]},
        epochs={},
        train_examples_count=64,
    )
    assert measured.update_count == 4
    assert measured.staleness_mean is None


def test_received_bytes_are_counted_as_sent_ones() -> None:
    greedy = dataclasses.replace(RESULT, payload_rx_bytes=12000)
    assert received_bytes_per_step([outcome(0), outcome(1, result=greedy)]) == 2000

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from farm.configuration.catalogue import GangShape
from farm.configuration.spec import JobSpec, ServerPlacement
from farm.measuring.measurement import (
    AttemptFigures,
    RankOutcome,
    TrafficDirection,
    Unknown,
    averaged,
    bytes_per_step,
    scaling_efficiency_ratio,
    servers,
    step_statistics,
    timed_samples,
    window_samples,
)
from farm.measuring.quantities import Measured
from farm.measuring.quantities import measure as measure_all
from farm.messages.reports import Sample
from farm.messages.trainer_lines import (
    INTERFACE,
    SCRIPT_TIMES,
    TIMED_PARTS,
    WINDOW_CPU_RATIO,
    WINDOW_TRAINING_S,
    Exchange,
    ScriptTimes,
    StepProfile,
    TimedPart,
    TrainerResult,
)
from farm.registry import strategy
from farm.statistics import mean, quantile
from farm.values.codec import to_json

APART = ServerPlacement.APART
SPEC = JobSpec(
    model="m", dataset="d", strategy="mwms_ring", world_size=2, global_batch_size=64, steps=4
)
RESULT = TrainerResult(
    timed_step_count=4,
    window_step_count=4,
    timed_window_s=3.0,
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


def measure(spec: JobSpec, ranks: Sequence[RankOutcome], **given: Any) -> Measured:
    return measure_all(AttemptFigures(spec=spec, ranks=ranks, **given))


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
    # The window is 1.5 s to 4.5 s after go: ticks 3 and 4 cover the seconds 2 to 4.
    assert [s.tick for s in timed_samples(outcome(0))] == [3, 4]


def test_a_window_shorter_than_a_second_holds_no_sample_of_timed_steps() -> None:
    short = outcome(0, result=dataclasses.replace(RESULT, timed_window_s=0.2))
    assert timed_samples(short) == ()
    assert len(window_samples(short)) == 6  # for memory, and for what disturbed


@pytest.mark.parametrize("timed_window_s", [0.2, 2.0])
def test_no_mean_is_made_of_fewer_than_two_seconds(timed_window_s: float) -> None:
    short = dataclasses.replace(RESULT, timed_window_s=timed_window_s)
    measured = measure(
        SPEC,
        [outcome(0), outcome(1, result=short)],
        timed_steps_s={0: [0.5]},
        train_examples_count=1000,
    )
    assert (measured.values["cpu_ratio"], measured.values["net_tx_bytes_per_s"]) == (None, None)
    assert measured.values["resident_bytes"] is not None
    assert "timed steps" in measured.unknown_because["cpu_ratio"]
    assert measured.unknown_because.keys() >= {"net_rx_bytes_per_s", "net_tx_bytes_per_s"}


def counted(*, cpu_ratio: float | None, interface: str = "eth0") -> TrainerResult:
    """Return the result of a window of 0.2 s in which a trainer has counted what it used."""
    use: dict[str, object] = {
        WINDOW_TRAINING_S: 0.2,
        WINDOW_CPU_RATIO: cpu_ratio,
        INTERFACE: interface,
    }
    return dataclasses.replace(RESULT, timed_window_s=0.2, details=use)


def measure_two(*results: TrainerResult, spec: JobSpec = SPEC) -> Measured:
    ranks = [outcome(rank, result=result) for rank, result in enumerate(results)]
    return measure(spec, ranks, timed_steps_s={0: [0.05]}, train_examples_count=1000)


@pytest.mark.parametrize(("interface", "bytes_per_s"), [("eth0", 40_000.0), ("lo", 20_000.0)])
def test_a_short_window_has_the_means_that_the_trainers_counted(
    interface: str, bytes_per_s: float
) -> None:
    results = (counted(cpu_ratio=ratio, interface=interface) for ratio in (0.5, 1.0))
    measured = measure_two(*results)
    assert measured.values["cpu_ratio"] == 0.75
    assert (
        measured.values["net_rx_bytes_per_s"]
        == measured.values["net_tx_bytes_per_s"]
        == bytes_per_s
    )
    assert not measured.unknown_because.keys() & {"cpu_ratio", "net_rx_bytes_per_s"}


def test_what_one_trainer_did_not_count_is_no_mean_of_the_others() -> None:
    measured = measure_two(counted(cpu_ratio=0.5), counted(cpu_ratio=None))
    assert measured.values["cpu_ratio"] is None
    assert "timed steps" in measured.unknown_because["cpu_ratio"]


def test_a_trainer_counts_nothing_of_a_server_beside_it() -> None:
    beside = dataclasses.replace(SPEC, server_count=1)
    results = (counted(cpu_ratio=0.5), counted(cpu_ratio=0.5))
    assert measure_two(*results, spec=beside).values["cpu_ratio"] is None
    apart = dataclasses.replace(beside, server_placement=APART)
    assert measure_two(*results, spec=apart).values["cpu_ratio"] == 0.5


def test_one_rank_of_an_agent_counts_nothing_of_the_others() -> None:
    several = dataclasses.replace(SPEC, world_size=4, axes={"ranks_per_agent": 2})
    results = (counted(cpu_ratio=0.5), counted(cpu_ratio=0.5))
    assert measure_two(*results, spec=several).values["cpu_ratio"] is None


def test_sampled_seconds_are_means_before_counters_are() -> None:
    both = dataclasses.replace(RESULT, details=counted(cpu_ratio=0.9).details)
    assert measure_two(both, both).values["cpu_ratio"] == pytest.approx(0.35)


def test_evaluation_and_waiting_between_epochs_are_in_no_mean() -> None:
    parts = ((0.0, 3.5), (10.0, 10.4), (15.0, 18.0))
    by_epochs = dataclasses.replace(
        RESULT,
        timed_window_s=20.0,
        details={TIMED_PARTS: to_json([TimedPart(begin_s=a, end_s=b) for a, b in parts])},
    )
    # Go is 1.5 s before the first step: seconds 3, 4 and 5 are of the first epoch, 18 and 19 of
    # the last, and none is wholly within the second.
    samples = tuple(
        Sample(tick=t, cpu_ratio=0.5 if t in (3, 4, 5, 18, 19) else 0.0) for t in range(30)
    )
    rank = outcome(0, result=by_epochs, samples=samples)
    assert [s.tick for s in timed_samples(rank)] == [3, 4, 5, 18, 19]
    measured = measure(SPEC, [rank], timed_steps_s={0: [0.5]}, train_examples_count=1000)
    assert measured.values["cpu_ratio"] == 0.5


class CountedSums(float):
    """A number that counts how often something is added to it."""

    count = 0

    def __add__(self, other: float) -> float:
        CountedSums.count += 1
        return float(self) + other


def test_each_timed_part_is_placed_once_and_not_for_each_sample() -> None:
    """Days of training by epochs have a hundred thousand of both."""
    parts = [TimedPart(begin_s=10.0 * i, end_s=10.0 * i + 8.0) for i in range(200)]
    result = dataclasses.replace(RESULT, details={TIMED_PARTS: to_json(parts)})
    samples = tuple(Sample(tick=tick) for tick in range(2000))
    rank = outcome(0, result=result, samples=samples)
    found = timed_samples(dataclasses.replace(rank, timed_begun_s=CountedSums(0.0)))
    assert [s.tick for s in found] == [t for t in range(2000) if 1 <= t % 10 <= 8]
    assert CountedSums.count <= 2 * len(parts)


def test_bytes_per_step_are_one_ranks_on_average() -> None:
    busy = dataclasses.replace(RESULT, payload_tx_bytes=12000)
    assert bytes_per_step([outcome(0), outcome(1, result=busy)], TrafficDirection.SENT) == 2000


def test_a_mean_over_ranks_lacks_none_of_them() -> None:
    uncounted = dataclasses.replace(RESULT, payload_tx_bytes=None)
    found = bytes_per_step([outcome(0), outcome(1, result=uncounted)], TrafficDirection.SENT)
    assert isinstance(found, Unknown)
    assert "rank 1" in found.reason


@pytest.mark.parametrize(
    ("strategy_name", "world_size", "steps_between", "counted", "is_known"),
    [
        ("mwms_ring", 2, 1, 1000, True),
        ("mwms_ring", 2, 1, 999, False),
        ("mwms_auto", 4, 1, 1499, False),
        ("torch_ddp", 4, 1, 1500, True),
        ("torch_fsdp", 4, 1, 2250, True),
        ("torch_fsdp", 4, 1, 2249, False),
        ("ps_sync", 3, 1, 999, False),
        ("replicated", 3, 1, 1001, True),
        ("central_reduce", 4, 1, 1499, False),
        ("gossip", 3, 1, 667, True),
        ("gossip", 3, 1, 666, False),
        # Ten steps hold at least two averages of every fourth, and may hold no third one.
        ("local_sgd", 2, 4, 200, True),
        ("local_sgd", 2, 4, 199, False),
        ("local_sgd", 2, 11, 0, True),
        ("single", 1, 1, 0, True),
    ],
)
def test_a_count_below_what_the_strategy_needs_is_no_figure(
    strategy_name: str, world_size: int, steps_between: int, counted: int, is_known: bool
) -> None:
    described = strategy(strategy_name)
    result = dataclasses.replace(
        RESULT,
        timed_step_count=10,
        window_step_count=10,
        payload_tx_bytes=counted * 10,
        payload_rx_bytes=counted * 10,
    )
    measured = measure(
        dataclasses.replace(SPEC, strategy=strategy_name, world_size=world_size),
        [outcome(rank, result=result) for rank in range(world_size)],
        timed_steps_s={0: [0.5]},
        train_examples_count=640,
        is_synchronous=described.facts.is_synchronous,
        traffic=described.traffic(
            GangShape(world_size=world_size, steps_between_averages=steps_between), 1000
        ),
    )
    for column in ("sent_bytes_per_step", "received_bytes_per_step"):
        if is_known:
            assert measured.values[column] == counted
            assert column not in measured.unknown_because
        else:
            assert measured.values[column] is None
            assert "at least" in measured.unknown_because[column]


def test_a_step_of_a_small_batch_sends_less_where_activations_are_sent() -> None:
    shape = GangShape(world_size=2, pipeline_microbatches=4, handed_on_bytes=996)
    traffic = strategy("torch_pipeline").traffic(shape, 1000)
    for counted, is_known in ((4000, True), (3999, False)):
        half = dataclasses.replace(
            RESULT, timed_step_count=4, window_step_count=5, payload_tx_bytes=counted
        )
        found = bytes_per_step([outcome(0, result=half)], TrafficDirection.SENT, traffic=traffic)
        assert found == counted / 5 if is_known else isinstance(found, Unknown)


def test_a_rank_without_examples_in_a_partial_step_need_not_push() -> None:
    described = strategy("ps_async")
    half = dataclasses.replace(
        RESULT,
        timed_step_count=4,
        window_step_count=8,
        payload_tx_bytes=4000,
        exchange=Exchange(update_count=4),
    )
    traffic = described.traffic(GangShape(world_size=2, server_count=1), 1000)
    ranks = [outcome(0, result=half)]
    found = bytes_per_step(ranks, TrafficDirection.SENT, traffic=traffic, is_synchronous=False)
    assert found == 500
    found = bytes_per_step(ranks, TrafficDirection.SENT, traffic=traffic, is_synchronous=True)
    assert isinstance(found, Unknown)


def test_what_else_passed_the_interface_is_not_the_gangs() -> None:
    noisy = dataclasses.replace(RESULT, interface_tx_bytes=10**9)
    assert bytes_per_step([outcome(0, result=noisy)], TrafficDirection.SENT) == 1000


def test_partial_steps_send_as_many_bytes_as_full_ones() -> None:
    half_partial = dataclasses.replace(RESULT, timed_step_count=4, window_step_count=8)
    assert bytes_per_step([outcome(0, result=half_partial)], TrafficDirection.SENT) == 500


def test_bytes_that_were_not_counted_are_none_and_not_zero() -> None:
    uncounted = dataclasses.replace(RESULT, payload_tx_bytes=None)
    assert isinstance(
        bytes_per_step([outcome(0, result=uncounted)], TrafficDirection.SENT), Unknown
    )


def test_the_measurement_of_a_gang() -> None:
    measured = measure(
        SPEC,
        [outcome(0), outcome(1)],
        timed_steps_s={0: [0.4, 0.5, 0.5, 0.6]},
        train_examples_count=1000,
    )
    assert measured.values["step_time_s"] == 0.5
    assert measured.values["timed_step_count"] == 4
    assert measured.values["throughput_examples_per_s"] == pytest.approx(64 * 4 / 2.0)
    assert measured.values["steps_per_epoch"] == 16
    assert measured.values["time_per_epoch_s"] == pytest.approx(0.5 * 1000 / 64)
    assert measured.values["accuracy"] == 0.9
    assert measured.values["communication_s"] == pytest.approx(0.2)
    assert measured.values["cpu_ratio"] == pytest.approx(0.35)
    assert measured.values["resident_bytes"] == 4
    assert measured.values["net_rx_bytes_per_s"] is None


def test_a_partial_step_counts_in_an_epoch_as_what_it_is() -> None:
    measured = measure(SPEC, [outcome(0)], timed_steps_s={0: [0.5]}, train_examples_count=65)
    assert measured.values["steps_per_epoch"] == 2
    assert measured.values["time_per_epoch_s"] == pytest.approx(0.5 * 65 / 64)
    repeated = measure(SPEC, [outcome(0)], timed_steps_s={0: [0.5]}, train_examples_count=10)
    assert repeated.values["time_per_epoch_s"] == 0.5  # an epoch is one full batch


@pytest.mark.parametrize("epochs", [None, 3])
def test_a_time_per_epoch_is_the_same_by_steps_and_by_epochs(epochs: int | None) -> None:
    spec = dataclasses.replace(SPEC, epochs=epochs, steps=None if epochs else 4)
    measured = measure(spec, [outcome(0)], timed_steps_s={0: [0.5]}, train_examples_count=1000)
    assert measured.values["time_per_epoch_s"] == pytest.approx(0.5 * 1000 / 64)


def test_waits_for_loaded_batches_are_means_over_all_steps_and_ranks() -> None:
    def waits_s(*of_ranks: float | None) -> tuple[Any, Any]:
        results = [
            dataclasses.replace(RESULT, data_wait_s=wait_s, window_step_count=5)
            for wait_s in of_ranks
        ]
        ranks = [outcome(rank, result=result) for rank, result in enumerate(results)]
        values = measure(SPEC, ranks, timed_steps_s={0: [0.5, 0.3]}, train_examples_count=0).values
        return values["data_wait_s"], values["data_wait_ratio"]

    assert waits_s(0.5, 1.5) == (pytest.approx(0.2), pytest.approx(0.5))
    assert waits_s(0.0, 0.0) == (0.0, 0.0)
    assert waits_s(0.5, None) == (None, None)


def test_what_a_script_told_beside_its_steps_is_a_mean_over_steps_and_ranks() -> None:
    def scripted(**changes: Any) -> TrainerResult:
        usual: dict[str, Any] = {
            **{"pause_s": 0.2, "data_wait_s": 0.4, "examples_count": 40},
            **{"epoch_count": 2, "steps_per_epoch": 3},
        }
        times = ScriptTimes(**{**usual, **changes})
        return dataclasses.replace(RESULT, details={SCRIPT_TIMES: to_json(times)})

    def values(*results: TrainerResult, spec: JobSpec = SPEC) -> Mapping[str, Any]:
        ranks = [outcome(rank, result=result) for rank, result in enumerate(results)]
        steps_s = {0: [0.5, 0.5, 4.5, 0.5]}
        return measure(spec, ranks, timed_steps_s=steps_s, train_examples_count=0).values

    found = values(scripted(), scripted(data_wait_s=0.8, examples_count=44))
    assert found["examples_per_step"] == 10 + 11
    several = dataclasses.replace(SPEC, world_size=4, axes={"ranks_per_agent": 2})
    assert (
        values(scripted(), scripted(examples_count=44), spec=several)["examples_per_step"]
        == 10 + 11
    )
    assert found["throughput_examples_per_s"] == pytest.approx(4 * 21 / 6.0)
    assert values(scripted(), scripted(examples_count=None))["examples_per_step"] is None
    assert found["data_wait_s"] == pytest.approx((0.1 + 0.2) / 2)
    assert found["data_wait_ratio"] == pytest.approx(0.15 / (6.0 / 4))
    # The third step holds a pause of 4 s.
    assert found["pause_s"] == pytest.approx(0.2 / 4 + 4.0 / 4)
    assert (found["epochs"], found["steps_per_epoch"]) == (2, 3)
    assert found["time_per_epoch_s"] == pytest.approx(3 * 0.5)
    assert values(scripted(), scripted(data_wait_s=None))["data_wait_s"] is None
    assert values(scripted(), scripted(data_wait_s=None))["data_wait_ratio"] is None
    assert values(RESULT, RESULT)["pause_s"] is None


def test_an_attempt_without_timed_steps_has_no_step_time() -> None:
    measured = measure(SPEC, [outcome(0)], timed_steps_s={}, train_examples_count=10)
    assert measured.values["step_time_s"] is None
    assert measured.values["throughput_examples_per_s"] is None
    assert measured.values["time_per_epoch_s"] is None


def test_two_machines_at_twice_the_throughput_scale_perfectly() -> None:
    ratio = scaling_efficiency_ratio(
        throughput_examples_per_s=200.0, machine_count=2, single_examples_per_s=100.0
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
        train_examples_count=100,
        is_synchronous=False,
    )
    assert measured.values["cpu_ratio"] == pytest.approx(0.35)
    assert measured.values["resident_bytes"] == 4
    assert measured.values["sent_bytes_per_step"] == 1000
    [found] = servers(spec, [outcome(0), server])
    assert (found.rank, found.cpu_ratio, found.resident_bytes) == (1, 9.0, 10**9)


def test_a_server_is_looked_at_while_steps_were_timed() -> None:
    spec = dataclasses.replace(SPEC, world_size=1, server_count=1, server_placement=APART)
    busy = tuple(Sample(tick=t, cpu_ratio=float(t in (3, 4))) for t in range(6))
    [found] = servers(spec, [outcome(0), outcome(1, timed_begun_s=0.0, samples=busy)])
    assert found.cpu_ratio == 1.0


def test_each_rank_of_an_agent_goes_at_its_own_pace() -> None:
    measured = measure(
        dataclasses.replace(SPEC, world_size=4, global_batch_size=65, axes={"ranks_per_agent": 2}),
        [outcome(0), outcome(1)],
        timed_steps_s={0: [0.1, 0.1], 1: [0.3], 2: [0.4, 0.4], 3: [0.2, 0.2]},
        train_examples_count=650,
        is_synchronous=False,
    )
    # Rank 0 has 17 examples of a step, and each other 16.
    assert measured.values["throughput_examples_per_s"] == pytest.approx((2 * 17 + 5 * 16) / 0.8)
    assert measured.values["timed_step_count"] == 7


def test_ranks_that_go_at_their_own_pace_are_all_looked_at() -> None:
    spec = dataclasses.replace(SPEC, global_batch_size=65)
    measured = measure(
        spec,
        [outcome(0), outcome(1)],
        timed_steps_s={0: [0.1, 0.1], 1: [0.4, 0.4]},
        train_examples_count=650,
        is_synchronous=False,
    )
    assert measured.values["step_time_s"] == pytest.approx(0.25)
    assert measured.values["timed_step_count"] == 4
    assert measured.values["throughput_examples_per_s"] == pytest.approx(
        # Both have made two steps of their share when the slower one is done.
        2 * 65 / 0.8
    )
    assert measured.values["time_per_epoch_s"] == pytest.approx(10 * 0.4)


def test_an_exchange_every_few_steps_is_not_hidden_by_the_median() -> None:
    assert averaged([1.0, 1.0, 4.0, 1.0, 1.0, 4.0, 9.0], 3) == (2.0, 2.0)
    assert averaged([1.0, 3.0], 8) == (2.0,)
    assert averaged([], 8) == ()
    spec = dataclasses.replace(SPEC, steps_between_averages=3)
    measured = measure(
        spec,
        [outcome(0)],
        timed_steps_s={0: [1.0, 1.0, 4.0] * 4},
        train_examples_count=64,
    )
    assert measured.values["step_time_s"] == 2.0
    assert measured.values["timed_step_count"] == 12


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
        train_examples_count=64,
        is_synchronous=False,
    )
    assert measured.values["update_count"] == 4
    assert measured.values["staleness_mean"] == pytest.approx(3 / 4)
    assert measured.values["staleness_max"] == 2
    assert measured.values["push_s"] == pytest.approx(0.6)
    assert measured.values["pull_s"] is None
    assert measured.values["idle_ratio"] == pytest.approx(1 / 3)


def test_a_synchronous_gang_updates_its_weights_once_a_step() -> None:
    both = dataclasses.replace(RESULT, exchange=Exchange(update_count=4))
    measured = measure(
        SPEC,
        [outcome(0, result=both), outcome(1, result=both)],
        timed_steps_s={0: [0.5]},
        train_examples_count=64,
    )
    assert measured.values["update_count"] == 4
    assert measured.values["staleness_mean"] is None


def test_received_bytes_are_counted_as_sent_ones() -> None:
    greedy = dataclasses.replace(RESULT, payload_rx_bytes=12000)
    assert (
        bytes_per_step([outcome(0), outcome(1, result=greedy)], TrafficDirection.RECEIVED) == 2000
    )

"""The physical sum on times whose law is known, or made to be hard in one way."""

from __future__ import annotations

import pytest

from farm.configuration.spec import TrainingPass
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.predictors.columns import FeatureColumns
from farm.recommend.predictors.physical import Physical
from farm.recommend.setup import Setup
from tests.truths.synthetic_steps import configuration, grid, law, measure


def predicted_s(observations: list[Observation], *requested: Configuration) -> list[float]:
    return [float(t) for t in Physical().fit(observations).times_s(FeatureColumns.of(requested))]


def exact(configurations: list[Configuration]) -> list[Observation]:
    return measure(configurations, log_noise=lambda c: 0.0)


@pytest.mark.parametrize(
    "requested",
    [
        configuration(3, 300, 0.05),  # between
        configuration(4, 4096, 0.02),  # beyond the largest batch
        configuration(4, 256, 0.2),  # the longest delay
        configuration(16, 1024, 0.02),  # and the most machines
        configuration(1, 2048),
    ],
)
def test_a_sum_of_its_own_terms_is_found_again(requested: Configuration) -> None:
    assert predicted_s(exact(grid()), requested) == pytest.approx([law(requested)], rel=0.03)


def test_outliers_change_little() -> None:
    observations = exact(grid())
    for i in range(0, len(observations), 12):
        observations[i] = Observation(
            measurement_id=i, configuration=observations[i].configuration, step_time_s=3.0
        )
    requested = configuration(3, 300, 0.05)
    assert predicted_s(observations, requested) == pytest.approx([law(requested)], rel=0.05)


def test_the_last_slope_goes_on_beyond_the_largest_world_size() -> None:
    """A server that is full from four machines on: 10 ms, then 2 ms for each further machine."""

    def full(c: Configuration) -> float:
        return 0.01 + 0.002 * max(0, c.world_size - 4)

    known = [configuration(n, 32 * n) for n in (1, 2, 4, 8, 12, 16)]
    observations = measure(known, time_s=full, log_noise=lambda c: 0.0)
    requested = [configuration(n, 32 * n) for n in (24, 32)]
    assert predicted_s(observations, *requested) == pytest.approx(
        [full(c) for c in requested], rel=0.1
    )


def test_networks_share_what_a_replica_does() -> None:
    """One machine was never measured, but on the fast network machines hardly wait."""

    def time_s(c: Configuration) -> float:
        return 1e-4 * c.per_replica_batch_size + (0.0 if c.network == "fast" else 0.05)

    known = [
        configuration(n, b * n, network=network)
        for n in (2, 4, 8)
        for b in (64, 256, 1024)
        for network in ("fast", "slow")
    ]
    observations = measure(known, time_s=time_s, log_noise=lambda c: 0.0)
    requested = configuration(1, 512)
    assert predicted_s(observations, requested) == pytest.approx([0.0512], rel=0.15)


def test_one_pass_learns_the_shape_from_the_other() -> None:
    """Two machines take twenty times as long as one, known of the forward pass only."""

    def time_s(c: Configuration) -> float:
        passes = 4 if c.training_pass is TrainingPass.FORWARD_BACKWARD else 1
        return passes * (0.5 if c.is_one_machine else 10.0)

    known = [
        configuration(n, 32 * n, training_pass=training_pass)
        for n in (1, 2, 4, 8)
        for training_pass in TrainingPass
    ]
    requested = configuration(1, 32, training_pass=TrainingPass.FORWARD_BACKWARD)
    known.remove(requested)
    observations = measure(known, time_s=time_s, log_noise=lambda c: 0.0)
    assert predicted_s(observations, requested) == pytest.approx([2.0], rel=0.6)  # not 40 s


def test_one_pass_learns_more_from_the_other_than_from_another_framework() -> None:
    """The other framework's single machine takes eight times as long."""

    def time_s(c: Configuration) -> float:
        passes = 4 if c.training_pass is TrainingPass.FORWARD_BACKWARD else 1
        if c.framework == "other":
            return passes * (4.0 if c.is_one_machine else 6.0)
        return passes * (0.5 if c.is_one_machine else 10.0)

    known = [
        configuration(n, 32 * n, framework=framework, training_pass=training_pass)
        for n in (1, 2, 4, 8)
        for framework in ("ours", "other")
        for training_pass in TrainingPass
    ]
    requested = configuration(1, 32, framework="ours", training_pass=TrainingPass.FORWARD)
    known.remove(requested)
    observations = measure(known, time_s=time_s, log_noise=lambda c: 0.0)
    assert predicted_s(observations, requested) == pytest.approx([0.5], rel=0.6)


def test_a_strategy_takes_over_what_one_machine_does_from_another() -> None:
    """A ring has no run on one machine; what a replica takes alone is known from a server's."""

    def time_s(c: Configuration) -> float:
        exchange_s = {"server": 0.3, "mwms_ring": 1.2}[c.strategy or ""]
        return 0.1 + 0.02 * c.per_replica_batch_size + exchange_s * (1 - 1 / c.world_size)

    sizes = (1, 2, 4, 8)
    server = [configuration(n, 32 * n, strategy="server") for n in sizes]
    server.append(configuration(1, 128, strategy="server"))
    ring = [configuration(n, 32 * n) for n in sizes[1:]]
    known = measure([*server, *ring], time_s=time_s, log_noise=lambda c: 0.0)
    requested = [configuration(1, 32), configuration(1, 128), configuration(4, 4 * 128)]
    assert predicted_s(known, *requested) == pytest.approx([time_s(c) for c in requested], rel=0.06)


def test_what_one_machine_does_in_another_precision_is_not_taken_over() -> None:
    half = "precision=bfloat16"
    averaging = f"steps_between_averages=8, {half}"

    def time_s(c: Configuration) -> float:
        work_s = 0.01 + 0.01 * c.per_replica_batch_size
        return work_s / (3 if half in str(c.setup) else 1) + 0.02 * (not c.is_one_machine)

    alone = [
        configuration(1, batch, strategy="torch_ddp", setup=Setup.read(way))
        for batch in (32, 64, 128)
        for way in (None, half)
    ]

    def gang(n: int, batch: int) -> Configuration:
        return configuration(n, batch, strategy="torch_local_sgd", setup=Setup.read(averaging))

    known = measure([*alone, gang(2, 64), gang(4, 64)], time_s=time_s, log_noise=lambda c: 0.0)
    requested = [gang(2, 32), gang(2, 128), gang(4, 128), gang(8, 64)]
    assert predicted_s(known, *requested) == pytest.approx([time_s(c) for c in requested], rel=0.03)

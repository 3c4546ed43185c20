"""What is held out together, and between what one chooses."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from farm.recommend.calibrated.splits import Fold, Split, all_splits, beyond_largest, random_folds
from farm.recommend.configuration import Configuration
from farm.recommend.evaluating.questions import default_machine_price, factor, questions
from tests.truths.synthetic_steps import (
    BATCHES,
    DELAYS_S,
    WORLD_SIZES,
    configuration,
    grid,
    measure,
)

STRONG = measure(grid())
WEAK = measure(
    [
        configuration(n, 32 * n, strategy=strategy, network="ethernet" if n > 1 else None)
        for n in (1, 2, 4, 8)
        for strategy in ("ring", "ps")
    ]
)


def named(splits: list[Split], name: str) -> tuple[Fold, ...]:
    return next(split.folds for split in splits if split.name == name)


def test_every_measurement_is_tested_in_one_random_fold() -> None:
    tested = [i for fold in named(all_splits(STRONG), "random") for i in fold.tested]
    assert sorted(tested) == list(range(len(STRONG)))


def test_a_fold_never_trains_with_what_it_tests() -> None:
    for observations in (STRONG, WEAK):
        for split in all_splits(observations):
            assert all(not set(fold.training) & set(fold.tested) for fold in split.folds)


def test_random_folds_depend_on_the_seed_and_not_on_the_order() -> None:
    configurations = grid()

    def tested(order: list[Configuration], seed: int) -> set[frozenset[Configuration]]:
        folds = random_folds(order, lambda c: c, count=10, seed=seed)
        return {frozenset(order[i] for i in fold.tested) for fold in folds}

    assert tested(configurations, 1) == tested(configurations[::-1], 1)
    assert tested(configurations, 1) != tested(configurations, 2)


def test_one_value_is_left_out_everywhere() -> None:
    splits = all_splits(STRONG)
    assert len(named(splits, "batch")) == len(BATCHES)
    assert len(named(splits, "delay")) == len(DELAYS_S)
    assert len(named(splits, "delay, not the first or last")) == len(DELAYS_S) - 2
    assert len(named(splits, "world size")) == len(WORLD_SIZES)
    assert "strategy" not in {split.name for split in splits}


def test_ends_and_corners_are_left_out_too() -> None:
    splits = all_splits(STRONG)
    ends = named(splits, "delay, the first or last")
    tested = [{STRONG[i].configuration.one_way_delay_s for i in fold.tested} for fold in ends]
    assert tested == [{DELAYS_S[0]}, {DELAYS_S[-1]}]
    for fold in named(splits, "world size and batch"):
        trained = [STRONG[i].configuration for i in fold.training]
        for i in fold.tested:
            requested = STRONG[i].configuration
            assert requested.world_size not in {c.world_size for c in trained}
            assert requested.global_batch_size not in {c.global_batch_size for c in trained}


def test_one_curve_or_instance_type_is_known_on_few_machines_alone() -> None:
    observations = measure([*grid(instance_type="small"), *grid(instance_type="large")])
    splits = all_splits(observations)
    for name, most in (
        ("one curve beyond its two smallest gangs", 3),
        ("instance type on one machine only", 1),
        ("instance type on two machines at most", 2),
    ):
        folds = named(splits, name)
        assert len(folds) == 2
        for fold in folds:
            tested = [observations[i].configuration for i in fold.tested]
            [own] = {c.instance_type for c in tested}
            assert min(c.world_size for c in tested) > most
            trained = [observations[i].configuration for i in fold.training]
            assert max(c.world_size for c in trained if c.instance_type == own) == most
            assert max(c.world_size for c in trained if c.instance_type != own) == 4


def test_a_series_of_batches_is_kept_together_where_each_replica_keeps_its_own() -> None:
    observations = measure(
        [configuration(n, b * n, strategy=s) for n in (1, 2, 4) for b in (8, 32) for s in "abc"]
    )

    def series(positions: Sequence[int]) -> set[tuple[str | None, int]]:
        requested = [observations[i].configuration for i in positions]
        return {(c.strategy, c.world_size) for c in requested}

    for fold in named(all_splits(observations), "random"):
        assert not series(fold.tested) & series(fold.training)


def test_one_machine_is_held_out_under_all_strategies_that_print_it() -> None:
    for fold in named(all_splits(WEAK), "random"):
        alone = [i for i, o in enumerate(WEAK) if o.configuration.is_one_machine]
        assert len(set(alone) & set(fold.tested)) in (0, len(alone))


def test_beyond_the_largest_world_size_nothing_is_trained() -> None:
    configurations = [o.configuration for o in STRONG]
    fold = beyond_largest(configurations, from_size=3)
    assert {configurations[i].world_size for i in fold.training} == {1, 2}
    assert {configurations[i].world_size for i in fold.tested} == {3, 4}


def test_one_machine_is_an_option_at_every_delay() -> None:
    found = questions([o.configuration for o in STRONG])
    assert len(found) == len(BATCHES) * len(DELAYS_S)
    assert all([c.world_size for c in options] == list(WORLD_SIZES) for options in found)


def test_a_question_of_a_weak_series_is_how_many_machines() -> None:
    found = questions([o.configuration for o in WEAK])
    assert len(found) == 2
    for options in found:
        assert [c.world_size for c in options] == [1, 2, 4, 8]
        assert len({c.strategy for c in options}) == 1


def test_what_is_minimised_is_of_the_same_work() -> None:
    configurations = [o.configuration for o in WEAK]
    of = factor(configurations, machine_price=default_machine_price(WEAK))
    assert of(configuration(8, 256)) == pytest.approx(1.5 / 256)
    strong = factor([o.configuration for o in STRONG], machine_price=default_machine_price(STRONG))
    assert strong(configuration(4, 64)) == strong(configuration(1, 512)) == 1

import pytest

from farm.recommend.answering.training import epoch_length
from tests.unit.recommend.answering.test_recommend_measured import evidence


def steps(*known: tuple[int, int], batch: int, examples_count: int | None = None) -> int | None:
    rows = [
        evidence(i, global_batch_size=b, steps_per_epoch=s) for i, (b, s) in enumerate(known, 1)
    ]
    return epoch_length(rows, global_batch_size=batch, examples_count=examples_count).step_count


def test_what_was_measured_with_the_batch_size_answers_by_majority() -> None:
    assert steps((64, 50), (64, 70), (64, 70), (32, 3), batch=64, examples_count=10) == 70


def test_epochs_of_other_data_have_no_common_length() -> None:
    found = [(64, 1000), (64, 10), (32, 20)]
    length = epoch_length(
        [evidence(i, global_batch_size=b, steps_per_epoch=s) for i, (b, s) in enumerate(found, 1)],
        global_batch_size=64,
        examples_count=None,
    )
    assert length.is_contradictory
    assert length.unknown_because == (
        "measurements with global_batch_size 64 have epochs of 10 to 1000 steps"
    )


def test_a_fixed_number_of_steps_is_recognised_between_batch_sizes() -> None:
    assert steps((192, 70), (64000, 70), batch=1000, examples_count=60_000) == 70


def test_else_an_epoch_is_one_pass_over_the_examples() -> None:
    assert steps((32, 45), (64, 23), batch=48, examples_count=1437) == 30
    assert steps(batch=48, examples_count=1437) == 30


def test_the_number_of_examples_follows_from_enough_batch_sizes() -> None:
    # 45 steps of 32 are 1,409 to 1,440 examples, 1,437 steps of 1 are 1,437.
    assert steps((32, 45), (1, 1437), batch=48) == 30


def test_an_epoch_that_may_have_several_lengths_is_not_guessed() -> None:
    length = epoch_length(
        [evidence(1, steps_per_epoch=2)], global_batch_size=16, examples_count=None
    )
    assert length.step_count is None
    assert length.unknown_because == "by the measurements an epoch has 5 to 8 steps"


@pytest.mark.parametrize("known", [[(32, 45), (64, 45), (128, 3)], []])
def test_without_a_rule_the_reason_is_said(known: list[tuple[int, int]]) -> None:
    assert steps(*known, batch=48) is None


def test_what_failed_has_no_epochs() -> None:
    row = evidence(1, status="out_of_memory", steps_per_epoch=20)
    assert epoch_length([row], global_batch_size=64, examples_count=None).step_count is None


def full_steps(*known: tuple[int, int], batch: int, examples_count: int | None) -> float | None:
    rows = [
        evidence(i, global_batch_size=b, steps_per_epoch=s) for i, (b, s) in enumerate(known, 1)
    ]
    return epoch_length(rows, global_batch_size=batch, examples_count=examples_count).full_steps


@pytest.mark.parametrize("known", [(), ((1024, 2),), ((64, 23), (32, 45)), ((1, 1437), (64, 23))])
def test_a_partial_step_counts_as_what_it_is(known: tuple[tuple[int, int], ...]) -> None:
    assert full_steps(*known, batch=1024, examples_count=1437) == pytest.approx(1437 / 1024)


def test_measured_batch_sizes_may_tell_the_examples_themselves() -> None:
    assert full_steps((1, 1437), (64, 23), batch=1024, examples_count=None) == 1437 / 1024


@pytest.mark.parametrize("examples_count", [60_000, None])
def test_epochs_that_do_not_follow_from_the_examples_have_whole_steps(
    examples_count: int | None,
) -> None:
    assert full_steps((64, 70), batch=64, examples_count=examples_count) == 70


def test_a_batch_larger_than_the_data_set_is_one_full_step() -> None:
    assert full_steps(batch=2048, examples_count=1437) == 1

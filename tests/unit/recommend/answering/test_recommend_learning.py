from farm.recommend.answering.learning import Curves, Learned, learned
from farm.recommend.contracts import Evidence
from tests.unit.recommend.answering.test_recommend_measured import evidence

OWN = [evidence(1, accuracy=0.8), evidence(2, accuracy=0.9)]
CURVES: Curves = {1: (0.5, 0.7, 0.8), 2: (0.6, 0.8, 0.9)}


def ask(
    own: list[int], others: list[int], *, epochs: int = 1, target: float | None = None
) -> Learned:
    rows = {e.measurement_id: e for e in [*OWN, evidence(3)]}
    return learned(
        [rows[i] for i in own],
        [rows[i] for i in others],
        CURVES,
        epochs=epochs,
        target_accuracy_ratio=target,
    )


def test_the_accuracy_is_that_after_the_epochs_asked_for() -> None:
    assert ask([1], [], epochs=2).accuracy == 0.7
    assert ask([1], [], epochs=9).accuracy == 0.8
    assert ask([1, 2], [], epochs=3) == Learned(
        epoch_count=3, accuracy=0.8500000000000001, accuracy_epochs=3
    )


def test_others_with_the_batch_size_answer_for_what_was_not_trained() -> None:
    found = ask([3], [1, 3], epochs=3)
    assert (found.accuracy, found.is_own) == (0.8, False)


def test_an_accuracy_without_its_epochs_is_nobody_elses() -> None:
    own, other = evidence(8), evidence(9, accuracy=0.7)
    found = learned([own], [own, other], {}, epochs=1, target_accuracy_ratio=None)
    assert found.accuracy is None
    assert learned([other], [], {}, epochs=1, target_accuracy_ratio=None).accuracy == 0.7


def test_an_accuracy_counts_for_no_shorter_training_than_it_was_measured_after() -> None:
    long, short = evidence(8, accuracy=0.95, epochs=100), evidence(9, accuracy=0.4, epochs=1)

    def after(epochs: int, *own: Evidence) -> tuple[float | None, int | None]:
        found = learned(own, [], {}, epochs=epochs, target_accuracy_ratio=None)
        return found.accuracy, found.accuracy_epochs

    assert after(100, long) == (0.95, 100)
    assert after(1, long) == (None, 100)
    assert after(1, long, short) == (0.4, 1)
    assert after(50, long, short) == (0.4, 1)
    assert after(200, long, short) == (0.95, 100)


def test_the_target_is_reached_at_the_first_epoch_that_does() -> None:
    assert ask([1], [], target=0.7).epoch_count == 2
    assert ask([1, 2], [], target=0.7).epoch_count == 2
    assert ask([3], [2], target=0.85).epoch_count == 3


def test_a_target_that_most_never_reached_is_out_of_reach() -> None:
    found = ask([1, 2], [], target=0.85)
    assert found.epoch_count is None
    assert found.unknown_because == "reached at most 0.9 in 3 epochs"


def test_without_a_curve_nobody_knows_when_the_target_is_reached() -> None:
    found = ask([3], [3], target=0.1)
    assert found.epoch_count is None
    assert found.unknown_because is not None

"""The contract of every data set, and where they are looked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from farm.configuration.catalogue import DatasetFacts, ExampleKind
from farm.registry import dataset
from farm.trainers.contracts import Dataset, Examples
from farm.trainers.datasets import DATASETS
from farm.trainers.datasets.arrays import loaded, with_hidden_tokens
from farm.trainers.datasets.locations import data_places, first_readable
from farm.trainers.datasets.synthetic import Synthetic
from farm.trainers.datasets.synthetic_tokens import SyntheticTokens
from farm.trainers.failures import DatasetMissing

ALWAYS_AT_HAND = [d for d in DATASETS if d.facts.is_synthetic or d.facts.name == "digits"]
# What two machines must agree on before their results may be compared.
SHA256 = {
    "digits": "57839a2193a20676bfab2cdaa80cc658efc9fe577e2a80b22905c9ec3e159cf4",
    "synthetic_mnist": "ee9db8d7d2c1cbd674c9bc3ba5ab7085a79d39fc5d808b08682c3dfde7057819",
}
FACTS = DatasetFacts(
    name="tiny",
    summary="",
    train_examples_count=2,
    test_examples_count=1,
    example_shape=(2, 2, 1),
    class_count=3,
    is_synthetic=False,
)


def examples(labels: Sequence[int], *, side: int = 2) -> Examples:
    shape = (len(labels), side, side, 1)
    return Examples(inputs=np.zeros(shape, np.uint8), labels=np.array(labels, np.int64))


@pytest.mark.parametrize("entry", DATASETS, ids=lambda d: d.facts.name)
def test_a_data_set_is_synthetic_exactly_when_its_name_says_so(entry: Dataset) -> None:
    assert entry.facts.is_synthetic == ("synthetic" in entry.facts.name)
    assert entry.facts.is_synthetic == isinstance(entry, Synthetic | SyntheticTokens)


@pytest.mark.parametrize("entry", ALWAYS_AT_HAND, ids=lambda d: d.facts.name)
def test_what_is_loaded_is_what_the_facts_promise(entry: Dataset) -> None:
    data, facts = entry.load(()), entry.facts
    for split, count in (
        (data.train, facts.train_examples_count),
        (data.test, facts.test_examples_count),
    ):
        are_images = facts.kind is ExampleKind.IMAGES
        assert split.inputs.dtype == (np.uint8 if are_images else np.int32)
        assert split.inputs.shape == (count, *facts.example_shape)
        assert split.labels.shape == (split.labels.shape[:1] if are_images else split.inputs.shape)
        assert split.labels.dtype == np.int64
        assert split.labels.max() == facts.class_count - 1 or facts.class_count > 10
    assert data.train.inputs.max() > 200  # the whole range of a byte, or of the tokens, is used
    assert data.source.name == facts.name
    assert data.source.is_synthetic == facts.is_synthetic
    assert ("synthetic" in data.source.origin) == facts.is_synthetic
    assert data.source.sha256 == SHA256.get(facts.name, data.source.sha256)


def test_synthetic_classes_can_be_told_apart_and_not_at_a_glance() -> None:
    data = dataset("synthetic_digits").load(())
    train = data.train.inputs.reshape(len(data.train.labels), -1).astype(float)
    test = data.test.inputs.reshape(len(data.test.labels), -1).astype(float)
    means = np.array([train[data.train.labels == c].mean(axis=0) for c in range(10)])
    distances = ((test[:, np.newaxis] - means) ** 2).sum(axis=2)
    assert (distances.argmin(axis=1) == data.test.labels).mean() > 0.95
    one_pixel = abs(test[:, :1] - means[:, 0])
    assert (one_pixel.argmin(axis=1) == data.test.labels).mean() < 0.5


def test_the_next_token_is_learned_from_the_token_before_it_and_not_by_guessing() -> None:
    data = dataset("synthetic_tokens").load(())
    assert np.array_equal(data.train.inputs[:, 1:], data.train.labels[:, :-1])
    counts = np.zeros((256, 256))
    np.add.at(counts, (data.train.inputs, data.train.labels), 1)
    likely = counts.argmax(axis=1)[data.test.inputs]
    assert (likely == data.test.labels).mean() == pytest.approx(0.45, abs=0.03)
    assert (counts.sum(axis=0).argmax() == data.test.labels).mean() < 0.06


def test_as_many_tokens_of_each_sequence_are_hidden_and_those_are_the_labels() -> None:
    entry = dataset("synthetic_tokens")
    data = entry.load(())
    hidden = with_hidden_tokens(data, entry.facts)
    assert hidden.source == data.source
    is_predicted = hidden.train.labels >= 0
    assert set(is_predicted.sum(axis=1)) == {19}  # 15 % of 128
    original, shown = data.train.inputs, hidden.train.inputs
    assert np.array_equal(hidden.train.labels[is_predicted], original[is_predicted])
    assert np.array_equal(shown[~is_predicted], original[~is_predicted])
    assert (shown[is_predicted] == 256).mean() == pytest.approx(0.8, abs=0.01)
    assert (shown[is_predicted] == original[is_predicted]).mean() == pytest.approx(0.1, abs=0.01)
    assert shown.max() == 256
    again = with_hidden_tokens(data, entry.facts)
    assert np.array_equal(again.test.inputs, hidden.test.inputs)
    assert not np.array_equal(hidden.train.inputs[:100], hidden.test.inputs)


def test_places_are_the_own_folder_then_keras_caches() -> None:
    environ = {"KERAS_HOME": "/k", "HOME": "/h"}
    own, keras, home = Path("/d"), Path("/k/datasets"), Path("/h/.keras/datasets")
    assert data_places("/d", environ) == (own, keras, home)
    assert data_places(None, environ) == (keras, home)
    assert data_places(None, {"HOME": "/h"}) == (home,)


def test_the_first_place_that_has_it_wins() -> None:
    places = [Path("/a"), Path("/b"), Path("/c")]
    assert first_readable(places, lambda p: p.name if p.name != "a" else None) == "b"
    assert first_readable(places, lambda p: None) is None


def test_a_broken_file_is_not_passed_over() -> None:
    def read(place: Path) -> str:
        if place.name == "a":
            raise ValueError("half a file")
        return place.name

    with pytest.raises(DatasetMissing, match=r"/a: .*half a file"):
        first_readable([Path("/a"), Path("/b")], read)


@pytest.mark.parametrize(
    ("train", "test"),
    [
        (examples([0, 1, 2]), examples([0])),
        (examples([0, 1]), examples([0, 1])),
        (examples([0, 1], side=3), examples([0], side=3)),
        (examples([0, 3]), examples([0])),
        (examples([0, -1]), examples([0])),
    ],
    ids=["too many", "too many in the test split", "shape", "label too high", "label too low"],
)
def test_arrays_that_contradict_the_facts_are_refused(train: Examples, test: Examples) -> None:
    with pytest.raises(DatasetMissing, match="tiny in here: expected"):
        loaded(FACTS, train, test, origin="here", sha256="0")
    assert loaded(FACTS, examples([0, 2]), examples([1]), origin="here", sha256="0")

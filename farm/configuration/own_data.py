"""Names of users' own data sets, which state shapes and numbers of examples. Pure.

A sweep says `dataset = "data:flowers.npz@b005a2175131:64x64x3:5:2000:200"`: the file or folder in
each agent's data folder, the first digits of the sha256 of its examples, the shape of an example,
and the numbers of classes, training examples and test examples. `farm data` prints such a name.

The name thus contains all facts about the data set, and other contents are another data set. An
agent checks both before it trains.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from farm.configuration.catalogue import DatasetFacts, ExampleKind
from farm.errors import InvalidSpec

_PREFIX = "data:"
# The capability of agents that read them.
READS_OWN_DATA = "own_data"
CONTENT_DIGITS = 12
_FILE_NAME = "a name of letters, digits, '.', '_' and '-', at most 96"
_EXPECTED = "a name that `farm data` prints, such as data:mine.npz@b005a2175131:64x64x3:5:2000:200"
# Bounds that no data set reaches which fits into memory.
MOST_PIXELS_OF_A_SIDE = 10_000
MOST_CHANNELS = 64
MOST_TOKENS_OF_A_SEQUENCE = 1_000_000
MOST_CLASSES = 10_000_000
_MOST_EXAMPLES = 1_000_000_000
# It begins with no dot and has no separator: neither another folder nor a hidden file.
_FILE = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}"
_COUNT = "[1-9][0-9]{0,9}"
_NAME = re.compile(
    rf"{_PREFIX}(?P<file>{_FILE})@(?P<content>[0-9a-f]{{{CONTENT_DIGITS}}})"
    rf":(?P<shape>{_COUNT}(x{_COUNT}x{_COUNT})?)"
    rf":(?P<classes>{_COUNT}):(?P<train>{_COUNT}):(?P<test>{_COUNT})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnData:
    """The parsed name of a data set. `content`: the first digits of its examples' sha256."""

    file_name: str
    content: str
    facts: DatasetFacts


def own_data(name: str) -> OwnData | None:
    """Read the name of a data set of a user's own; None: it is none of these.

    Raises:
        InvalidSpec: it begins like one, and does not say what it must, or something out of range.
    """
    if not name.startswith(_PREFIX):
        return None
    found = _NAME.fullmatch(name)
    if found is None:
        raise InvalidSpec("dataset", name, _EXPECTED)
    shape = tuple(map(int, found["shape"].split("x")))
    counts = {key: int(found[key]) for key in ("classes", "train", "test")}
    bounds = (
        *zip(shape, _most_of_shape(shape), strict=True),
        *((counts["classes"], MOST_CLASSES),),
        *((counts[split], _MOST_EXAMPLES) for split in ("train", "test")),
    )
    for number, most in bounds:
        if number > most:
            raise InvalidSpec("dataset", name, f"at most {most} where it says {number}")
    if counts["classes"] < 2:
        raise InvalidSpec("dataset", name, "at least 2 classes")
    facts = DatasetFacts(
        name=name,
        summary="a data set of your own",
        train_examples_count=counts["train"],
        test_examples_count=counts["test"],
        example_shape=shape,
        class_count=counts["classes"],
        is_synthetic=False,
        kind=ExampleKind.TOKENS if len(shape) == 1 else ExampleKind.IMAGES,
    )
    return OwnData(file_name=found["file"], content=found["content"], facts=facts)


def own_name(
    file_name: str,
    *,
    sha256: str,
    example_shape: tuple[int, ...],
    class_count: int,
    train_examples_count: int,
    test_examples_count: int,
) -> str:
    """Return the name of a data set, which `own_data` reads.

    Raises:
        InvalidSpec: no file of a data set may have that name, or a number is out of range.
    """
    if not re.fullmatch(_FILE, file_name):
        raise InvalidSpec("data set", file_name, _FILE_NAME)
    parts = (
        f"{_PREFIX}{file_name}@{sha256[:CONTENT_DIGITS]}",
        "x".join(map(str, example_shape)),
        *map(str, (class_count, train_examples_count, test_examples_count)),
    )
    name = ":".join(parts)
    own_data(name)
    return name


def find_dataset(name: str | None, registered: Mapping[str, DatasetFacts]) -> DatasetFacts | None:
    """Return the facts of a data set, registered or a user's own; None: not known.

    `name`: also of an imported measurement, where it may be any text.
    """
    if name is None:
        return None
    try:
        own = own_data(name)
    except InvalidSpec:
        return None
    return registered.get(name) if own is None else own.facts


def _most_of_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) == 1:
        return (MOST_TOKENS_OF_A_SEQUENCE,)
    return (MOST_PIXELS_OF_A_SIDE, MOST_PIXELS_OF_A_SIDE, MOST_CHANNELS)

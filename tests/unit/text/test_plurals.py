from __future__ import annotations

import pytest

from farm.text.display import count
from farm.text.plurals import counted


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0 jobs"), (1, "1 job"), (2, "2 jobs"), (10_000, "10000 jobs")]
)
def test_one_thing_is_singular_and_every_other_number_is_plural(number: int, shown: str) -> None:
    assert counted(number, "job") == shown


def test_a_verb_and_an_irregular_plural_go_with_the_noun() -> None:
    assert counted(1, "job waits", "jobs wait") == "1 job waits"
    assert counted(3, "batch", "batches") == "3 batches"


def test_the_number_is_written_as_asked() -> None:
    assert counted(10_000, "step", write=count) == f"{count(10_000)} steps"

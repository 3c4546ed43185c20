"""What counts as a fact that a text tells."""

from __future__ import annotations

import pytest

from tests.facts import lacking

TEXT = "3 of 10 jobs (30.5 %) of 'a1' took 12.5 s."


@pytest.mark.parametrize("fact", ["3 of 10", "30.5 %", "12.5 s", 10, "'a1'", "a1"])
def test_a_whole_word_or_number_is_told(fact: object) -> None:
    assert lacking(TEXT, fact) == []


@pytest.mark.parametrize("fact", [1, 30, 12, "2.5 s", "5 %", "a", "job", 11])
def test_a_part_of_one_is_not(fact: object) -> None:
    assert lacking(TEXT, 3, fact) == [f"{fact}"]


def test_no_text_tells_nothing() -> None:
    assert lacking(None, 3) == ["3"]

"""What an answer on a sweep says of its evidence."""

from __future__ import annotations

import pytest

from farm.recommend.contracts import Question, Recommendation
from farm.recommend.sweeps.answers import OwnAnswer, SweepShare
from tests.unit.recommend.test_recommend_objective import option


@pytest.mark.parametrize(
    ("own", "other", "words"),
    [
        (1, 0, "rests on 1 measurement of this sweep"),
        (2, 0, "rests on 2 measurements, all of this sweep"),
        (2, 4, "rests on 6 measurements: 2 of this sweep, 4 of other sweeps"),
        (0, 1, "rests on 1 measurement of other sweeps, and on none of this one"),
        (0, 4, "rests on 4 measurements of other sweeps, and on none of this one"),
    ],
)
def test_an_answer_says_how_much_of_its_evidence_is_of_the_sweep(
    own: int, other: int, words: str
) -> None:
    assert SweepShare(own_count=own, other_count=other).words == words


def test_what_speaks_against_the_recommended_option_is_told_with_it() -> None:
    answer = Recommendation(
        model=None,
        dataset=None,
        recommended=option("ring", 1.0),
        reason=None,
        cautions=("only disturbed measurements",),
    )
    found = OwnAnswer(question=Question(global_batch_size=64), answer=answer, own_ids=())
    assert found.to_json()["cautions"] == ["only disturbed measurements"]

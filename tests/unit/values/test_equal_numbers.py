"""Numbers that are equal for people are one value wherever they enter."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field
from werkzeug.datastructures import MultiDict

from farm.configuration.axes import PROFILE_AXES
from farm.configuration.axis import Axis
from farm.errors import InvalidSpec
from farm.recommend.contracts import Question
from farm.submission import plan
from farm.values.fields import canonical
from web.parameters import WHOLE, Listed, Parameters, read_from

CASE = {
    "model": "mlp",
    "dataset": "digits",
    "strategy": "mwms_ring",
    "world_size": 2,
    "global_batch_size": 64,
    "one_way_delay_ms": 0.3,
    "steps": 10,
}


def hashes(**changes: object) -> list[str]:
    sweep = {"name": "a", "case": [{**CASE, **changes}]}
    return [job.cell_hash for job in plan(sweep).expansion.jobs]


@pytest.mark.parametrize("axis", PROFILE_AXES, ids=lambda axis: axis.name)
def test_a_sum_of_tenths_is_the_number_that_it_stands_for(axis: Axis) -> None:
    read = axis.type.read
    assert 0.1 * 3 != 0.3
    assert read(0.1 * 3, "x") == read(0.3, "x")
    assert read(0.1 + 0.7, "x") == read(0.8, "x")


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.02, 1 / 3, 12345.6789, 1e12])
def test_what_is_written_with_few_digits_stays_as_it_is(value: float) -> None:
    assert canonical(value) == pytest.approx(value, rel=1e-11)
    assert canonical(canonical(value)) == canonical(value)


def test_a_sweep_has_one_cell_for_equal_numbers() -> None:
    assert hashes(one_way_delay_ms=[0.3, 0.1 * 3]) == hashes()
    assert hashes(global_batch_size=64.0, world_size=2.0, steps=10.0) == hashes()
    with pytest.raises(InvalidSpec, match="whole number"):
        hashes(global_batch_size=64.5)
    with pytest.raises(InvalidSpec, match="whole number"):
        hashes(global_batch_size=True)


def test_a_question_is_the_same_with_equal_numbers() -> None:
    jobs = [
        Question(global_batch_size=64, one_way_delay_s=delay_ms / 1000, packet_loss_ratio=loss)
        for delay_ms, loss in ((0.3, 0.3), (0.1 * 3, 0.1 * 3))
    ]
    assert jobs[0] == jobs[1]


class Sizes(Parameters):
    one: Annotated[int, Field(ge=1, le=100), WHOLE] | None = None
    several: Listed[Annotated[int, Field(ge=1, le=100), WHOLE]] = ()


@pytest.mark.parametrize(("text", "value"), [("64", 64), ("64.0", 64), ("64.000", 64)])
def test_a_query_takes_a_whole_number_with_a_point(text: str, value: int) -> None:
    query = read_from(Sizes, MultiDict({"one": text, "several": f"2,{text}"}))
    assert (query.one, query.several) == (value, (2, value))


@pytest.mark.parametrize("text", ["64.5", "64.", ".0", "6_4.0", "064.0", "-64.0", "1e-2"])
def test_other_texts_are_no_whole_numbers(text: str) -> None:
    with pytest.raises(InvalidSpec, match="whole number"):
        read_from(Sizes, MultiDict({"one": text}))

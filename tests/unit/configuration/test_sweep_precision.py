"""`repetitions = "auto"`: its keys, and what a sweep with it becomes."""

from __future__ import annotations

from typing import Any

import pytest

from farm.configuration.expansion import expand
from farm.configuration.spec import MAX_SEED
from farm.configuration.sweep import AUTO, Precision, parse_precision, parse_sweep
from farm.errors import InvalidSpec
from farm.registry import catalogue

CASE: dict[str, Any] = {
    "model": "mlp",
    "dataset": "digits",
    "strategy": "single",
    "world_size": 1,
    "global_batch_size": [32, 64],
}


def sweep(*cases: dict[str, Any], **fields: object) -> dict[str, Any]:
    return {"name": "s", "case": [{**CASE, **case} for case in cases or ({},)], **fields}


def test_repetitions_until_precision_have_the_documented_defaults() -> None:
    spec = parse_sweep(sweep(repetitions="auto"))
    assert spec.precision == Precision(target_ratio=0.02, min_repetitions=3, max_repetitions=10)
    assert spec.repetitions == 3


def test_a_number_of_repetitions_is_just_that() -> None:
    spec = parse_sweep(sweep(repetitions=4))
    assert (spec.repetitions, spec.precision) == (4, None)
    assert parse_sweep(sweep()).repetitions == 1


def test_percent_become_a_ratio() -> None:
    spec = parse_sweep(
        sweep(repetitions="auto", precision_percent=0.5, min_repetitions=4, max_repetitions=20)
    )
    assert spec.precision == Precision(target_ratio=0.005, min_repetitions=4, max_repetitions=20)


def test_more_repetitions_to_begin_with_than_the_usual_cap_raise_the_cap() -> None:
    spec = parse_sweep(sweep(repetitions="auto", min_repetitions=12))
    assert spec.precision is not None
    assert spec.precision.max_repetitions == 12


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"precision_percent": 3},
            'precision_percent: expected repetitions = "auto" beside it, got 3',
        ),
        (
            {"repetitions": 5, "max_repetitions": 7},
            'max_repetitions: expected repetitions = "auto" beside it, got 7',
        ),
        (
            {"repetitions": "many"},
            "repetitions: expected a whole number from 1 to 2147483647 or \"auto\", got 'many'",
        ),
        (
            {"repetitions": "auto", "precision_percent": 0},
            "precision_percent: expected a percentage above 0 and up to 50, got 0",
        ),
        (
            {"repetitions": "auto", "precision_percent": float("nan")},
            "precision_percent: expected a percentage above 0 and up to 50, got nan",
        ),
        (
            {"repetitions": "auto", "min_repetitions": 2},
            "min_repetitions: expected a whole number from 3 to 1000, got 2",
        ),
        (
            {"repetitions": "auto", "min_repetitions": 6, "max_repetitions": 5},
            "max_repetitions: expected a whole number from 6 to 1000, got 5",
        ),
    ],
)
def test_keys_that_contradict_each_other_are_refused(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_sweep(sweep(**fields))
    assert str(refused.value) == message


def test_a_sweep_until_precision_begins_with_the_least_and_says_the_most() -> None:
    expansion = expand(parse_sweep(sweep(repetitions="auto")), catalogue())
    assert (len(expansion.jobs), expansion.max_job_count) == (6, 20)
    fixed = expand(parse_sweep(sweep(repetitions=3)), catalogue())
    assert (len(fixed.jobs), fixed.max_job_count) == (6, 6)


def test_cells_that_differ_in_their_seeds_alone_have_one_cap() -> None:
    spec = parse_sweep(sweep({}, {"seed": 100}, repetitions="auto", max_repetitions=5))
    expansion = expand(spec, catalogue())
    assert (len(expansion.jobs), expansion.max_job_count) == (12, 12)


def test_the_limit_of_jobs_and_of_seeds_counts_all_repetitions_that_may_follow() -> None:
    spec = parse_sweep(sweep(repetitions="auto", max_repetitions=10))
    with pytest.raises(InvalidSpec, match="at most 19 jobs in one sweep, got 20"):
        expand(spec, catalogue(), max_jobs=19)
    late = parse_sweep(sweep({"seed": MAX_SEED - 8}, repetitions="auto"))
    with pytest.raises(InvalidSpec, match=f"at most {MAX_SEED - 9}, since repetition r"):
        expand(late, catalogue())


def test_the_most_repetitions_are_refused_with_the_least_that_the_sweep_asks_for() -> None:
    fields = {"repetitions": AUTO, "min_repetitions": 5, "max_repetitions": 4}
    with pytest.raises(InvalidSpec, match="max_repetitions: expected a whole number from 5 to"):
        parse_precision(fields)

import json
import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from farm.configuration.axes import AXES_BY_NAME
from farm.configuration.expansion import expand
from farm.configuration.spec import JobSpec
from farm.configuration.sweep import parse_sweep
from farm.errors import InvalidSpec
from farm.registry import catalogue
from farm.values.codec import canonical_json, from_json

CATALOGUE = catalogue()
AXES: dict[str, st.SearchStrategy[object]] = {
    "model": st.sampled_from(sorted(CATALOGUE.models)),
    "dataset": st.sampled_from(sorted(CATALOGUE.datasets)),
    "strategy": st.sampled_from(sorted(CATALOGUE.strategies)),
    "world_size": st.integers(1, 6),
    "global_batch_size": st.integers(1, 300),
}
OPTIONAL_AXES: dict[str, st.SearchStrategy[object]] = {
    "one_way_delay_ms": st.one_of(st.integers(0, 100), st.floats(0, 10_000)),
    "jitter_ms": st.floats(0, 10),
    "packet_loss_percent": st.floats(0, 99),
    "bandwidth_mbit_per_s": st.floats(0.001, 1000),
    "pass": st.sampled_from(["forward", "forward_backward"]),
    "server_count": st.integers(0, 3),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3)
    ),
    max_leaves=10,
)


def axis(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return values | st.lists(values, min_size=1, max_size=3, unique=True)


CASES = st.fixed_dictionaries(
    {name: axis(values) for name, values in AXES.items()},
    optional={
        **{name: axis(values) for name, values in OPTIONAL_AXES.items()},
        "seed": st.integers(0, 100),
        "epochs": st.integers(1, 5),
        "labels": st.dictionaries(st.sampled_from(["zone", "kind"]), st.sampled_from(["1", "2"])),
    },
)
SWEEPS = st.fixed_dictionaries(
    {
        "name": st.just("x"),
        "case": st.lists(CASES, min_size=1, max_size=2),
        "skip_impossible": st.just(True),
        "repetitions": st.integers(1, 3),
    }
)


def cell_count(sweep: dict[str, Any]) -> int:
    """Count the cells; values that are one as they are read, such as two next to 0, are one."""
    return sum(
        math.prod(
            len({AXES_BY_NAME[name].type.read(value, name) for value in values})
            for name, values in case.items()
            if isinstance(values, list)
        )
        for case in sweep["case"]
    )


def refusal(data: object) -> InvalidSpec | None:
    """What is wrong with a sweep; any other error passes through and fails the test."""
    try:
        expand(parse_sweep(data), CATALOGUE)
    except InvalidSpec as error:
        return error
    return None


def expanded(data: object) -> tuple[JobSpec, ...]:
    error = refusal(data)
    if error is None:
        return expand(parse_sweep(data), CATALOGUE).jobs
    assert "a cell that can run" in str(error)
    return ()


@settings(max_examples=50)
@given(SWEEPS)
def test_jobs_and_duplicates_are_the_product_without_the_impossible(sweep: dict[str, Any]) -> None:
    jobs = expanded(sweep)
    if not jobs:
        return
    expansion = expand(parse_sweep(sweep), CATALOGUE)
    possible_count = len(expansion.jobs) + expansion.duplicate_count
    total_count = cell_count(sweep) * sweep["repetitions"]
    if expansion.impossible:
        assert possible_count < total_count
    else:
        assert possible_count == total_count
    assert len({job.content_hash for job in expansion.jobs}) == len(expansion.jobs)


@settings(max_examples=50)
@given(SWEEPS)
def test_expansion_is_deterministic_and_jobs_survive_json(sweep: dict[str, Any]) -> None:
    jobs = expanded(sweep)
    assert expanded(json.loads(json.dumps(sweep))) == jobs
    for job in jobs:
        again = from_json(JobSpec, json.loads(canonical_json(job)))
        assert again == job
        assert again.content_hash == job.content_hash


@settings(max_examples=50)
@given(SWEEPS)
def test_every_job_of_a_sweep_can_run(sweep: dict[str, Any]) -> None:
    for job in expanded(sweep):
        facts = CATALOGUE.strategies[job.strategy]
        assert facts.min_world_size <= job.world_size <= (facts.max_world_size or job.world_size)
        assert job.replica_count <= job.global_batch_size
        assert job.network is None or not job.network.is_untouched
        assert job.network is None or facts.uses_network
        shares = [job.per_replica_batch_size(i) for i in range(job.replica_count)]
        assert sum(shares) == job.global_batch_size
        assert max(shares) - min(shares) <= 1


@given(JSON)
def test_any_json_is_a_sweep_or_is_refused_by_name(data: object) -> None:
    error = refusal(data)
    assert error is None or error.field


@given(
    field=st.sampled_from([*AXES, *OPTIONAL_AXES, "steps", "seed", "labels", "time_limit_s"]),
    value=JSON,
)
def test_any_json_in_any_field_is_read_or_refused_with_its_path(field: str, value: object) -> None:
    valid: dict[str, object] = {
        "model": "mlp",
        "dataset": "digits",
        "strategy": "single",
        "world_size": 1,
        "global_batch_size": 8,
    }
    error = refusal({"name": "x", "case": [{**valid, field: value}]})
    assert error is None or error.field.startswith("case[0].")
    assert error is None or "\n" not in str(error)

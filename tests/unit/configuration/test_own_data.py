"""Data sets of a user's own: what their names say, and what sweeps may do with them."""

from __future__ import annotations

from typing import Any

import pytest

from farm import registry
from farm.configuration.catalogue import ExampleKind
from farm.configuration.own_data import READS_OWN_DATA, find_dataset, own_data, own_name
from farm.errors import InvalidSpec
from farm.gang.snapshots import LiveAgent
from farm.recommend.configuration import Configuration
from farm.recommend.plans.sweep_file import unregistered
from farm.submission import plan, within_memory

FLOWERS = "data:flowers.npz@b005a2175131:64x48x3:5:2000:200"
WORDS = "data:words.bin@b005a2175131:128:50257:2000:200"


def sweep(dataset: str, **others: Any) -> dict[str, Any]:
    case = {
        **{"model": "mlp", "dataset": dataset, "strategy": "single"},
        **{"world_size": 1, "global_batch_size": 32},
    }
    return {"name": "n", "case": [{**case, **others}]}


def agent(*, memory_bytes: int) -> LiveAgent:
    return LiveAgent(
        agent_id="a",
        machine_id="a",
        cpus=frozenset({0}),
        capabilities=frozenset({READS_OWN_DATA}),
        memory_bytes=memory_bytes,
        is_idle=True,
        is_occupying=False,
    )


def test_a_name_says_what_a_sweep_is_checked_against() -> None:
    own = own_data(FLOWERS)
    assert own is not None
    assert (own.file_name, own.content) == ("flowers.npz", "b005a2175131")
    facts = own.facts
    assert (facts.name, facts.kind, facts.is_synthetic) == (FLOWERS, ExampleKind.IMAGES, False)
    assert (facts.example_shape, facts.class_count) == ((64, 48, 3), 5)
    assert (facts.train_examples_count, facts.test_examples_count) == (2000, 200)
    assert (
        own_name(
            "flowers.npz",
            sha256="b005a2175131" + "0" * 52,
            example_shape=(64, 48, 3),
            class_count=5,
            train_examples_count=2000,
            test_examples_count=200,
        )
        == FLOWERS
    )


def test_examples_of_one_dimension_are_tokens() -> None:
    own = own_data(WORDS)
    assert own is not None
    assert (own.facts.kind, own.facts.example_shape) == (ExampleKind.TOKENS, (128,))


@pytest.mark.parametrize(
    "name",
    [
        *("data:", "data:flowers.npz", FLOWERS.replace("@b", "@"), FLOWERS.replace("@b", "@B")),
        *(FLOWERS.replace("flowers.npz", bad) for bad in ("../a", "/etc/a", "a/b", ".a", "..", "")),
        *(FLOWERS.replace("flowers.npz", bad) for bad in ("-a", "a b", "a\\b", "é", "a" * 97)),
        *(
            FLOWERS.replace(":5:", bad)
            for bad in (":0:", ":05:", ":-5:", ":", "::", ":1:", ":\u0665:")
        ),
        *(FLOWERS.replace("64x48x3", bad) for bad in ("64x48", "0x48x3", "64x48x3x1", "20000x1x1")),
        *(f"{FLOWERS}:1", f"{FLOWERS}\n", FLOWERS.replace(":2000:", ":9999999999:")),
        WORDS.replace(":128:", ":1000001:"),
    ],
)
def test_a_name_that_leads_elsewhere_or_says_too_little_is_refused(name: str) -> None:
    with pytest.raises(InvalidSpec):
        own_data(name)
    with pytest.raises(InvalidSpec) as refused:
        plan(sweep(name))
    assert refused.value.field in ("case[0].dataset", "case[0].dataset[0]")
    assert find_dataset(name, registry.catalogue().datasets) is None  # as of an import


def test_a_job_with_own_data_needs_agents_that_read_it() -> None:
    [job] = plan(sweep(FLOWERS)).expansion.jobs
    assert job.dataset == FLOWERS
    assert job.required_capabilities == {READS_OWN_DATA}
    [other] = plan(sweep("digits")).expansion.jobs
    assert other.required_capabilities == set()


def test_other_contents_are_another_cell() -> None:
    [job] = plan(sweep(FLOWERS)).expansion.jobs
    [other] = plan(sweep(FLOWERS.replace("@b", "@c"))).expansion.jobs
    assert job.cell_hash != other.cell_hash


@pytest.mark.parametrize(
    ("dataset", "others", "expected"),
    [
        (FLOWERS, {"global_batch_size": 2001}, "at most 2000, the examples of 'data:flowers"),
        (FLOWERS, {"model": "gpt2_tiny"}, "tokens for model 'gpt2_tiny', not images"),
        (WORDS, {}, "images for model 'mlp', not tokens"),
        (FLOWERS.replace("64x48", "16x48"), {"model": "vgg16"}, "images of at least 17x17"),
        (WORDS.replace("50257", "50258"), {"model": "gpt2_small"}, "at most 50257 different"),
    ],
)
def test_a_sweep_is_checked_against_the_facts(
    dataset: str, others: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InvalidSpec, match=expected):
        plan(sweep(dataset, **others))


def test_a_batch_may_be_larger_than_the_data_if_the_sweep_says_so() -> None:
    [job] = plan({**sweep(FLOWERS, global_batch_size=4000), "repeat": True}).expansion.jobs
    assert job.repeat


def test_data_that_no_agent_has_the_memory_for_is_refused() -> None:
    large = plan(sweep(FLOWERS.replace(":2000:", ":200000:")))  # 1.8 GB
    assert within_memory(large, [agent(memory_bytes=4_000_000_000)]).expansion.jobs
    with pytest.raises(InvalidSpec, match=r"fit into 1\.00 GB.* at least 2\.26 GB"):
        within_memory(large, [agent(memory_bytes=1_000_000_000)])


def test_a_plan_can_be_submitted_as_it_is() -> None:
    ways = [
        Configuration(
            model="mlp", dataset=FLOWERS, strategy="single", world_size=1, global_batch_size=32
        )
    ]
    assert unregistered(ways, registry.catalogue()) == {}


def test_models_are_counted_for_its_examples() -> None:
    size = registry.model_size("mlp", FLOWERS)
    assert size is not None
    assert size.parameter_count == (64 * 48 * 3 + 1) * 128 + (128 + 1) * 5

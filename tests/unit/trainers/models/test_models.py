"""The registries of models, data sets and strategies."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from farm import registry
from farm.configuration.axes import spec_values
from farm.configuration.catalogue import ExampleKind, GangShape
from farm.configuration.model_size import Block, PipelineCut
from farm.configuration.spec import JobSpec
from farm.errors import InvalidSpec
from farm.submission import plan
from farm.trainers.datasets import DATASETS
from farm.trainers.models import MODELS
from farm.trainers.models.architecture import Architecture
from farm.trainers.models.vit import patch_side
from farm.trainers.strategies import STRATEGIES


def test_every_registered_name_is_found_and_is_in_the_catalogue() -> None:
    known = registry.catalogue()
    for model in MODELS:
        assert registry.model(model.facts.name) is model
        assert known.models[model.facts.name] == model.facts
    for dataset in DATASETS:
        assert registry.dataset(dataset.facts.name) is dataset
        assert known.datasets[dataset.facts.name] == dataset.facts
    for strategy in STRATEGIES:
        assert registry.strategy(strategy.facts.name) is strategy
        assert known.strategies[strategy.facts.name] == strategy.facts


def test_no_two_entries_share_a_name() -> None:
    known = registry.catalogue()
    assert len(known.models) == len(MODELS)
    assert len(known.datasets) == len(DATASETS)
    assert len(known.strategies) == len(STRATEGIES)


@pytest.mark.parametrize(
    ("look_up", "field", "known"),
    [
        (registry.model, "model", "small_cnn"),
        (registry.dataset, "dataset", "digits"),
        (registry.strategy, "strategy", "mwms_ring"),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(
    look_up: Callable[[str], object], field: str, known: str
) -> None:
    with pytest.raises(InvalidSpec, match=known) as caught:
        look_up("nothing")
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("name", "shape", "class_count", "parameter_count"),
    [
        ("small_cnn", (32, 32, 3), 10, 122_570),
        ("shallow_cnn", (28, 28, 1), 10, 431_080),
        ("mlp", (28, 28, 1), 10, 101_770),
        ("resnet18", (224, 224, 3), 1000, 11_689_512),
        ("resnet18", (32, 32, 3), 10, 11_173_962),
        ("resnet50", (224, 224, 3), 1000, 25_583_592),
        ("inception_v1", (224, 224, 3), 1000, 6_998_552),
        ("vgg16", (224, 224, 3), 1000, 138_357_544),
        ("vgg16", (32, 32, 3), 10, 33_638_218),
        # 12 w^2 + 13 w a block, a table of tokens and one of positions, and the last normalisation.
        ("gpt2_tiny", (128,), 256, 2 * (12 * 128**2 + 13 * 128) + (256 + 128 + 2) * 128),
        ("gpt2_small", (128,), 256, 124_439_808),
        ("bert_base", (128,), 256, 109_514_298),
        ("vit_tiny", (224, 224, 3), 1000, 5_717_416),
        ("vit_b16", (224, 224, 3), 1000, 86_567_656),
        ("lstm", (20,), 10_000, 4_651_600),
    ],
)
def test_a_model_has_its_published_parameter_count(
    name: str, shape: tuple[int, ...], class_count: int, parameter_count: int
) -> None:
    size = registry.model(name).describe(shape, class_count)
    assert size is not None
    assert size.parameter_count == parameter_count
    assert size.gradient_bytes == 4 * parameter_count


@pytest.mark.parametrize(
    ("name", "forward_flop"),
    # Twice the multiply-adds of the papers and of torchvision: 1.8, 3.9, 1.6, 15.5, 1.3 and 17.6
    # milliards.
    [
        *(("resnet18", 3.6e9), ("resnet50", 7.7e9), ("inception_v1", 3.2e9), ("vgg16", 31e9)),
        *(("vit_tiny", 2.5e9), ("vit_b16", 35.1e9)),
    ],
)
def test_a_model_computes_what_is_published(name: str, forward_flop: float) -> None:
    size = registry.model(name).describe((224, 224, 3), 1000)
    assert size is not None
    assert size.forward_flop_per_example == pytest.approx(forward_flop, rel=0.02)


@pytest.mark.parametrize(
    ("image_side", "patch_count"), [(8, 8), (28, 7), (32, 8), (64, 8), (112, 7), (224, 14)]
)
def test_a_vision_transformer_cuts_images_into_whole_patches(
    image_side: int, patch_count: int
) -> None:
    assert patch_side(image_side) * patch_count == image_side


def test_a_decoder_computes_two_flop_a_parameter_and_token_and_its_attention() -> None:
    size = registry.model_size("gpt2_tiny", "synthetic_tokens")
    assert size is not None
    # Positions are added and not multiplied; each pair of tokens meets twice in each block.
    of_parameters = 2 * 128 * (size.parameter_count - 128 * 128)
    of_attention = 2 * 2 * 2 * 128**2 * 128
    expected = of_parameters + of_attention
    assert size.forward_flop_per_example == pytest.approx(expected, rel=0.01)


def test_what_is_kept_for_the_backward_pass_is_the_layers_outputs() -> None:
    size = registry.model("mlp").describe((8, 8, 1), 10)
    assert size is not None
    assert size.activation_bytes_per_example == 4 * (64 + 128 + 10)


@pytest.mark.parametrize(
    ("model", "dataset", "unit_count"),
    # An embedding is a table, and so are positions; 28 MB of a block are more than a unit has.
    [
        *(("mlp", "digits", 1), ("resnet18", "digits", 2)),
        *(("gpt2_tiny", "synthetic_tokens", 2), ("gpt2_small", "synthetic_tokens", 14)),
    ],
)
def test_a_model_is_cut_into_units_of_layers_in_a_row(
    model: str, dataset: str, unit_count: int
) -> None:
    size = registry.model_size(model, dataset)
    assert size is not None
    assert len(size.unit_bytes) == unit_count
    assert sum(size.unit_bytes) == size.gradient_bytes
    shape = registry.gang_shape(
        spec_values(
            JobSpec(
                model=model,
                dataset=dataset,
                strategy="torch_fsdp",
                world_size=3,
                global_batch_size=12,
                steps=1,
                axes={"gradient_accumulation_steps": 2},
            )
        )
    )
    assert shape == GangShape(
        world_size=3,
        gradient_accumulation_steps=2,
        pipeline_microbatches=4,
        unit_count=unit_count,
    )


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.facts.name)
def test_the_blocks_of_a_model_are_all_of_it(model: Architecture) -> None:
    dataset = next(d.facts for d in DATASETS if model.facts.needed_of(d.facts) is None)
    size = model.describe(dataset.example_shape, dataset.class_count)
    blocks = size.blocks
    assert len(blocks) > 1
    assert all(block.weight_bytes or block.tables for block in blocks)
    in_blocks = sum(block.weight_bytes for block in blocks)
    assert in_blocks + sum(size.table_bytes) == size.gradient_bytes
    assert {t for block in blocks for t in block.tables} == set(range(len(size.table_bytes)))
    assert sum(block.flop_per_example for block in blocks) == size.forward_flop_per_example
    kept = sum(block.activation_bytes_per_example for block in blocks)
    assert kept == size.activation_bytes_per_example
    assert [bool(block.output_bytes_per_example) for block in blocks] == [
        *[True] * (len(blocks) - 1),
        False,
    ]


@pytest.mark.parametrize(
    ("model", "dataset", "ends"),
    # Of 14 blocks of a vision transformer the first and the last are next to nothing.
    [
        *(("mlp", "digits", (1, 2)), ("gpt2_tiny", "synthetic_tokens", (2, 3, 4))),
        *(("vit_tiny", "synthetic_digits", (7, 14)), ("vit_tiny", "synthetic_digits", (5, 9, 14))),
    ],
)
def test_no_stage_computes_more_than_the_largest_must(
    model: str, dataset: str, ends: tuple[int, ...]
) -> None:
    size = registry.model_size(model, dataset)
    assert size is not None
    assert size.stage_ends(len(ends)) == ends
    stages = size.stages(len(ends))
    assert stages is not None
    largest = max(stage.flop_per_example for stage in stages)
    for other in itertools.combinations(range(1, len(size.blocks)), len(ends) - 1):
        cuts = (0, *other, len(size.blocks))
        flop = [
            sum(b.flop_per_example for b in size.blocks[a:z]) for a, z in itertools.pairwise(cuts)
        ]
        assert max(flop) >= largest


@pytest.mark.parametrize(
    ("model", "dataset"), [("vgg16", "cifar10"), ("gpt2_tiny", "synthetic_tokens")]
)
@pytest.mark.parametrize("count", [2, 3])
def test_no_stage_has_more_weights_than_the_largest_must_if_they_are_what_counts(
    model: str, dataset: str, count: int
) -> None:
    size = registry.model_size(model, dataset)
    assert size is not None

    def held(stage: Block) -> int:
        return stage.weight_bytes + sum(size.table_bytes[t] for t in stage.tables)

    by_flop, by_weights = size.stages(count), size.stages(count, by=PipelineCut.WEIGHTS)
    assert by_flop is not None
    assert by_weights is not None
    largest = max(map(held, by_weights))
    assert largest <= max(map(held, by_flop))
    for other in itertools.combinations(range(1, len(size.blocks)), count - 1):
        cuts = itertools.pairwise((0, *other, len(size.blocks)))
        stages = [size.blocks[a:z] for a, z in cuts]
        tables = [frozenset().union(*(b.tables for b in stage)) for stage in stages]
        assert largest <= max(
            sum(b.weight_bytes for b in stage) + sum(size.table_bytes[t] for t in read)
            for stage, read in zip(stages, tables, strict=True)
        )


def test_what_a_pipeline_sends_follows_from_its_stages() -> None:
    job = JobSpec(
        model="gpt2_tiny",
        dataset="synthetic_tokens",
        strategy="torch_pipeline",
        world_size=3,
        global_batch_size=12,
        steps=1,
        axes={"pipeline_microbatches": 2},
    )
    shape = registry.gang_shape(spec_values(job))
    assert shape.pipeline_microbatches == 2
    # 128 tokens of width 128 go on twice; the table of 256 tokens is on the first and the last.
    assert shape.handed_on_bytes == 12 * 2 * 128 * 128 * 4
    assert (shape.table_messages, shape.table_bytes) == (4, 2 * 256 * 128 * 4)


def test_what_is_done_to_a_whole_model_does_not_apply_to_a_divided_one() -> None:
    strategies = ["torch_ddp", "torch_fsdp", "torch_pipeline"]
    case = {
        **{"model": "mlp", "dataset": "digits", "strategy": strategies},
        **{"world_size": 2, "global_batch_size": 8},
    }
    for option in ({"activation_checkpointing": "on"}, {"compile": "torch_compile"}):
        jobs = plan({"name": "n", "case": [{**case, **option}]}).expansion.jobs
        found = {job.strategy: job.axes for job in jobs}
        assert found == {"torch_ddp": option, "torch_fsdp": {}, "torch_pipeline": {}}


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"world_size": 3}, "world_size", "expected at most 2, the blocks into which 'mlp' can be"),
        (
            {"global_batch_size": 9},
            "global_batch_size",
            "expected a multiple of pipeline_microbatches, 4, for strategy 'torch_pipeline', got 9",
        ),
        (
            {"model": "resnet18", "pipeline_microbatches": 8},
            "pipeline_microbatches",
            "expected at most 4: batch normalisation needs two examples in each, got 8",
        ),
    ],
)
def test_what_cannot_be_cut_into_stages_and_microbatches_is_refused(
    changes: dict[str, object], field: str, message: str
) -> None:
    case = {
        **{"model": "mlp", "dataset": "digits", "strategy": "torch_pipeline"},
        **{"world_size": 2, "global_batch_size": 8},
    }
    assert plan({"name": "n", "case": [case]}).expansion.jobs
    with pytest.raises(InvalidSpec) as found:
        plan({"name": "n", "case": [{**case, **changes}]})
    assert found.value.field == f"case[0].{field}"
    assert message in str(found.value)
    alone = {**case, **changes, "world_size": 1}
    assert plan({"name": "n", "case": [alone]}).expansion.jobs


def test_microbatches_are_the_parts_of_a_batch_in_a_pipeline() -> None:
    case = {
        **{"model": "mlp", "dataset": "digits", "strategy": ["torch_ddp", "torch_pipeline"]},
        **{"world_size": 2, "global_batch_size": 8, "gradient_accumulation_steps": 2},
        **{"pipeline_microbatches": 8, "batch_split": "by_speed"},
    }
    jobs = plan({"name": "n", "case": [case]}).expansion.jobs
    found = {job.strategy: (job.axes, job.batch_split.value) for job in jobs}
    assert found == {
        "torch_ddp": ({"gradient_accumulation_steps": 2}, "by_speed"),
        "torch_pipeline": ({"pipeline_microbatches": 8}, "even"),
    }


@pytest.mark.parametrize("strategy", ["torch_fsdp", "torch_pipeline"])
def test_a_model_of_a_users_own_is_not_divided(strategy: str) -> None:
    case = {"dataset": "digits", "strategy": strategy, "world_size": 2, "global_batch_size": 8}
    with pytest.raises(InvalidSpec) as found:
        plan({"name": "n", "case": [{**case, "model": "file:mine.py"}]})
    assert found.value.field == "case[0].model"
    assert f"a model of the farm's own for strategy '{strategy}'" in str(found.value)


@pytest.mark.parametrize(
    "model",
    [m for m in MODELS if m.facts.takes is ExampleKind.IMAGES],
    ids=lambda m: m.facts.name,
)
def test_a_model_has_something_left_of_the_smallest_images_it_takes(model: Architecture) -> None:
    side = model.facts.smallest_side
    assert model.describe((side, side, 1), 10).parameter_count > 0


def test_the_size_of_what_is_not_registered_is_not_known() -> None:
    assert registry.model_size("mlp", "digits") is not None
    assert registry.model_size("file:mine.py", "digits") is None
    assert registry.model_size("mlp", "theirs") is None
    assert registry.model_size("vgg16", "digits") is None  # too small for it
    assert registry.model_size("mlp", "synthetic_tokens") is None


def test_tokens_are_taken_by_models_of_tokens_alone() -> None:
    case = {"model": "gpt2_tiny", "strategy": "single", "world_size": 1, "global_batch_size": 8}
    with pytest.raises(InvalidSpec, match="tokens for model 'gpt2_tiny', not images") as found:
        plan({"name": "n", "case": [{**case, "dataset": "digits"}]})
    assert found.value.field == "case[0].dataset"
    assert plan({"name": "n", "case": [{**case, "dataset": "synthetic_tokens"}]}).expansion.jobs


def test_examples_of_another_kind_are_refused_in_one_line() -> None:
    case = {"strategy": "single", "world_size": 1, "global_batch_size": 8}
    for model in ("mlp", "file:mine.py"):
        fields = {**case, "model": model, "dataset": "synthetic_tokens"}
        with pytest.raises(InvalidSpec) as found:
            plan({"name": "n", "case": [fields]})
        assert found.value.field == "case[0].dataset"
        assert f"expected images for model '{model}', not tokens" in str(found.value)
        assert "'synthetic_tokens'" in str(found.value)


@pytest.mark.parametrize(
    ("name", "longest", "largest"), [("gpt2_small", 1024, 50_257), ("bert_base", 512, 30_521)]
)
def test_a_model_says_how_long_its_sequences_and_how_many_its_tokens_may_be(
    name: str, longest: int, largest: int
) -> None:
    model = registry.catalogue().models[name]
    tokens = registry.dataset("synthetic_tokens").facts
    most = replace(tokens, example_shape=(longest,), class_count=largest)
    assert model.needed_of(most) is None
    too_long = model.needed_of(replace(most, example_shape=(longest + 1,)))
    assert too_long is not None
    assert too_long.startswith(f"at most {longest} tokens in a sequence for model '{name}', not")
    too_many = model.needed_of(replace(most, class_count=largest + 1))
    assert too_many is not None
    assert "different tokens" in too_many


def test_images_too_small_for_a_model_are_refused_with_the_smallest() -> None:
    case = {
        **{"model": "vgg16", "dataset": "digits", "strategy": "single"},
        **{"world_size": 1, "global_batch_size": 64},
    }
    with pytest.raises(InvalidSpec, match=r"at least 17x17 for model 'vgg16', not of 8x8") as found:
        plan({"name": "n", "case": [case]})
    assert found.value.field == "case[0].dataset"
    assert plan({"name": "n", "case": [{**case, "dataset": "synthetic_mnist"}]}).expansion.jobs

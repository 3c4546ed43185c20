"""The engine of PyTorch on one rank, and the models made of PyTorch's layers.

What needs Keras on PyTorch runs in a process of its own, since a process has one backend of Keras.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from farm import registry
from farm.configuration.catalogue import DatasetFacts, ExampleKind, ModelFacts
from farm.configuration.spec import JobSpec, TrainingPass
from farm.messages.trainer_lines import Exchange, GoLine
from farm.trainers.contracts import RankContext
from farm.trainers.datasets import DATASETS
from farm.trainers.datasets.arrays import with_hidden_tokens
from farm.trainers.models import MODELS, bert
from farm.trainers.models.architecture import Architecture

pytestmark = pytest.mark.torch

JOB = JobSpec(
    model="mlp",
    dataset="digits",
    strategy="torch_ddp",
    world_size=1,
    global_batch_size=64,
    steps=6,
)
BATCH = np.arange(64, dtype=np.int32)
NOBODY = np.empty(0, np.int32)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def seat_of(job: JobSpec) -> RankContext:
    dataset = registry.dataset(job.dataset)
    return RankContext(
        job=job,
        rank=0,
        role="worker",
        go=GoLine(cluster={"worker": ("127.0.0.1:1",)}, task_index=0),
        model=registry.model(job.model),
        dataset=dataset.facts,
        data=dataset.load(()),
        peer_timeout_s=10.0,
    )


def build(job: JobSpec) -> Any:
    """Build the engine without preparing this process, which other tests want with TensorFlow."""
    return registry.strategy(job.strategy).build(seat_of(job))


def is_statistic(name: str) -> bool:
    return name.rpartition(".")[2] in ("running_mean", "running_var", "num_batches_tracked")


def parameters(engine: Any) -> list[Any]:
    weights, _ = engine.save()
    return [value.numpy() for name, value in weights.items() if not is_statistic(name)]


def moving_statistics(engine: Any) -> list[Any]:
    weights, _ = engine.save()
    return [value.numpy() for name, value in weights.items() if is_statistic(name)]


def gradients_of_step(engine: Any, batch: Any, *, examples_count: int) -> tuple[float, list[Any]]:
    """Do a step; return its loss and the gradients that the optimizer was given."""
    from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

    found: list[Any] = []

    def note(optimizer: Optimizer, *_: object) -> None:
        of_all = [p for group in optimizer.param_groups for p in group["params"]]
        found.extend(p.grad.numpy().copy() for p in of_all)

    hook = register_optimizer_step_pre_hook(note)
    try:
        loss = engine.step(batch, examples_count=examples_count)
    finally:
        hook.remove()
    return loss, found


def test_momentum_is_that_of_keras() -> None:
    # keras.optimizers.SGD: v <- momentum * v - learning_rate * g; w <- w + v. PyTorch's multiplies
    # by the learning rate last, which is the same for a constant one.
    engine = build(JOB)
    weights = parameters(engine)
    velocities = [np.zeros_like(w) for w in weights]
    for _ in range(4):
        _, gradients = gradients_of_step(engine, BATCH, examples_count=64)
        velocities = [0.9 * v - 0.02 * g for v, g in zip(velocities, gradients, strict=True)]
        weights = [w + v for w, v in zip(weights, velocities, strict=True)]
    for mine, theirs in zip(weights, parameters(engine), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-6)


def test_a_batch_in_parts_trains_as_the_whole_one() -> None:
    whole = build(JOB)
    parts = build(replace(JOB, axes={"gradient_accumulation_steps": 5}))
    for count in (64, 64, 3):  # the last has fewer examples than parts
        losses = [e.step(BATCH[:count], examples_count=count) for e in (whole, parts)]
        assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for mine, theirs in zip(parameters(parts), parameters(whole), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("precision", "width"), [("float32", 4), ("bfloat16", 2)])
def test_a_matrix_product_is_in_the_jobs_precision_and_draws_no_number_of_the_jobs(
    precision: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    multiplied: list[torch.Tensor] = []
    multiply = torch.mm

    def noted(left: torch.Tensor, right: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        multiplied.extend((left, right, out))
        return multiply(left, right, out=out)

    engine = build(replace(JOB, axes={"precision": precision}))
    before = torch.get_rng_state()
    monkeypatch.setattr(torch, "mm", noted)
    product = engine.matrix_product(256)
    product.run(2)
    assert product.flop == 2 * 256**3
    assert [(m.element_size(), tuple(m.shape)) for m in multiplied] == [(width, (256, 256))] * 6
    assert torch.equal(torch.get_rng_state(), before)


def test_adamw_is_that_of_its_paper() -> None:
    # Loshchilov and Hutter 2019, algorithm 2: the first update divides the gradient by its size.
    engine = build(replace(JOB, axes={"optimizer": "adamw", "learning_rate": 0.001}))
    before = parameters(engine)
    _, gradients = gradients_of_step(engine, BATCH, examples_count=64)
    for old, new, g in zip(before, parameters(engine), gradients, strict=True):
        expected = old * (1 - 0.001 * 0.01) - 0.001 * g / (np.abs(g) + 1e-8)
        assert new == pytest.approx(expected, rel=1e-4, abs=1e-6)
    settings = engine.settings
    assert (settings["optimizer"], settings["learning_rate"], settings["momentum"]) == (
        "adamw",
        0.001,
        None,
    )


@pytest.mark.parametrize(("scaling", "rate"), [("linear", 0.04), ("sqrt", 0.02 * math.sqrt(2))])
def test_a_scaled_learning_rate_trains_as_that_rate(scaling: str, rate: float) -> None:
    # The batch of 64 is twice the reference.
    scaled = build(replace(JOB, axes={"lr_scaling": scaling}))
    given, usual = build(replace(JOB, axes={"learning_rate": rate})), build(JOB)
    for engine in (scaled, given, usual):
        for _ in range(3):
            engine.step(BATCH, examples_count=64)
    assert scaled.settings["learning_rate"] == pytest.approx(rate)
    pairs = zip(parameters(scaled), parameters(given), parameters(usual), strict=True)
    for mine, theirs, others in pairs:
        assert mine == pytest.approx(theirs, rel=1e-5, abs=1e-6)
        assert mine != pytest.approx(others, rel=1e-5, abs=1e-6)


def test_a_rate_that_rises_trains_as_such_rates_one_after_the_other() -> None:
    # Plain updates with the momentum of `test_momentum_is_that_of_keras`, PyTorch's way: the rate
    # multiplies the velocity.
    engine = build(replace(JOB, axes={"lr_warmup_steps": 4}))
    weights = parameters(engine)
    velocities = [np.zeros_like(w) for w in weights]
    for rate in (0.005, 0.01, 0.015, 0.02, 0.02, 0.02):
        _, gradients = gradients_of_step(engine, BATCH, examples_count=64)
        velocities = [0.9 * v + g for v, g in zip(velocities, gradients, strict=True)]
        weights = [w - rate * v for w, v in zip(weights, velocities, strict=True)]
        for mine, theirs in zip(parameters(engine), weights, strict=True):
            assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-6)
    assert engine.settings["learning_rate"] == 0.02


@pytest.mark.parametrize("done_count", [0, 2])
def test_a_rising_rate_goes_on_from_where_it_was_saved(done_count: int) -> None:
    engine = build(replace(JOB, axes={"lr_warmup_steps": 6}))
    for _ in range(done_count):
        engine.step(BATCH, examples_count=64)
    state = engine.save()
    once = [engine.step(BATCH, examples_count=64) for _ in range(8)], engine.weight_sums()
    engine.restore(state)
    again = [engine.step(BATCH, examples_count=64) for _ in range(8)], engine.weight_sums()
    assert again == once


@pytest.mark.filterwarnings("ignore:`broadcast_buffers` is deprecated:FutureWarning")
def test_gradients_are_summed_in_buckets_of_the_size_asked_for(tmp_path: Path) -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from farm.trainers.torch.engine import data_parallel

    def buckets_of_step(**limits: Any) -> list[float]:
        # Twenty layers with gradients of 1.38 MiB.
        model = torch.nn.Sequential(*(torch.nn.Linear(600, 600) for _ in range(20)))
        replica = data_parallel(model, **limits) if limits else DistributedDataParallel(model)
        found: list[float] = []

        def note(bucket: Any) -> torch.futures.Future[torch.Tensor]:
            found.append(bucket.buffer().numel() * 4 / 2**20)
            summed = torch.futures.Future[torch.Tensor]()
            summed.set_result(bucket.buffer())
            return summed

        replica.register_comm_hook(None, lambda _, bucket: note(bucket))
        for _ in range(2):  # the first finds out in which order gradients come
            found.clear()
            replica(torch.ones(1, 600)).sum().backward()
        return found

    dist.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert buckets_of_step(bucket_bytes=25 * 2**20) == buckets_of_step()
        fives = buckets_of_step(bucket_bytes=5 * 2**20)
        each = buckets_of_step(bucket_bytes=2**19)
    finally:
        dist.destroy_process_group()
    assert fives == pytest.approx([1.38, 5.5, 5.5, 5.5, 5.5, 4.13], abs=0.01)
    assert each == pytest.approx([1.38] * 20, abs=0.01)


@pytest.mark.parametrize(
    ("model", "dataset", "axes"),
    [
        ("resnet18", "digits", {}),
        ("inception_v1", "digits", {"gradient_accumulation_steps": 2}),
        ("gpt2_tiny", "synthetic_tokens", {"precision": "bfloat16"}),
        ("lstm", "synthetic_tokens", {}),
    ],
)
def test_activations_computed_again_change_nothing(
    model: str, dataset: str, axes: dict[str, Any]
) -> None:
    job = replace(JOB, model=model, dataset=dataset, axes=axes)
    kept, again = build(job), build(replace(job, axes=axes | {"activation_checkpointing": "on"}))
    for count in (8, 8, 3):
        losses = [e.step(BATCH[:count], examples_count=count) for e in (kept, again)]
        assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for mine, theirs in zip(parameters(again), parameters(kept), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    # PyTorch updates them in every forward pass, and there are two.
    for mine, theirs in zip(moving_statistics(again), moving_statistics(kept), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    assert again.evaluate(lambda: None) == kept.evaluate(lambda: None)


@pytest.mark.parametrize(
    ("sizes", "ends", "expected"),
    [
        # Sixteen equal layers: four segments keep three inputs and four layers.
        ([1] * 16, range(1, 16), [4, 8, 12, 16]),
        ([1] * 16, [7, 9], [7, 9, 16]),
        ([1] * 16, [], [16]),
        ([1, 1, 1, 9], [3], [3, 4]),
        # No smaller together with the segments' inputs: one segment, which keeps all it computes.
        ([1, 9, 1], [1, 2], [3]),
    ],
)
def test_segments_keep_least_together(
    sizes: list[int], ends: Sequence[int], expected: list[int]
) -> None:
    from farm.trainers.torch.checkpointing import segment_ends

    assert segment_ends(sizes, ends) == expected


# Of 64 blocks each of three outputs of 2 MB.
PEAK_MEMORY = """
    import json, sys
    import torch
    from pathlib import Path
    from farm.trainers.torch.layers import build_module

    def peak_bytes():
        # Unlike ru_maxrss it begins with the program, not with the process that started it.
        [line] = [one for one in Path("/proc/self/status").open() if one.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024

    def lay_out(layers, tokens, token_count):
        x = layers.look_up(layers.table(16, 64), tokens)
        for _ in range(64):
            y = layers.gelu(layers.dense(layers.layer_norm(x, epsilon=1e-5), 64))
            x = layers.add(x, y)
        return layers.dense(x, 16)

    torch.set_num_threads(1)
    module = build_module(lay_out, (64,), 16, is_checkpointed=sys.argv[1] == "on")
    tokens = torch.zeros(128, 64, dtype=torch.int32)
    module(tokens[:1]).sum().backward()  # the first step imports and allocates once for all
    before = peak_bytes()
    module(tokens).sum().backward()
    print(json.dumps(peak_bytes() - before))
"""


def test_a_deep_model_takes_less_memory_where_activations_are_computed_again() -> None:
    kept, again = (run_alone(PEAK_MEMORY, way) for way in ("off", "on"))
    assert kept > 64 * 3 * 2_000_000
    assert again < 0.3 * kept


def normalised(layers: Any, image: Any, class_count: int) -> Any:
    x = layers.rectify(layers.normalise(layers.conv(image, 4, 3)))
    return layers.dense(layers.average(x), class_count)


def build_normalised(job: JobSpec) -> Any:
    rank_context = seat_of(job)
    facts = ModelFacts(name="normalised", summary="x")
    rank_context = replace(rank_context, model=Architecture(facts=facts, lay_out=normalised))
    return registry.strategy(job.strategy).build(rank_context)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own imports
def test_a_compiled_model_trains_the_same_and_compiles_nothing_after_its_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    parts: dict[str, Any] = {"gradient_accumulation_steps": 3}  # 22, 21 and 21 of 64 examples
    plain = build_normalised(replace(JOB, axes=parts))
    compiled = build_normalised(replace(JOB, axes=parts | {"compile": "torch_compile"}))
    refused = build_normalised(replace(JOB, axes=parts | {"compile": "torch_compile"}))
    fails_on_compiling = torch.compiler.set_stance("fail_on_recompile")
    with fails_on_compiling, pytest.raises(RuntimeError):
        refused.step(BATCH, examples_count=64)

    for number, share in enumerate((BATCH, BATCH, BATCH[:7], NOBODY, BATCH)):
        count = max(1, len(share))
        with contextlib.nullcontext() if number == 0 else fails_on_compiling:
            mine = compiled.step(share, examples_count=count)
        assert mine == pytest.approx(plain.step(share, examples_count=count), rel=1e-5)
    with fails_on_compiling:
        found = compiled.evaluate(lambda: None)
    assert found.val_loss == pytest.approx(plain.evaluate(lambda: None).val_loss, rel=1e-5)
    for read in (parameters, moving_statistics):
        for mine, theirs in zip(read(compiled), read(plain), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_hidden_tokens_are_restored_and_others_count_for_nothing() -> None:
    lay_out = partial(bert.lay_out, width=32, head_count=2, block_count=1)
    entry = registry.dataset("synthetic_tokens")
    data = with_hidden_tokens(entry.load(()), entry.facts)
    others = data.train.labels[:16] < 0
    engine = registry.strategy("torch_ddp").build(
        RankContext(
            job=replace(JOB, model="bert_base", dataset="synthetic_tokens"),
            rank=0,
            role="worker",
            go=GoLine(cluster={"worker": ("127.0.0.1:1",)}, task_index=0),
            model=Architecture(facts=bert.BERT_BASE.facts, lay_out=lay_out),
            dataset=entry.facts,
            data=data,
            peer_timeout_s=10.0,
        )
    )
    losses = [engine.step(BATCH[:16], examples_count=16) / 16 for _ in range(12)]
    assert losses[0] == pytest.approx(math.log(bert.VOCABULARY_SIZE), rel=0.1)
    assert losses[-1] < losses[0] - 0.2
    # The mean over the tokens that are predicted, of each sequence and then of all.
    import torch
    from torch.nn import functional
    from torch.nn.modules.module import register_module_forward_hook

    outputs: list[Any] = []
    hook = register_module_forward_hook(lambda module, given, output: outputs.append(output))
    loss = engine.step(BATCH[:16], examples_count=16) / 16
    hook.remove()
    logits = outputs[-1].detach()[~torch.from_numpy(others)]  # the whole model's come last
    labels = torch.from_numpy(data.train.labels[:16])
    found = functional.cross_entropy(logits, labels[labels >= 0])
    assert loss == pytest.approx(float(found), rel=1e-4)


def test_a_vision_transformer_learns_a_batch_by_heart() -> None:
    axes = {"optimizer": "adamw", "learning_rate": 0.0003}
    engine = build(replace(JOB, model="vit_tiny", axes=axes))
    losses = [engine.step(BATCH[:16], examples_count=16) / 16 for _ in range(40)]
    assert losses[-1] < 1.0 < 2.0 < losses[0]


def test_bfloat16_computes_in_fewer_bits_and_keeps_weights_and_gradients_whole() -> None:
    exact, fewer = build(JOB), build(replace(JOB, axes={"precision": "bfloat16"}))
    exact_loss = exact.step(BATCH, examples_count=64)
    loss, gradients = gradients_of_step(fewer, BATCH, examples_count=64)
    assert loss != exact_loss
    assert loss == pytest.approx(exact_loss, rel=0.02)
    assert {p.dtype for p in parameters(fewer)} == {np.dtype(np.float32)}
    assert {g.dtype for g in gradients} == {np.dtype(np.float32)}
    assert fewer.gradient_bytes == exact.gradient_bytes


def test_a_rank_without_examples_computes_and_changes_nothing() -> None:
    engine = build(replace(JOB, model="small_cnn"))
    before = engine.weight_sums()
    assert engine.step(NOBODY, examples_count=1) == 0.0
    assert engine.weight_sums() == before


def test_a_rank_without_examples_leaves_the_moving_statistics_alone() -> None:
    engine = build(replace(JOB, model="resnet18"))
    before = moving_statistics(engine)
    loss, gradients = gradients_of_step(engine, NOBODY, examples_count=1)
    assert loss == 0.0
    assert len(gradients) == len(parameters(engine))  # the peers get them all
    assert not any(np.any(g) for g in gradients)
    for mine, theirs in zip(moving_statistics(engine), before, strict=True):
        assert np.array_equal(mine, theirs)
    engine.step(BATCH[:2], examples_count=2)
    changed = zip(moving_statistics(engine), before, strict=True)
    assert all(np.any(mine != theirs) for mine, theirs in changed)


def test_one_example_is_trained_where_a_normalisation_gets_one_value_a_channel() -> None:
    # ResNet-18 leaves one pixel of the 8x8 digits.
    job = replace(JOB, model="resnet18")
    engine, other = build(job), build(job)
    loss, once = gradients_of_step(engine, BATCH[:1], examples_count=4)
    twice_loss, twice = gradients_of_step(other, np.zeros(2, np.int32), examples_count=8)
    assert loss == pytest.approx(twice_loss / 2, rel=1e-2)
    # Of the last bias: further down, dividing by a variance of nearly 0 enlarges rounding.
    assert once[-1] == pytest.approx(twice[-1], rel=1e-2, abs=1e-3)
    assert all(np.all(np.isfinite(g)) for g in once)


def test_one_example_is_computed_once_where_that_is_enough() -> None:
    import torch
    from torch.nn.modules.module import register_module_forward_pre_hook

    engine = build(replace(JOB, model="small_cnn"))
    given: list[tuple[object, int]] = []  # modules, the whole model first, and examples
    hook = register_module_forward_pre_hook(lambda m, inputs: given.append((m, len(inputs[0]))))
    loss = engine.step(BATCH[:1], examples_count=1)
    hook.remove()
    assert [count for module, count in given if module is given[0][0]] == [1]
    assert torch.isfinite(torch.tensor(loss))


def test_what_is_restored_is_as_it_was_saved_with_the_momentum() -> None:
    engine = build(JOB)
    engine.step(BATCH, examples_count=64)
    state = engine.save()
    once = [engine.step(BATCH, examples_count=64) for _ in range(3)], engine.weight_sums()
    engine.restore(state)
    again = [engine.step(BATCH, examples_count=64) for _ in range(3)], engine.weight_sums()
    assert again == once


def test_the_first_weights_can_be_restored_without_a_momentum() -> None:
    engine = build(JOB)
    initial, sums = engine.save(), engine.weight_sums()
    once = engine.step(BATCH, examples_count=64), engine.step(BATCH, examples_count=64)
    engine.restore(initial)
    assert engine.weight_sums() == sums
    assert (
        engine.step(BATCH, examples_count=64),
        engine.step(BATCH, examples_count=64),
    ) == once


def test_the_seed_decides_the_weights() -> None:
    first, again, other = (build(replace(JOB, seed=seed)).weight_sums() for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_a_forward_pass_updates_nothing() -> None:
    engine = build(replace(JOB, training_pass=TrainingPass.FORWARD))
    before = engine.weight_sums()
    assert engine.step(BATCH, examples_count=64) > 0.0
    assert engine.weight_sums() == before
    assert engine.take_exchange() == Exchange(update_count=0)


def test_updates_are_counted_from_one_taking_to_the_next() -> None:
    engine = build(JOB)
    for _ in range(3):
        engine.step(BATCH, examples_count=64)
    assert engine.take_exchange() == Exchange(update_count=3)
    assert engine.take_exchange() == Exchange(update_count=0)


def test_one_rank_has_no_communication_in_its_steps() -> None:
    engine = build(JOB)
    ran: list[float] = []
    assert engine.trace(lambda: ran.append(engine.step(BATCH, examples_count=64))) == ()
    assert len(ran) == 1


def test_all_reduces_that_overlap_count_once_and_those_outside_a_step_not() -> None:
    from benchfarm.torch_trace import per_step

    second = 1e6
    steps = [(20 * second, 30 * second), (0.0, 10 * second)]
    collectives = [(1 * second, 4 * second), (2 * second, 5 * second), (2.5 * second, 3 * second)]
    collectives += [(12 * second, 15 * second), (29 * second, 31 * second)]
    assert per_step(steps, collectives) == pytest.approx((4.0, 1.0))
    # What is hidden behind computing keeps nobody idle.
    computing = [(0.0, 3.5 * second), (2 * second, 2.2 * second), (29.5 * second, 40 * second)]
    assert per_step(steps, collectives, computing) == pytest.approx((1.5, 0.5))


def test_what_is_computed_while_a_message_is_awaited_is_no_communication() -> None:
    from benchfarm.torch_trace import STEP, communication_times

    def event(name: str, thread: int, begin_s: float, end_s: float) -> SimpleNamespace:
        time_range = SimpleNamespace(start=begin_s * 1e6, end=end_s * 1e6)
        return SimpleNamespace(
            name=name, thread=thread, time_range=time_range, device_type=SimpleNamespace(name="CPU")
        )

    step = event(STEP, 1, 0.0, 10.0)
    # The thread that trains receives, and computes meanwhile.
    message = [event("gloo:recv", 1, 0.0, 9.0), event("aten::mm", 1, 2.0, 8.0)]
    assert communication_times([step, *message]) == pytest.approx([3.0])
    # Another one sums up what has come.
    summed = [event("gloo:all_reduce", 2, 0.0, 9.0), event("aten::add", 2, 2.0, 8.0)]
    assert communication_times([step, *summed]) == pytest.approx([9.0])


def test_gloo_is_told_the_interface_from_which_peers_are_reached() -> None:
    from farm.trainers.torch.gang import interface_towards

    assert interface_towards("127.0.0.1:20000") == "lo"
    assert interface_towards("no-such-host.invalid:20000") is None


TAKEN = [
    (model, dataset.facts)
    for model in MODELS
    for dataset in DATASETS
    if model.facts.needed_of(dataset.facts) is None
]


@pytest.mark.parametrize(
    ("model", "dataset"),
    TAKEN,
    ids=[f"{model.facts.name}-{dataset.name}" for model, dataset in TAKEN],
)
def test_a_model_of_torch_layers_is_as_large_and_computes_as_much_as_it_says(
    model: Any, dataset: DatasetFacts
) -> None:
    """PyTorch's count has the products alone. Nothing is computed on the device "meta"."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from farm.trainers.torch.layers import build_module

    shape, class_count = dataset.example_shape, dataset.class_count
    are_tokens = dataset.kind is ExampleKind.TOKENS
    size = model.describe(shape, class_count)
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counted:
        module = build_module(model.lay_out, shape, class_count).eval()
        example = torch.zeros(1, *shape, dtype=torch.int32 if are_tokens else torch.float32)
        logits = module(example)
    trained = [p for p in module.parameters() if p.requires_grad]
    assert sum(p.numel() for p in trained) == size.parameter_count
    assert sum(p.numel() * p.element_size() for p in trained) == size.gradient_bytes
    logit_count = model.facts.vocabulary_size or class_count
    assert logits.shape == (1, *(shape if are_tokens else ()), logit_count)
    flop = counted.get_total_flops()
    assert flop == pytest.approx(size.forward_flop_per_example, rel=0.01)


# What pads unevenly in TensorFlow, and what depends on the order of a flattened image.
SAME_AS_KERAS = """
    import json, os
    import keras, numpy as np, torch
    from farm.trainers.models.architecture import Architecture
    from farm.configuration.catalogue import ModelFacts
    from farm.trainers.torch.layers import build_module

    def lay_out(layers, image, class_count):
        x = layers.conv(image, 8, 3, stride=2, is_rectified=True)
        x = layers.normalise(layers.conv(x, 12, 5))
        x = layers.max_pool(layers.rectify(x), 3, stride=2)
        x = layers.max_pool(layers.conv(x, 6, 2, padding="valid"), 2, stride=1, padding="valid")
        return layers.dense(layers.dense(layers.flatten(x), 7, is_rectified=True), class_count)

    shape = (18, 22, 3)
    torch.manual_seed(1)
    model = Architecture(facts=ModelFacts(name="x", summary="x"), lay_out=lay_out)
    theirs, mine = model.build(shape, 5), build_module(lay_out, shape, 5)
    with torch.no_grad():
        for name, value in mine.named_parameters():
            value.uniform_(-0.5, 0.5)  # biases and scales, too
        values = [p.detach().numpy() for p in mine.parameters()]
        axes = {4: (2, 3, 1, 0), 2: (1, 0), 1: (0,)}
        for variable, value in zip(theirs.trainable_variables, values, strict=True):
            variable.assign(value.transpose(axes[value.ndim]))
        images = torch.rand(4, *shape)
        outputs = []
        for is_training in (True, False):
            expected = theirs(images, training=is_training)
            outputs.append(float((expected - mine.train(is_training)(images)).abs().max()))
        size = float(expected.abs().mean())
    print(json.dumps([*outputs, size]))
"""


# Layers of sequences. Tables are the same in both frameworks, other matrices are transposed.
SAME_OF_SEQUENCES = """
    import json
    import keras, numpy as np, torch
    from farm.trainers.models.architecture import Architecture
    from farm.configuration.catalogue import ModelFacts
    from farm.trainers.torch.layers import build_module

    def of_tokens(layers, tokens, token_count):
        table = layers.table(token_count, 12)
        x = layers.add_segment(layers.add_positions(layers.look_up(table, tokens), 9), 2)
        for is_causal in (True, False):
            y = layers.dense(layers.layer_norm(x, epsilon=1e-5), 36)
            x = layers.add(x, layers.dense(layers.attend(y, 3, is_causal=is_causal), 12))
            x = layers.gelu(layers.dense(x, 12), is_approximate=is_causal)
        return layers.compare(layers.lstm(x, 12), table, has_bias=True)

    def of_patches(layers, image, class_count):
        x = layers.to_sequence(layers.conv(image, 12, 2, stride=2, padding="valid"))
        x = layers.add_positions(layers.prepend_vector(x), 7)
        return layers.first_vector(layers.attend(layers.dense(x, 36), 3, is_causal=False))

    torch.manual_seed(1)
    found = []
    for lay_out, inputs in (
        (of_tokens, torch.randint(5, (4, 7))), (of_patches, torch.rand(4, 6, 4, 3)),
    ):
        shape = tuple(inputs.shape[1:])
        facts = ModelFacts(name="x", summary="x")
        theirs = Architecture(facts=facts, lay_out=lay_out).build(shape, 5)
        mine = build_module(lay_out, shape, 5)
        named = [(name, p) for name, p in mine.named_parameters() if p.requires_grad]
        with torch.no_grad():
            for variable, (name, value) in zip(theirs.trainable_variables, named, strict=True):
                value.uniform_(-0.5, 0.5)
                as_theirs = value.permute(2, 3, 1, 0) if value.ndim == 4 else value.T
                variable.assign(value if name.endswith("rows") else as_theirs)
            expected = theirs(inputs)
            difference = (expected - mine(inputs)).abs().max()
            found.append([float(difference), float(expected.std())])
    print(json.dumps(found))
"""


def test_layers_of_sequences_compute_what_those_of_keras_do() -> None:
    for difference, size in run_alone(SAME_OF_SEQUENCES):
        assert size > 0.05
        assert difference < 1e-5


def test_layers_of_torch_compute_what_layers_of_keras_do() -> None:
    training, inference, size = run_alone(SAME_AS_KERAS)
    assert size > 0.1
    assert training < 1e-5 * max(1.0, size)
    # The moving variance of one batch is unbiased in PyTorch and not in Keras.
    assert inference < 1e-2 * size


# What a user's own file makes.
OWN_MODEL = """
    import json
    import keras, numpy as np
    from farm import registry
    from farm.configuration.spec import JobSpec
    from farm.messages.trainer_lines import GoLine
    from farm.trainers.contracts import RankContext

    class Own:
        def build(self, example_shape, class_count):
            layers = keras.layers
            return keras.Sequential([
                layers.Input(example_shape), layers.Conv2D(8, 3), layers.BatchNormalization(),
                layers.Flatten(), layers.Dense(class_count),
            ])

    job = JobSpec(model="mlp", dataset="digits", strategy="torch_ddp", world_size=1,
                  global_batch_size=64, steps=5)
    dataset = registry.dataset("digits")
    engine = registry.strategy("torch_ddp").build(RankContext(
        job=job, rank=0, role="worker", go=GoLine(cluster={"worker": ("h:1",)}, task_index=0),
        model=Own(), dataset=dataset.facts, data=dataset.load(()), peer_timeout_s=5.0,
    ))
    batch = np.arange(64, dtype=np.int32)
    state = engine.save()
    losses = [engine.step(batch, examples_count=64) for _ in range(30)]
    accuracy = engine.evaluate(lambda: None).val_accuracy_ratio
    engine.restore(state)
    print(json.dumps([engine.parameter_count, losses, engine.step(batch, examples_count=64),
                      accuracy]))
"""


def test_a_users_own_model_of_keras_layers_is_trained_on_torch() -> None:
    parameter_count, losses, again, accuracy = run_alone(OWN_MODEL)
    assert parameter_count == (9 + 1) * 8 + 2 * 8 + (6 * 6 * 8 + 1) * 10
    assert losses[-1] < losses[0] / 2
    assert again == losses[0]
    assert accuracy > 0.4


# A file of a user's own, whose first layer is frozen and whose last one has a regulariser.
OWN_FILE = """
    import json
    import keras, numpy as np
    from farm import registry
    from farm.configuration.catalogue import ModelFacts
    from farm.configuration.spec import JobSpec
    from farm.messages.trainer_lines import GoLine
    from farm.trainers.contracts import RankContext
    from farm.trainers.failures import RankFailed
    from farm.trainers.model_files.model_file import ModelFile

    HEAD = '''
    import keras, torch
    from keras import layers, ops

    def build(s, c): return keras.Sequential([layers.Input(s), layers.Flatten(), %s])
    '''
    TRAINED = '''layers.Dense(16, trainable=False),
        layers.Dense(c, use_bias=False, kernel_regularizer=keras.regularizers.L2(0.25))'''
    REFUSED = {
        "softmax": "keras.Sequential([layers.Dense(c), layers.Softmax()])",
        "torch softmax": "layers.Dense(c), layers.Lambda(lambda x: torch.softmax(x, 1))",
        "frozen": "layers.Dense(c, trainable=False)",
        "unreached": "layers.Dense(4), layers.Lambda(lambda x: x.detach()), layers.Dense(c)",
        "half": "layers.Dense(c, dtype='float16')",
    }
    TAKEN = ["layers.Dense(c, dtype='mixed_bfloat16')",
             "layers.Dense(8), layers.BatchNormalization(), layers.Dense(c)"]

    def model(layers):
        source = (HEAD % layers).encode()
        return ModelFile(facts=ModelFacts(name="file:mine.py", summary=""), source=source)

    told = {}
    for name, layers in REFUSED.items():
        try:
            told[name] = str(model(layers).build((8, 8, 1), 10))
        except RankFailed as failed:
            told[name] = str(failed)

    job = JobSpec(model="file:mine.py", dataset="digits", strategy="torch_ddp", world_size=1,
                  global_batch_size=64, steps=5)
    dataset = registry.dataset("digits")
    data = dataset.load(())
    def engine_of(layers):
        return registry.strategy("torch_ddp").build(RankContext(
            job=job, rank=0, role="worker", go=GoLine(cluster={"worker": ("h:1",)}, task_index=0),
            model=model(layers), dataset=dataset.facts, data=data, peer_timeout_s=5.0,
        ))
    batch = np.arange(6, dtype=np.int32)
    losses = []
    for layers in TAKEN:
        engine = engine_of(layers)
        losses.append([engine.step(batch, examples_count=9) for _ in range(60)][::59])
    engine = engine_of(TRAINED)
    hidden, bias, before = (v.value.detach().numpy().copy() for v in engine._model.layers.variables)
    loss = engine.step(batch, examples_count=9)
    same_hidden, _, after = (v.value.detach().numpy() for v in engine._model.layers.variables)
    assert np.array_equal(hidden, same_hidden)
    x = data.train.inputs[:6].reshape(6, -1) / 255.0 @ hidden + bias
    chances = np.exp(x @ before)
    chances /= chances.sum(axis=1, keepdims=True)
    errors = chances - np.eye(10)[data.train.labels[:6]]
    expected = before - 0.02 * (x.T @ errors / 9 + 0.5 * before * 6 / 9)
    own = -np.log(chances[np.arange(6), data.train.labels[:6]]).sum() + 6 * 0.25 * (before**2).sum()
    assert np.allclose(after, expected, rtol=1e-4, atol=1e-6), abs(after - expected).max()
    assert np.isclose(loss, own, rtol=1e-4), (loss, own)
    print(json.dumps([told, losses, engine.parameter_count]))
"""


def test_a_users_own_file_is_checked_and_trained_on_torch_as_on_tensorflow() -> None:
    messages, losses, parameter_count = run_alone(OWN_FILE)
    assert {
        name: message for name, message in messages.items() if EXPECTED[name] not in message
    } == {}
    assert parameter_count == 16 * 10
    for first, last in losses:
        assert last < first / 2


EXPECTED = {
    "softmax": "expected logits, got a softmax as its last layer",
    "torch softmax": "expected logits, got a softmax as its last layer",
    "frozen": "expected weights to train, got 2 frozen ones",
    "unreached": "expected a gradient for every weight, got none for",
    "half": "expected weights of float32, got float16",
}


def run_alone(script: str, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        env={
            **os.environ,
            "KERAS_BACKEND": "torch",
            "OMP_NUM_THREADS": "1",
            # What is freed goes back to the system at once, and does not count among peaks.
            "MALLOC_MMAP_THRESHOLD_": "65536",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])

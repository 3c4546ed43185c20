"""Every TensorFlow strategy without servers, trained for real and held against its mathematics."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farm import registry
from farm.configuration.catalogue import GangShape
from farm.configuration.spec import JobSpec, OperatorPlacement
from farm.messages.trainer_lines import Started, TrainerResult
from farm.trainers.strategies import STRATEGIES
from tests.integration.trainer_process import gang, results
from tests.truths.tensorflow_reference import EVEN, JOB, STEPS_BETWEEN_AVERAGES

pytestmark = pytest.mark.tensorflow

# Of sums over 40,000 weights that were computed in another order.
WEIGHTS_TOLERANCE = 1e-5
BYTES_TOLERANCE = 0.1


@pytest.fixture(scope="module")
def reference() -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.truths.tensorflow_reference"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


def train(job: JobSpec, folder: Path) -> list[TrainerResult]:
    """Run a gang; check that what it sent is what its strategy's theory says."""
    with gang(job, folder) as trainers:
        found = results(trainers)
        [started] = trainers[0].seen(Started)
    every = job.steps_between_averages
    shape = GangShape(world_size=job.world_size, steps_between_averages=every)
    assert started.gradient_bytes is not None
    theory = registry.strategy(job.strategy).traffic(shape, started.gradient_bytes)
    # The last steps may be fewer than it takes until the next average.
    step_count = found[0].window_step_count // every * every
    sent = [r.payload_tx_bytes for r in found if r.payload_tx_bytes is not None]
    assert len(sent) == job.world_size
    assert statistics.fmean(sent) == pytest.approx(theory.bytes * step_count, rel=BYTES_TOLERANCE)
    return found


def assert_weights(found: list[TrainerResult], expected: dict[str, Any]) -> None:
    for result in found:
        weights = [result.details["weights_sum"], result.details["weights_square_sum"]]
        assert weights == pytest.approx(expected["weights"], rel=WEIGHTS_TOLERANCE)
    assert found[0].val_accuracy_ratio == pytest.approx(expected["accuracy"], abs=0.005)


@pytest.mark.parametrize("name", ["mirrored", "central_storage"])
def test_replicas_reach_the_weights_of_one_machine(
    reference: dict[str, dict[str, Any]], name: str
) -> None:
    expected, found = reference["single"], reference[name]
    assert found["weights"] == pytest.approx(expected["weights"], rel=WEIGHTS_TOLERANCE)
    assert found["accuracy"] == pytest.approx(expected["accuracy"], abs=0.005)
    assert found["exchange"]["update_count"] == 4  # of the full steps


def test_moving_statistics_that_replicas_share_are_the_mean_of_what_each_would_make_them(
    reference: dict[str, dict[str, Any]],
) -> None:
    # With equal shares the mean over replicas of a batch's mean is that of the whole batch.
    single, central = (
        reference[f"{name}_normalised"]["moving_mean"] for name in ("single", "central_storage")
    )
    assert single != 0.0
    assert central == pytest.approx(single, rel=1e-4)


def test_replicas_without_enough_gpus_say_that_they_were_on_the_cpu(
    reference: dict[str, dict[str, Any]],
) -> None:
    settings = reference["mirrored"]["settings"]
    if settings["gpus_found_count"] >= 2:
        pytest.skip("this machine has a GPU for each replica")
    assert settings["replica_devices"] == ["cpu:0", "cpu:1"]
    assert settings["device"] == "cpu"


def test_the_collective_of_a_step_is_the_mean_over_replicas_and_central_storage_cannot_tell(
    reference: dict[str, dict[str, Any]],
) -> None:
    assert len(reference["mirrored"]["collective_times_s"]) in {3, 4}  # of 4 steps
    assert reference["central_storage"]["collective_times_s"] is None


def test_automatic_collectives_reach_the_weights_of_one_machine(
    reference: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    # Placed hard, too: collectives and everything around them have a place on the CPU.
    job = replace(JOB, strategy="mwms_auto", world_size=2, placement=OperatorPlacement.HARD)
    found = train(job, tmp_path)
    assert_weights(found, reference["single"])
    for result in found:
        assert result.details["placement"] == "hard"
        assert result.exchange is not None
        assert result.exchange.update_count == 4  # of the full steps
        assert result.exchange.staleness_counts is None


@pytest.mark.parametrize("name", [s.facts.name for s in STRATEGIES if s.facts.compiles_by_xla])
def test_what_xla_compiles_reaches_the_same_weights(
    reference: dict[str, dict[str, Any]], name: str, tmp_path: Path
) -> None:
    facts = registry.strategy(name).facts
    job = replace(
        JOB if facts.is_synchronous else EVEN,
        strategy=name,
        world_size=facts.min_world_size if facts.max_world_size == 1 else 2,
        replicas_per_rank=1 + ("replicas_per_rank" in facts.axes),
        axes={"compile": "xla"},
    )
    found = train(job, tmp_path)
    assert_weights(found, reference["single" if facts.is_synchronous else "single_even"])


def test_xla_compiles_full_batches_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to={tmp_path / 'compiled'}")
    with gang(replace(JOB, axes={"compile": "xla"}), tmp_path, is_forked=False) as trainers:
        results(trainers)
    compiled = (tmp_path / "compiled").glob("*forward_backward*before_optimizations.txt")
    [module] = [path.read_text() for path in compiled]
    assert "u8[359,8,8,1]" in module


@pytest.mark.parametrize("name", ["local_sgd", "gossip"])
def test_two_ranks_that_average_every_step_are_synchronous_training(
    reference: dict[str, dict[str, Any]], name: str, tmp_path: Path
) -> None:
    # Shares are equal, and momentum is linear: see farm.trainers.strategies.local_sgd.
    found = train(replace(EVEN, strategy=name, world_size=2), tmp_path)
    assert_weights(found, reference["single_even"])


def test_local_sgd_is_what_its_definition_says(
    reference: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    # By epochs and after a warm-up of an odd number of steps, which must leave no trace in when
    # averages are due; with a step in which rank 1 has no examples; and with a last step after
    # which no average is due, so that evaluated is a mean that nobody trains on from.
    job = replace(
        JOB, strategy="local_sgd", world_size=2, steps_between_averages=STEPS_BETWEEN_AVERAGES
    )
    found = train(job, tmp_path)
    assert_weights(found, reference["local_sgd"])
    counts = [r.exchange.update_count for r in found if r.exchange]
    assert counts == [4, 4]  # the full steps, in which both have examples


def test_three_gossiping_ranks_send_what_two_of_them_do_and_are_evaluated_as_one(
    tmp_path: Path,
) -> None:
    job = replace(EVEN, strategy="gossip", world_size=3, steps=9)
    found = train(job, tmp_path)
    sums = {(r.details["weights_sum"], r.details["weights_square_sum"]) for r in found}
    assert len(sums) == 1
    assert found[0].val_accuracy_ratio is not None
    # TensorFlow's profiler may crash in a rank now and then (`collective_times`).
    assert any(result.profile is not None for result in found)

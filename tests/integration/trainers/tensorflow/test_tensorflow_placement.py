"""Hard placement pins operators to the CPU; soft placement lets TensorFlow move them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.tensorflow

# A process of its own for each, since placement can only be set up before TensorFlow is first used.
SCRIPT = """
import json, sys
from dataclasses import replace
from farm import registry
from farm.configuration.spec import OperatorPlacement
from tests.truths.tensorflow_reference import JOB, build

job = replace(JOB, model="mlp", placement=OperatorPlacement(sys.argv[1]))
registry.strategy(job.strategy).prepare(job, 1)
engine = build(job)
import tensorflow as tf

def of_a_device_that_is_not_there():
    with tf.device("/gpu:7"):
        return tf.constant(1.0) + tf.constant(1.0)

def outcome(call):
    try:
        call()
    except (tf.errors.OpError, RuntimeError) as error:
        return str(error)
    return "done"

graphs = [
    function.get_concrete_function().graph
    for function in (engine._step, engine._evaluator.function)
]
print(json.dumps({
    "asked": outcome(of_a_device_that_is_not_there),
    "asked_in_a_function": outcome(tf.function(of_a_device_that_is_not_there)),
    "devices": sorted({
        operation.device for graph in graphs for operation in graph.get_operations()
        if operation.type in ("MatMul", "Relu", "GatherV2", "ArgMax", "Cast")
    }),
    "gpus": len(tf.config.list_logical_devices("GPU")),
    "settings": engine.settings,
}))
"""


def placed(placement: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, placement],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["settings"]["placement"] == placement
    return found


def test_hard_placement_refuses_an_operator_that_is_asked_to_be_elsewhere() -> None:
    found = placed("hard")
    for refusal in (found["asked"], found["asked_in_a_function"]):
        assert "device" in refusal.lower()
        assert "gpu:7" in refusal.lower()
    assert found["gpus"] == 0
    # Each operator that computes has its place written down, none is left to the framework.
    assert found["devices"] == ["/job:localhost/replica:0/task:0/device:CPU:0"]


def test_soft_placement_moves_it_and_leaves_operators_free() -> None:
    found = placed("soft")
    assert found["asked"] == found["asked_in_a_function"] == "done"
    assert "" in found["devices"]

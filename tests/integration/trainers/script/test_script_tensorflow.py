"""Two ranks of a script that trains under TensorFlow's MultiWorkerMirroredStrategy."""

from __future__ import annotations

from pathlib import Path

import pytest

from farm.messages.trainer_lines import Ready, StepKind
from farm.trainers.all_reduce import ring_all_reduce
from tests.integration.trainer_process import results
from tests.integration.trainers.script.test_script_rank import STEPS, job_of, ranks

pytestmark = pytest.mark.tensorflow

MWMS = """
import tensorflow as tf
import benchfarm

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weights = tf.Variable(tf.zeros([2560, 100]))

@tf.function
def step(x):
    def replica(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x @ weights - 1.0))
        gradient = tape.gradient(loss, weights)
        context = tf.distribute.get_replica_context()
        weights.assign_sub(0.01 * context.all_reduce("mean", gradient))
        return loss
    return strategy.reduce("mean", strategy.run(replica, (x,)), axis=None)

while True:
    benchfarm.step(loss=float(step(tf.random.normal([8, 2560]))))
"""


def test_two_ranks_find_each_other_and_send_what_a_ring_must(tmp_path: Path) -> None:
    with ranks(job_of(launcher="tensorflow", world_size=2), MWMS, tmp_path) as trainers:
        both = results(trainers)
        assert trainers[0].seen(Ready)[0].framework.startswith("tensorflow 2.")
        assert [len(t.step_times_s(StepKind.TIMED)) for t in trainers] == [STEPS, STEPS]
    theory = ring_all_reduce(2, 4 * 2560 * 100)
    for result in both:
        assert result.payload_tx_bytes is not None
        assert result.payload_tx_bytes / STEPS == pytest.approx(theory.bytes, rel=0.05)
        assert result.train_loss is not None

"""Keras 3: each training batch of `fit` is a mark, with what Keras knows of loss and accuracy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.benchfarm.script_run import run_script, write_script

FIT = """
import keras, numpy as np
inputs, labels = np.random.rand(160, 8).astype("f"), np.random.randint(0, 2, 160)

class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.layer = keras.layers.Dense(2)
    def call(self, inputs):
        return self.layer(inputs)

def fit(net):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile("adam", loss, metrics=["accuracy"])
    net.fit(inputs, labels, batch_size=16, epochs=2, validation_split=0.5, verbose=0)
"""
# A training step of one's own, with an optimizer of PyTorch's.
OWN_STEP = """
import torch

class OwnNet(Net):
    def train_step(self, data):
        inputs, labels = data[:2]
        loss = self.compute_loss(y=labels, y_pred=self(inputs, training=True))
        self.own.zero_grad(); loss.backward(); self.own.step()
        return {"loss": loss}

net = OwnNet()
net(inputs[:1])
net.own = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.1)
fit(net)
"""


@pytest.mark.tensorflow
def test_each_training_batch_of_fit_is_a_mark(tmp_path: Path) -> None:
    text = f"{FIT}\nfit(Net())\nfit(Net())\nprint('not reached')"
    ended = run_script(
        write_script(tmp_path, text),
        last_mark=13,
        environment={"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"},
    )

    assert (ended.status, ended.output) == (0, ""), ended.error
    assert ended.numbers() == list(range(1, 14))
    assert ended.marks[0]["size"] == [8 * 2 + 2, 4 * (8 * 2 + 2)]
    assert "size" not in ended.marks[1]
    for mark in (ended.marks[0], ended.marks[-1]):
        assert mark["loss"] > 0
    # Two epochs of each `fit`, after five batches each; that of validation is no training step.
    assert [key for mark in ended.reported for key in mark if key in ("mark", "epoch")] == [
        *(["mark"] * 5 + ["epoch"]) * 2,
        *["mark"] * 3,
    ]
    for epoch in (line["epoch"] for line in ended.reported if "epoch" in line):
        assert epoch["loss"] > 0
        assert epoch["val_loss"] > 0
        assert 0 <= epoch["accuracy"] <= 1
    begun = ["begun_s" in mark for mark in ended.marks]
    assert [number for number, has_begun in enumerate(begun, start=1) if has_begun] == [1, 6, 11]
    assert ended.marks[4]["monotonic_s"] < ended.marks[5]["begun_s"]


@pytest.mark.torch
def test_with_pytorch_below_keras_a_step_is_not_counted_twice(tmp_path: Path) -> None:
    text = f"{FIT}\nfit(Net())\nprint('then', flush=True)\n{OWN_STEP}\nprint('done')"
    ended = run_script(write_script(tmp_path, text), environment={"KERAS_BACKEND": "torch"})

    assert (ended.status, ended.output) == (0, "then\ndone\n"), ended.error
    # Two epochs of five batches each, and as many where the optimizer steps within the batch.
    assert ended.numbers() == list(range(1, 21))

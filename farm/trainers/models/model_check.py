"""Whether a user's Keras model can be trained as every other: what it gives, and of what type.

Nothing here changes the model's weights or its state; variables are read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_SHOWN_NAMES = 3
_IMAGE_COUNTS = (5, 8)  # two, so that a model for a fixed number of images is noticed
# With other weights logits leave the range of probabilities: of 2 classes the chance that they do
# not is below 0.2 each time.
_OTHER_WEIGHTS_COUNT = 8
_TOLERANCE = 0.03  # bfloat16 has 3 digits


def call_with(
    model: Any, values: Sequence[tuple[Any, Any]], images: Any, *, training: bool
) -> tuple[Any, list[Any], list[Any]]:
    """Call a built model with `values` for some of its variables, without changing any.

    Returns the output, the new values of the non-trainable variables, and the model's own losses.
    """
    import keras

    given = {id(variable) for variable, _ in values}
    # Without a value here, Keras passes None to a variable's regulariser.
    own = [(v, v.value) for v in model.trainable_variables if id(v) not in given]
    with keras.StatelessScope(state_mapping=[*values, *own], collect_losses=True) as scope:
        output = model(images, training=training)
        losses = list(model.losses)
    changed = [scope.get_current_value(v) for v in model.non_trainable_variables]
    return output, changed, losses


def shape_trouble(model: Any, example_shape: tuple[int, int, int], class_count: int) -> str | None:
    """Say what is wrong with the output, of symbols alone; gives a model its variables, too.

    What the model raises passes through.
    """
    import keras

    output = model(keras.Input(example_shape))
    expected = f"expected an output of nx{class_count}, one logit a class, got "
    if isinstance(output, dict):
        return f"{expected}a dict of {_listed(list(output))}: return the logits alone"
    if isinstance(output, list | tuple):
        return f"{expected}a {type(output).__name__} of {len(output)}: return the logits alone"
    shape = tuple(output.shape)
    if len(shape) == 2 and shape[1] == class_count and isinstance(shape[0], int):
        return f"expected any number of images, got a model for {shape[0]}: give no batch_size"
    if shape != (None, class_count):
        return expected + ("x".join("n" if n is None else str(n) for n in shape) or "one number")
    return None


def weight_trouble(model: Any) -> str | None:
    """Say what is wrong with the weights: none to train, constraints, type, or values."""
    import keras

    weights = [v for v in model.variables if keras.backend.is_float_dtype(v.dtype)]
    if not model.trainable_variables:
        frozen = f"{len(weights)} frozen ones (trainable = False)" if weights else "none at all"
        return f"expected weights to train, got {frozen}: there is nothing to train"
    for variable in model.trainable_variables:
        if variable.constraint is not None:
            name = type(variable.constraint).__name__
            return (
                f"expected weights without a constraint, got {name} ({variable.path}), which not "
                "every strategy applies: leave it out"
            )
    advice = "take float32, or the policy 'mixed_bfloat16' to compute in fewer bits"
    for variable in weights:
        if variable.dtype != "float32":
            return f"expected weights of float32, got {variable.dtype} ({variable.path}): {advice}"
    for layer in model._flatten_layers():
        if layer.compute_dtype == "float16":
            return (
                f"expected layers that compute in float32 or bfloat16, got float16 ({layer.name}), "
                f"whose gradients vanish without a scaled loss: {advice}"
            )
    for variable in weights:
        if not np.isfinite(_numpy(keras.ops.convert_to_tensor(variable.value))).all():
            return (
                f"expected finite weights before the training, got nan or inf ({variable.path}): "
                "look at its initializer"
            )
    return None


def output_trouble(model: Any, example_shape: tuple[int, int, int], class_count: int) -> str | None:
    """Say what is wrong with what the model gives for random images.

    Probabilities are told by what they are, wherever in the model they come from: the same sum for
    every image, or all from 0 to 1, whatever the weights.
    """
    random = np.random.default_rng(0)
    for image_count, training in zip(_IMAGE_COUNTS, (False, True), strict=True):
        images = random.random((image_count, *example_shape), np.float32)
        logits = _logits(model, [], images, training=training)
        if logits.shape != (image_count, class_count):
            got = "x".join(map(str, logits.shape)) or "one number"
            return f"expected {image_count}x{class_count} logits of {image_count} images, got {got}"
        if not np.issubdtype(logits.dtype, np.floating):
            return f"expected logits of a floating type, got {logits.dtype}"
        if not np.isfinite(logits).all():
            return "expected finite logits before the training, got nan or inf for random images"
        if is_of := _probabilities(model, images, logits, training=training):
            return f"expected logits, got {is_of}: leave it out, since the loss has a softmax"
    return None


def gradient_trouble(model: Any, example_shape: tuple[int, int, int]) -> str | None:
    """Name the weights that no gradient reaches: nothing would train or exchange them."""
    import keras

    images = keras.ops.convert_to_tensor(np.full((2, *example_shape), 0.5, np.float32))
    gradients = (
        _torch_gradients(model, images)
        if keras.backend.backend() == "torch"
        else _tensorflow_gradients(model, images)
    )
    unreached = [
        variable.path
        for variable, gradient in zip(model.trainable_variables, gradients, strict=True)
        if gradient is None
    ]
    if not unreached:
        return None
    return (
        f"expected a gradient for every weight, got none for {_listed(unreached)}: leave out what "
        "the logits do not depend on, or set its trainable = False"
    )


def _probabilities(model: Any, images: Any, logits: Any, *, training: bool) -> str | None:
    """Return what the last layer must be if the outputs are probabilities whatever the weights."""
    adds_up, is_bounded = _adds_up(logits), _is_bounded(logits)
    random = np.random.default_rng(1)
    for _ in range(_OTHER_WEIGHTS_COUNT):
        if not (adds_up or is_bounded):
            return None
        others = [(v, _other_value(v, random)) for v in model.trainable_variables]
        found = _logits(model, others, images, training=training)
        adds_up = adds_up and _adds_up(found)
        # Layers that are not Keras's own may keep their weights.
        is_bounded = is_bounded and _is_bounded(found) and not np.array_equal(found, logits)
    if adds_up:
        return "a softmax as its last layer (its outputs add up alike for every image)"
    return "a sigmoid as its last layer (its outputs are from 0 to 1)" if is_bounded else None


def _adds_up(outputs: Any) -> bool:
    """Whether the outputs of each image have one sum other than 0, as those of a softmax have.

    They still do once they were multiplied by one number, of any sign, and another was added.
    """
    sums = outputs.sum(axis=1)
    mean, difference = abs(sums.mean()), np.ptp(sums)
    if outputs.min() >= 0 or outputs.max() <= 0:
        return bool(mean > 0 and difference <= _TOLERANCE * mean)
    # Logits may differ little from image to image, and so may their sums: what counts is by how
    # much less the sums differ. Logits that are centred have the sum 0.
    spread = np.sqrt(outputs.var(axis=0).sum())
    is_centred = mean <= _TOLERANCE * abs(outputs).mean()
    return bool(difference <= _TOLERANCE * spread and not is_centred)


def _is_bounded(outputs: Any) -> bool:
    return bool(outputs.min() >= 0 and outputs.max() <= 1 + _TOLERANCE)


def _other_value(variable: Any, random: np.random.Generator) -> Any:
    """Return values of a size that keeps those of the next layer near 1."""
    import keras

    shape = tuple(variable.shape)
    size = 1 / np.sqrt(np.prod(shape[:-1])) if len(shape) > 1 else 1.0
    values = size * random.standard_normal(shape, np.float32)
    return keras.ops.convert_to_tensor(values.astype(np.float32))


def _logits(model: Any, values: Sequence[tuple[Any, Any]], images: Any, *, training: bool) -> Any:
    import keras

    given = keras.ops.convert_to_tensor(images)
    output, _, _ = call_with(model, values, given, training=training)
    if keras.backend.is_float_dtype(keras.backend.standardize_dtype(output.dtype)):
        output = keras.ops.cast(output, "float32")  # NumPy has no bfloat16
    return _numpy(output)


def _tensorflow_gradients(model: Any, images: Any) -> list[Any]:
    import tensorflow as tf

    variables = model.trainable_variables
    values = [tf.identity(v.value) for v in variables]
    with tf.GradientTape() as tape:
        tape.watch(values)
        pairs = list(zip(variables, values, strict=True))
        output, _, losses = call_with(model, pairs, images, training=True)
        total = [tf.reduce_sum(tf.cast(x, tf.float32)) for x in (output, *losses)]
    gradients: list[Any] = tape.gradient(total, values)
    return gradients


def _torch_gradients(model: Any, images: Any) -> list[Any]:
    import torch

    output, _, losses = call_with(model, [], images, training=True)
    total = sum(x.float().sum() for x in (output, *losses))
    values = [v.value for v in model.trainable_variables]
    if not isinstance(total, torch.Tensor) or not total.requires_grad:
        return [None] * len(values)
    return list(torch.autograd.grad(total, values, allow_unused=True))


def _numpy(tensor: Any) -> Any:
    # Not by keras.ops.convert_to_numpy, with which NumPy warns of TensorFlow's tensors.
    return tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else tensor.numpy()


def _listed(names: Sequence[Any]) -> str:
    shown = ", ".join(map(str, names[:_SHOWN_NAMES]))
    return shown if len(names) <= _SHOWN_NAMES else f"{shown} and {len(names) - _SHOWN_NAMES} more"

"""Checks that a user's Keras model can be trained: outputs and types.

Nothing here changes the model's weights or its state; variables are read once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

_SHOWN_NAMES = 3
_IMAGE_COUNTS = (5, 8)  # two, so that a model for a fixed number of images is noticed
# Logits of ReLU for 2 classes are all 0 with a quarter of all weights, and show nothing then.
_OTHER_WEIGHTS_COUNT = 8
_MATRICES_ALWAYS_TRIED = 4
_TOLERANCE = 0.03  # bfloat16 has 3 digits
# By which weights are multiplied. The smaller one is for what overflows, such as exp.
_LARGE_FACTOR, _SMALL_FACTOR = 1e6, 30.0
# A softmax of numbers that differ by less never gives one of 10 classes more than 99.7 %.
_NARROW_RANGE = 8.0
_WIDE_RANGE = 1e4
# Far below the least number of float16, far above that of float32 and bfloat16.
_TINY = 2.0**-40
_QUANTIZED = ("int4", "int8", "uint8")  # a counter, such as Normalization's, has more bits
_NO_CAST = "leave out the cast to float16"


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


def shape_trouble(model: Any, example_shape: tuple[int, ...], class_count: int) -> str | None:
    """Say what is wrong with the output, of symbols alone; gives a model its variables, too.

    What the model raises passes through.
    """
    import keras

    output = model(keras.Input(example_shape))
    if trouble := _structure_trouble(output, class_count):
        return trouble
    shape = tuple(output.shape)
    if len(shape) == 2 and shape[1] == class_count and isinstance(shape[0], int):
        return f"expected any number of images, got a model for {shape[0]}: give no batch_size"
    if shape != (None, class_count):
        got = "x".join("n" if n is None else str(n) for n in shape) or "one number"
        return f"{_expected(class_count)}, got {got}"
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
    quantized = [v for v in model.weights if str(v.dtype) in _QUANTIZED]
    for variable in (*weights, *quantized):
        if variable.dtype != "float32":
            return f"expected weights of float32, got {variable.dtype} ({variable.path}): {advice}"
    for layer in model._flatten_layers():  # `layers` has no layers of layers
        for name, value in vars(layer).items():
            if isinstance(value, _variables_of_tensorflow()) and value.trainable:
                return (
                    f"expected weights that Keras knows, got a tf.Variable ({layer.name}.{name}), "
                    "which would not be trained: create it by add_weight"
                )
        if layer.compute_dtype == "float16":
            return (
                f"expected layers that compute in float32 or bfloat16, got float16 ({layer.name}), "
                f"whose gradients vanish without a scaled loss: {advice}"
            )
    for variable in weights:
        if not np.isfinite(numpy_of(keras.ops.convert_to_tensor(variable.value))).all():
            return (
                f"expected finite weights before the training, got nan or inf ({variable.path}): "
                "look at its initializer"
            )
    return None


def _variables_of_tensorflow() -> tuple[type[Any], ...]:
    tensorflow = sys.modules.get("tensorflow")
    return () if tensorflow is None else (tensorflow.Variable,)


def output_trouble(model: Any, example_shape: tuple[int, ...], class_count: int) -> str | None:
    """Say what is wrong with the type, the shape or the values of what the model returns."""
    for images, training in _random_images(example_shape):
        output = _output(model, [], images, training=training)
        when = " in training" if training else ""
        if trouble := _structure_trouble(output, class_count, when=when):
            return trouble
        logits = _numbers(output)
        if logits.shape != (len(images), class_count):
            got = "x".join(map(str, logits.shape)) or "one number"
            return f"expected {len(images)}x{class_count} logits of {len(images)} images, got {got}"
        if not np.issubdtype(logits.dtype, np.floating):
            return f"expected logits of a floating type, got {logits.dtype}"
        if _type_of(output) == "float16":
            return (
                "expected logits of float32 or bfloat16, got float16, in which gradients vanish: "
                f"{_NO_CAST}"
            )
        if not np.isfinite(logits).all():
            return "expected finite logits before the training, got nan or inf for random images"
    return None


def gradient_trouble(model: Any, example_shape: tuple[int, ...]) -> str | None:
    """Say which weights the training would not change.

    No gradient reaches them, or it is 0 for all weights, whatever their values. A gradient that is
    0 only because it begins tiny has passed a cast to float16.
    """
    random = np.random.default_rng(2)
    images = random.random((_IMAGE_COUNTS[-1], *example_shape), np.float32)
    variables = model.trainable_variables
    usual, tiny, of_losses = _gradients(model, [(v, v.value) for v in variables], images)
    unreached = [
        variable.path
        for variable, gradient, own in zip(variables, usual, of_losses, strict=True)
        if gradient is None and own is None
    ]
    if unreached:
        return (
            f"expected a gradient for every weight, got none for {_listed(unreached)}: leave out "
            "what the logits do not depend on, or set its trainable = False"
        )
    lost = [
        variable.path
        for variable, gradient, least in zip(variables, usual, tiny, strict=True)
        if _largest(gradient) > 1e-6 and not _largest(least)
    ]
    if lost:
        return (
            "expected calculations in float32 or bfloat16, got float16, in which gradients vanish, "
            f"between {_listed(lost)} and the logits: {_NO_CAST}"
        )
    for _ in range(_OTHER_WEIGHTS_COUNT):
        if any(map(_largest, usual)):
            return None
        others = [(v, _other_value(v, random)) for v in variables]
        usual, _, _ = _gradients(model, others, images)
    return (
        "expected logits that depend on the weights, got a gradient of 0 for every weight, "
        "whatever the weights are: there is nothing to train; look for a factor of 0"
    )


def limit_trouble(model: Any, example_shape: tuple[int, ...]) -> str | None:
    """Say what the outputs are if they stay in a range whatever the weights, as logits do not.

    Each matrix is multiplied alone: that of the last layer is enough to make logits large. Vectors
    and single weights do not count, since what follows a softmax may have some, too.
    """
    for images, training in _random_images(example_shape):
        if got := _limit(model, images, training=training):
            return f"expected logits, got {got}, since the loss has a softmax"
    return None


# Outputs, and what they become with larger matrices.
_Pairs = list[tuple[Any, Any]]


def _larger_outputs(
    model: Any, images: Any, class_count: int, *, training: bool
) -> tuple[_Pairs, _Pairs] | None:
    """Return outputs that larger matrices do not make larger; None: they do, so these are logits.

    In the first pairs vectors have their own values: after a softmax, these are mostly one factor
    and one summand for all classes. In the others they have random ones, so that none is 0.
    """
    variables = model.trainable_variables
    matrices = [v for v in reversed(variables) if len(v.shape) > 1] or variables
    # Those of the last layer first: nearly always one call is enough.
    matrices = sorted(matrices, key=lambda v: v.shape[-1] != class_count)
    random = np.random.default_rng(1)
    with_own: _Pairs = []
    with_others: _Pairs = []
    for pairs, drawn in ((with_own, matrices), (with_others, variables)):
        for number in range(_OTHER_WEIGHTS_COUNT // 2):
            others = {id(v): (v, _other_value(v, random)) for v in drawn}
            base = _logits(model, list(others.values()), images, training=training)
            if not np.isfinite(base).all():
                continue
            tried = matrices[:_MATRICES_ALWAYS_TRIED] if number else matrices
            for multiplied in (*([v] for v in tried), matrices):
                found = _with_larger(model, others, multiplied, images, training=training)
                if found is not None and _grows(base, *found):
                    return None
                if found is not None:
                    pairs.append((base, found[0]))
    return with_own, with_others


def _limit(model: Any, images: Any, *, training: bool) -> str | None:
    """Return what the last layer must be if larger matrices do not make larger outputs."""
    first = _logits(model, [], images, training=training)
    found = _larger_outputs(model, images, first.shape[1], training=training)
    if found is None or not found[0]:
        return None
    with_own_vectors, with_others = found
    outputs = [first, *(output for pair in with_own_vectors for output in pair)]
    # Whether larger weights are what takes all outputs to one of two values.
    before = [_at_ends(base) < 0.7 for base, large in with_own_vectors if _at_ends(large) >= 0.9]
    are_saturated = sum(before) > len(before) / 2
    if all(map(_sums_alike, outputs)) and (are_saturated or not any(map(_is_centred, outputs))):
        return (
            "a softmax as its last layer (its outputs add up alike for every image): leave it out"
        )
    is_normalised = not any(_differ(base, larger) for base, larger in with_own_vectors)
    if is_normalised and training:
        # Perhaps over the images: then the evaluation is not, and with more images the range grows.
        return None
    if _grows_with_vectors(model, images, training=training):
        is_limited = are_saturated  # else logits that are normalised before a trained factor
    else:
        outputs += [output for pair in with_others for output in pair]
        if is_normalised:
            outputs += _with_one_large_class(model, images, first.shape[1], training=training)
        usual = max(np.ptp(base) for base, _ in (*with_own_vectors, *with_others))
        span = np.ptp(outputs)
        is_limited = span < _NARROW_RANGE or (are_saturated and span < 2 * usual)
    if not is_limited:
        return None
    low, high = np.min(outputs), np.max(outputs)
    if low >= 0 and high <= 1 + _TOLERANCE:
        return "a sigmoid as its last layer (its outputs are from 0 to 1): leave it out"
    return (
        f"outputs from {low:.3g} to {high:.3g} whatever the weights, as a tanh gives them: leave "
        "out what limits them"
    )


def _with_one_large_class(
    model: Any, images: Any, class_count: int, *, training: bool
) -> list[Any]:
    """Return the outputs farthest apart that a normalisation over the classes allows."""
    import keras

    random = np.random.default_rng(5)
    found = []
    for variable in model.trainable_variables:
        if variable.shape[-1:] == (class_count,):
            value = _other_value(variable, random)
            one = np.ones(class_count, np.float32)
            one[0] = _LARGE_FACTOR
            value = value * keras.ops.convert_to_tensor(one)
            found.append(_logits(model, [(variable, value)], images, training=training))
    return [outputs for outputs in found if np.isfinite(outputs).all()]


def _grows_with_vectors(model: Any, images: Any, *, training: bool) -> bool:
    random = np.random.default_rng(4)
    variables = model.trainable_variables
    others = {id(v): (v, _other_value(v, random)) for v in variables}
    base = _logits(model, list(others.values()), images, training=training)
    for vector in (v for v in variables if len(v.shape) <= 1):
        found = _with_larger(model, others, [vector], images, training=training)
        if found is not None and _grows(base, *found):
            return True
    return False


def _with_larger(
    model: Any,
    values: Mapping[int, tuple[Any, Any]],
    multiplied: Sequence[Any],
    images: Any,
    *,
    training: bool,
) -> tuple[Any, float] | None:
    """Return finite outputs with larger weights, and by which factor; None: there are none."""
    for factor in (_LARGE_FACTOR, _SMALL_FACTOR) if len(multiplied) == 1 else (_SMALL_FACTOR,):
        larger = {id(v): (v, values.get(id(v), (v, v.value))[1] * factor) for v in multiplied}
        given = list({**values, **larger}.values())
        outputs = _logits(model, given, images, training=training)
        if np.isfinite(outputs).all():
            return outputs, factor
    return None


def _grows(base: Any, larger: Any, factor: float) -> bool:
    span = np.ptp(larger)
    return bool(span > _WIDE_RANGE or (span > _NARROW_RANGE and span >= factor / 2 * np.ptp(base)))


def _differ(base: Any, larger: Any) -> bool:
    return bool(abs(larger - base).max() > _TOLERANCE * np.ptp(base))


def _at_ends(outputs: Any) -> float:
    """Return the share of outputs near the least or the largest, as all of a large softmax are."""
    distance = np.minimum(outputs - outputs.min(), outputs.max() - outputs)
    return float((distance <= _TOLERANCE * np.ptp(outputs)).mean())


def _sums_alike(outputs: Any) -> bool:
    """Whether the outputs of each image have one sum, as those of a softmax have.

    They still do once they were multiplied by one number, of any sign, and another was added.
    """
    sums = outputs.sum(axis=1)
    difference = np.ptp(sums)
    if outputs.min() >= 0 or outputs.max() <= 0:
        return bool(difference <= _TOLERANCE * abs(sums.mean()))
    # Logits may differ little from image to image, and so may their sums: what counts is by how
    # much less the sums differ.
    spread = np.sqrt(outputs.var(axis=0).sum())
    return bool(difference <= max(_TOLERANCE * spread, 1e-5 * abs(outputs).max()))


def _is_centred(outputs: Any) -> bool:
    return bool(abs(outputs.sum(axis=1).mean()) <= _TOLERANCE * abs(outputs).mean())


def _other_value(variable: Any, random: np.random.Generator) -> Any:
    """Return values of a size that keeps those of the next layer near 1."""
    import keras

    shape = tuple(variable.shape)
    size = 1 / np.sqrt(np.prod(shape[:-1])) if len(shape) > 1 else 1.0
    values = size * random.standard_normal(shape, np.float32)
    return keras.ops.convert_to_tensor(values.astype(np.float32))


def _random_images(example_shape: tuple[int, ...]) -> Iterator[tuple[Any, bool]]:
    """Yield images for an evaluation, and others for the training."""
    random = np.random.default_rng(0)
    for image_count, training in zip(_IMAGE_COUNTS, (False, True), strict=True):
        yield random.random((image_count, *example_shape), np.float32), training


def _output(model: Any, values: Sequence[tuple[Any, Any]], images: Any, *, training: bool) -> Any:
    import keras

    output, _, _ = call_with(model, values, keras.ops.convert_to_tensor(images), training=training)
    return output


def _logits(model: Any, values: Sequence[tuple[Any, Any]], images: Any, *, training: bool) -> Any:
    return _numbers(_output(model, values, images, training=training))


def _numbers(output: Any) -> Any:
    import keras

    if keras.backend.is_float_dtype(_type_of(output)):
        output = keras.ops.cast(output, "float32")  # NumPy has no bfloat16
    return numpy_of(output)


def _type_of(output: Any) -> str:
    import keras

    name: str = keras.backend.standardize_dtype(output.dtype)
    return name


def _expected(class_count: int) -> str:
    return f"expected an output of nx{class_count}, one logit a class"


def _structure_trouble(output: Any, class_count: int, *, when: str = "") -> str | None:
    """Say what there is instead of one tensor; `when`: in which mode."""
    if isinstance(output, dict):
        got = f"a dict of {_listed(list(output))}"
    elif isinstance(output, list | tuple):
        got = f"a {type(output).__name__} of {len(output)}"
    elif hasattr(output, "dtype") and hasattr(output, "shape"):
        return None
    else:
        got = type(output).__name__
    return f"{_expected(class_count)}, got {got}{when}: return the logits alone"


_Gradients = tuple[list[Any], list[Any], list[Any]]


def _gradients(model: Any, values: Sequence[tuple[Any, Any]], images: Any) -> _Gradients:
    """Return the gradients at `values`: of the logits, the same times `_TINY`, of own losses.

    The gradients with respect to the logits are random. None: the weight is not reached.
    """
    import keras

    given = keras.ops.convert_to_tensor(images)
    of = _torch_gradients if keras.backend.backend() == "torch" else _tensorflow_gradients
    return of(model, values, given)


def _largest(gradient: Any) -> float:
    """Return the largest size within a gradient, NaN where one is; 0 where there is none."""
    return 0.0 if gradient is None else float(np.abs(_numbers(gradient)).max(initial=0))


def _tensorflow_gradients(model: Any, values: Sequence[tuple[Any, Any]], images: Any) -> _Gradients:
    import tensorflow as tf

    pairs = [(variable, tf.identity(value)) for variable, value in values]
    held = [value for _, value in pairs]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(held)
        output, _, losses = call_with(model, pairs, images, training=True)
        own = [tf.reduce_sum(tf.cast(x, tf.float32)) for x in losses]
    of_output = tf.constant(_output_gradient(output.shape))
    usual, tiny = (
        tape.gradient(output, held, output_gradients=tf.cast(scale * of_output, output.dtype))
        for scale in (1.0, _TINY)
    )
    of_losses = tape.gradient(own, held) if own else [None] * len(held)
    return _dense(usual), _dense(tiny), of_losses


def _dense(gradients: Sequence[Any]) -> list[Any]:
    """Return tensors for what an Embedding gives, too."""
    import tensorflow as tf

    return [None if g is None else tf.convert_to_tensor(g) for g in gradients]


def _torch_gradients(model: Any, values: Sequence[tuple[Any, Any]], images: Any) -> _Gradients:
    import torch

    pairs = [(v, value.detach().clone().requires_grad_()) for v, value in values]
    held = [value for _, value in pairs]
    output, _, losses = call_with(model, pairs, images, training=True)
    of_output = torch.from_numpy(_output_gradient(output.shape)).to(output)

    def gradients(of: Any, start: Any) -> list[Any]:
        if not of.requires_grad:
            return [None] * len(held)
        return list(torch.autograd.grad(of, held, start, retain_graph=True, allow_unused=True))

    own = sum((x.float().sum() for x in losses), torch.zeros(()))
    return gradients(output, of_output), gradients(output, _TINY * of_output), gradients(own, None)


def _output_gradient(shape: Sequence[int]) -> Any:
    return np.random.default_rng(3).standard_normal(tuple(shape), np.float32)


def numpy_of(tensor: Any) -> Any:
    """Return a tensor of either framework as an array."""
    # Not by keras.ops.convert_to_numpy, with which NumPy warns of TensorFlow's tensors.
    return tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else tensor.numpy()


def _listed(names: Sequence[Any]) -> str:
    shown = ", ".join(map(str, names[:_SHOWN_NAMES]))
    return shown if len(names) <= _SHOWN_NAMES else f"{shown} and {len(names) - _SHOWN_NAMES} more"

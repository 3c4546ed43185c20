"""A user's own model: a Python file on the agent's disk, which defines how to build it.

The file has a function `build(example_shape, class_count)` that returns a Keras model: images in
[0, 1] of that (height, width, channels) in, one logit for each class out. Of a file on the disk
nothing is known before it is built, so nothing is described.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farm.core.catalogue import ModelFacts
from farm.core.model_files import PREFIX, trouble_of
from farm.core.model_size import ModelSize
from farm.core.trainer_lines import FailureKind
from farm.trainers.failures import RankFailed

_MAX_FILE_BYTES = 1_000_000
_BUILD = "build"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """A model whose layers are in `source`, as it was read; the file may change meanwhile."""

    facts: ModelFacts
    source: bytes = field(repr=False)

    @property
    def sha256(self) -> str:
        """Of the file; recorded with every result, since a name says nothing of the content."""
        return hashlib.sha256(self.source).hexdigest()

    def describe(self, example_shape: tuple[int, int, int], class_count: int) -> ModelSize | None:
        """Return None: only the built model knows its size."""
        del example_shape, class_count
        return None

    def build(self, example_shape: tuple[int, int, int], class_count: int) -> Any:
        """Run the file and its `build`, and return the model.

        Raises:
            RankFailed: TRAINER_RAISED, in one line: it defines no `build`, raises, or returns
                anything but a Keras model that gives one logit for each class.
        """
        import keras

        namespace: dict[str, Any] = {"__name__": "model_file", "__file__": self.facts.name}
        try:
            exec(compile(self.source, self.facts.name, "exec"), namespace)  # noqa: S102 (its operator's own)
            build = namespace.get(_BUILD)
            built = build(example_shape, class_count) if callable(build) else None
        except Exception as error:
            raise self._failed(f"raised {type(error).__name__}: {error}") from error
        if not callable(build):
            raise self._failed(
                f"expected a function {_BUILD}(example_shape, class_count), got none"
            )
        if not isinstance(built, keras.Model):
            raise self._failed(f"expected a Keras model of {_BUILD}, got {type(built).__name__}")
        self._check_output(built, example_shape, class_count)
        return built

    def _check_output(
        self, built: Any, example_shape: tuple[int, int, int], class_count: int
    ) -> None:
        import keras

        try:
            # Of symbols: it computes nothing, and gives a model its variables that has none yet.
            shape = tuple(built(keras.Input(example_shape)).shape)
        except Exception as error:
            images = "x".join(map(str, example_shape))
            text = f"does not take images of {images}: {type(error).__name__}: {error}"
            raise self._failed(text) from error
        if shape != (None, class_count):
            got = "x".join("n" if length is None else str(length) for length in shape)
            raise self._failed(
                f"expected an output of nx{class_count}, one logit a class, got {got}"
            )
        last = built.layers[-1] if built.layers else None
        if getattr(last, "activation", None) is keras.activations.softmax or isinstance(
            last, keras.layers.Softmax
        ):
            raise self._failed("expected logits, got a softmax as its last layer")

    def _failed(self, text: str) -> RankFailed:
        line = " ".join(f"model {self.facts.name}: {text}".split())
        return RankFailed(FailureKind.TRAINER_RAISED, line)


def read_model_file(name: str, path: Path | None) -> ModelFile:
    """Read the file that the agent has named, without running it.

    Raises:
        RankFailed: MODEL_MISSING: the agent allows none, or it is not there, not readable, too
            long, or others than its operator could have written it.
    """
    if path is None:
        raise _missing(name, "it is not among this agent's; see AGENT_MODELS")
    try:
        # Not through a link, and not waiting for a pipe; what is checked is what is read.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            held = os.fstat(descriptor)
            trouble = trouble_of(mode=held.st_mode, owner=held.st_uid, own_uid=os.geteuid())
            if trouble is not None:
                raise _missing(name, f"{path} {trouble}")
            source = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _missing(name, f"{path}: {error.strerror or error}") from None
    if len(source) > _MAX_FILE_BYTES:
        raise _missing(name, f"{path} is longer than {_MAX_FILE_BYTES} bytes")
    return ModelFile(facts=ModelFacts(name=PREFIX + name, summary="a file"), source=source)


def _missing(name: str, why: str) -> RankFailed:
    return RankFailed(FailureKind.MODEL_MISSING, f"model {PREFIX}{name}: {why}")

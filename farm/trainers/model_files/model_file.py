"""A user's own model: a Python file on the agent's disk, which defines how to build it.

The file has a function `build(example_shape, class_count)` that returns a Keras model: images in
[0, 1] of that (height, width, channels) in, one logit for each class out. The size of such a model
is not known before it is built, so `describe` returns None.

The file is imported as a module: it has a name in `sys.modules`, a loader and `__file__`, so that
dataclasses, typing, pickle, inspect and tracebacks work in it as in any other module.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import importlib.util
import linecache
import logging
import multiprocessing.process
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from farm.configuration.catalogue import ModelFacts
from farm.configuration.model_files import PREFIX
from farm.configuration.model_size import ModelSize
from farm.messages.trainer_lines import FailureKind
from farm.trainers.failures import RankFailed, failure_of, text_of
from farm.trainers.processes.installed_file import NotInstalled, read_installed
from farm.trainers.processes.process import end_fork

logger = logging.getLogger(__name__)

_MAX_FILE_BYTES = 1_000_000
_BUILD = "build"
_EXPECTED = f"a function {_BUILD}(example_shape, class_count)"
# Before the file's name, so that a file called json.py or keras.py replaces no module.
_MODULE_PREFIX = "model_file_"
_SHOWN_CHARACTERS = 400
_NO_EXIT = (
    "a model's file must not end the process; it gets no arguments, so give each one a default"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """A model whose layers are in `source`, as it was read; the file may change meanwhile.

    `path`: where it was read. `announce` is called with True before the file's code runs and with
    False afterwards, so that the agent knows whose code has ended a process that just vanishes.
    `world_size`: of the gang, whose collectives a distributed framework runs to build variables.
    """

    facts: ModelFacts
    source: bytes = field(repr=False)
    path: Path | None = None
    world_size: int = 1
    announce: Callable[[bool], None] = field(default=lambda _: None, repr=False, compare=False)

    @property
    def sha256(self) -> str:
        """Of the file; recorded with every result, since a name says nothing of the content."""
        return hashlib.sha256(self.source).hexdigest()

    def describe(self, example_shape: tuple[int, ...], class_count: int) -> ModelSize | None:
        """Return None: only the built model knows its size."""
        del example_shape, class_count
        return None

    def build(self, example_shape: tuple[int, ...], class_count: int) -> Any:
        """Import the file, call its `build`, and return the model.

        Raises:
            RankFailed: TRAINER_RAISED, in one line: it defines no `build`, raises, or returns
                anything but a Keras model that gives one logit for each class. OUT_OF_MEMORY.
                PEER_LOST: a collective of the framework's has failed meanwhile.
        """
        self.announce(True)
        built = self.call_build(example_shape, class_count)
        self._check(built, example_shape, class_count)
        self.announce(False)
        return built

    def call_build(self, example_shape: tuple[int, ...], class_count: int) -> Any:
        """Import the file and return what its `build` returns, unchecked.

        Raises:
            RankFailed: as `build`.
        """
        own_pid = os.getpid()
        with self._own_failures(), _as_a_program(self._origin), _keeping_the_graph():
            build = getattr(self._import(), _BUILD, None)
            if callable(build):
                built = build(example_shape, class_count)
                if os.getpid() != own_pid:  # a fork by the file, which trains nothing
                    end_fork(None)
                return built
        got = "none" if build is None else type(build).__name__
        raise self._failed(f"expected {_EXPECTED}, got {got}")

    @property
    def file_name(self) -> str:
        """The file's name without the prefix that a sweep has."""
        return self.facts.name.removeprefix(PREFIX)

    @property
    def module_name(self) -> str:
        """The name of the file's module in `sys.modules`."""
        return _MODULE_PREFIX + self.file_name.removesuffix(".py").replace("-", "_")

    def module_spec(self) -> importlib.machinery.ModuleSpec:
        """Return the spec of the file's module, whose loader runs the source that was read."""
        loader = _SourceLoader(self.module_name, self._origin, source=self.source)
        spec = importlib.util.spec_from_file_location(loader.name, self._origin, loader=loader)
        assert spec is not None
        return spec

    @property
    def _origin(self) -> str:
        """The file's name in tracebacks, and its `__file__`."""
        return self.facts.name if self.path is None else str(self.path)

    def _import(self) -> Any:
        """Run the file as a module of its own, again at each call.

        Returns what `sys.modules` has afterwards, as `import` does: a file may replace itself.
        """
        spec = self.module_spec()
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(spec.name, None)
            raise
        return sys.modules.get(spec.name, module)

    @contextlib.contextmanager
    def _own_failures(self, *, before: str = "") -> Iterator[None]:
        """Turn whatever the file's code raises into its failure, in one line.

        SystemExit and KeyboardInterrupt, too: let through, they would end the process as if its
        agent or its peers had done so.
        """
        own_pid = os.getpid()
        try:
            yield
        except BaseException as error:
            if os.getpid() != own_pid:
                end_fork(error)
            logger.exception("model %s failed", self.facts.name)
            raise self._raised(error, before=before) from error

    def _raised(self, error: BaseException, *, before: str) -> RankFailed:
        text = f"{before}{_exception_text(error)}{_place(error, self._origin)}"
        if isinstance(error, SystemExit):
            text += f"{_argparse_message(error)}: {_NO_EXIT}"
        kind = failure_of(error, world_size=self.world_size).kind
        is_of_framework = type(error).__module__.partition(".")[0] in ("tensorflow", "torch")
        if kind is FailureKind.OUT_OF_MEMORY or (kind is FailureKind.PEER_LOST and is_of_framework):
            return self._failed(text, kind=kind)
        return self._failed(text)

    def _check(self, built: Any, example_shape: tuple[int, ...], class_count: int) -> None:
        """Refuse what cannot be trained as every other model; runs the model's own code."""
        import keras

        from farm.trainers.model_files import model_check

        if not isinstance(built, keras.Model):
            raise self._failed(f"expected a Keras model of {_BUILD}, got {_kind_of(built)}")
        images = "x".join(map(str, example_shape))
        with self._own_failures(before=f"does not take images of {images}: "):
            trouble = (
                model_check.shape_trouble(built, example_shape, class_count)
                or model_check.weight_trouble(built)
                or model_check.output_trouble(built, example_shape, class_count)
            )
        if trouble is None:
            with self._own_failures(before=f"does not train on images of {images}: "):
                trouble = model_check.gradient_trouble(
                    built, example_shape
                ) or model_check.limit_trouble(built, example_shape)
        if trouble is not None:
            raise self._failed(trouble)

    def _failed(self, text: str, *, kind: FailureKind = FailureKind.TRAINER_RAISED) -> RankFailed:
        return RankFailed(kind, " ".join(f"model {self.facts.name}: {text}".split()))


class _SourceLoader(importlib.machinery.SourceFileLoader):
    """Loads the source that was read and hashed, and neither reads nor writes the file again."""

    def __init__(self, name: str, path: str, *, source: bytes) -> None:
        super().__init__(name, path)
        self._source = source

    def get_data(self, path: str) -> bytes:
        return self._source if path == self.path else super().get_data(path)

    def get_code(self, fullname: str) -> Any:
        code = self.source_to_code(self._source, self.path)
        # For tracebacks and inspect: the lines that run, whatever the file has by then.
        with contextlib.suppress(SyntaxError, UnicodeDecodeError):  # as in a comment
            lines = importlib.util.decode_source(self._source).splitlines(keepends=True)
            linecache.cache[self.path] = (len(self._source), None, lines, self.path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        with _starting_no_processes():
            super().exec_module(module)


@contextlib.contextmanager
def _starting_no_processes() -> Iterator[None]:
    """Let multiprocessing refuse to spawn while the file is imported, as it does in its children.

    The processes import the file, too: each would start others, or die and be replaced without
    end by the pool that waits for them.
    """
    process: Any = multiprocessing.process.current_process()
    was_importing = getattr(process, "_inheriting", False)
    process._inheriting = True
    try:
        yield
    except RuntimeError as error:
        if "bootstrapping phase" not in text_of(error):
            raise
        raise RuntimeError(
            f"expected processes to be started in {_BUILD}, got one that is started while the "
            "file is imported, which it does in each process, too"
        ) from error
    finally:
        process._inheriting = was_importing


@contextlib.contextmanager
def _as_a_program(origin: str) -> Iterator[None]:
    """Let the file see a command line of its own without arguments; undo a change of folder."""
    arguments, sys.argv = sys.argv, [origin]
    folder = None
    with contextlib.suppress(OSError):
        folder = os.getcwd()  # noqa: PTH109 (may raise, as below)
    try:
        yield
    finally:
        sys.argv = arguments
        if folder is not None:
            with contextlib.suppress(OSError):
                os.chdir(folder)


@contextlib.contextmanager
def _keeping_the_graph() -> Iterator[None]:
    """Let keras.backend.clear_session leave TensorFlow's default graph alone.

    The strategy that the model is built under has entered its scope there, and leaves it later.
    """
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        yield
        return
    compat = tensorflow.compat.v1
    reset, compat.reset_default_graph = compat.reset_default_graph, lambda: None
    try:
        yield
    finally:
        compat.reset_default_graph = reset


def _kind_of(built: object) -> str:
    """Say what there is instead of a Keras model, and what to do about the usual mistakes."""
    if isinstance(built, type):
        return f"the class {built.__qualname__}: return one of its objects"
    kind = type(built)
    if kind.__module__ == "builtins":
        return kind.__qualname__
    name = f"{kind.__module__}.{kind.__qualname__}"
    bases = {base.__module__.partition(".")[0] for base in kind.__mro__}
    if "keras" in bases:
        return f"{name}: put it into a keras.Sequential or keras.Model"
    if "torch" in bases:
        return f"{name}: write it with keras.layers, which run on PyTorch, too"
    return name


def _exception_text(error: BaseException) -> str:
    """Return `raised ValueError: text`, shortened."""
    # Keras prints parts in bold, and ends with all arguments of the call.
    text = re.sub(r"\x1b\[[0-9;]*m", "", text_of(error)).partition("\nArguments received by ")[0]
    text = " ".join(text.split())
    text = text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."
    name = type(error).__name__
    return f"raised {name}: {text}" if text else f"raised {name}"


def _place(error: BaseException, origin: str) -> str:
    """Return ` (line 12)`, the innermost line of the file itself."""
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == origin]
    return f" (line {lines[-1]})" if lines else ""


def _argparse_message(error: SystemExit) -> str:
    """Return what argparse has written to standard error before it left, if it has."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__") == "argparse" and frame.f_code.co_name == "error":
            return f", {frame.f_locals.get('message')}"
    return ""


def read_model_file(name: str, path: Path | None) -> ModelFile:
    """Read the file that the agent has named, without running it.

    Raises:
        RankFailed: MODEL_MISSING: the agent allows none, or it is not there, not readable, too
            long, or others than its operator could have written it.
    """
    if path is None:
        raise _missing(name, "it is not among this agent's; see AGENT_MODELS")
    try:
        source = read_installed(path, most_bytes=_MAX_FILE_BYTES)
    except NotInstalled as error:
        raise _missing(name, str(error)) from None
    facts = ModelFacts(name=PREFIX + name, summary="a file")
    return ModelFile(facts=facts, source=source, path=path)


def _missing(name: str, why: str) -> RankFailed:
    return RankFailed(FailureKind.MODEL_MISSING, f"model {PREFIX}{name}: {why}")

"""Marks each training step of a script, by hooks in the frameworks that the script imports.

No framework is imported here: a module is changed as soon as the script itself has imported it. For
other scripts the cost is one dictionary lookup for each import.

- PyTorch: a step is a step of the optimizer that counts (see `Stepper`). A step that an AMP scaler
  skips is not counted. Optimizers that do not derive from torch.optim.Optimizer are not seen.
- Keras 2 and 3: a step is the end of a training batch in `fit`. With `steps_per_execution` it is
  one of these executions. A loop over `train_on_batch` or a GradientTape is not seen.

Other scripts call `benchfarm.step`. A script that replaces its process by os.exec is still marked.
A script that trains only in processes that it spawns fails.
"""

from __future__ import annotations

import functools
import math
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

from benchfarm.marks import Marks, number

# As often as another one may step that has been seen before until it counts instead.
_PATIENCE_STEPS = 100
# Where each generation of Keras has its CallbackList.
_KERAS_MODULES = (
    "keras.src.callbacks.callback_list",  # 3
    "keras.src.callbacks",  # 2.13 to 2.15
    "keras.callbacks",  # before 2.13
    "tf_keras.src.callbacks",
    "tf_keras.callbacks",
)
# On the validation data: what an epoch is worth.
_ACCURACIES = (
    *("val_accuracy", "val_acc", "val_sparse_categorical_accuracy", "val_categorical_accuracy"),
    "val_binary_accuracy",
)
_BITS = re.compile(r"\d+$")  # of a type's name, such as float32
# Reading a value may wait for the device. No more than this share of the time goes into it.
_READING_SHARE = 0.01


def install(marks: Marks) -> None:
    """Mark the steps of PyTorch and Keras as soon as they are imported."""
    stepper = Stepper()
    keras = KerasHook(marks, stepper)
    then: dict[str, Callable[[ModuleType], None]] = {
        "torch.optim.optimizer": TorchHook(marks, stepper).install,
        "torch.utils.data.dataloader": functools.partial(time_data_waits, marks),
        "torch.multiprocessing.spawn": functools.partial(refuse_own_ranks, marks),
        **dict.fromkeys(_KERAS_MODULES, keras.install),
    }
    for name, hook in then.items():
        # A .pth file may have imported it.
        if name in sys.modules:
            hook(sys.modules[name])
    sys.meta_path.insert(0, ImportWatch(then))
    marks.before_end = finish_device_work
    follow_exec(marks)


def finish_device_work() -> None:
    """Wait for all work that this process has queued on its GPU.

    Peers may need it for the same step: an exit in the middle of a collective would leave them
    waiting.
    """
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        cuda.synchronize()


def time_data_waits(marks: Marks, module: ModuleType) -> None:
    """Add up how long the main thread waits for its DataLoaders, that of an evaluation too."""
    iterator = getattr(module, "_BaseDataLoaderIter", None)
    if iterator is None:
        return
    original = iterator.__next__

    @functools.wraps(original)
    def following(loader: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return original(loader)  # which fetches ahead, and the training does not wait
        begun_s = time.monotonic()
        try:
            return original(loader)
        finally:
            marks.data_wait_s = (marks.data_wait_s or 0.0) + time.monotonic() - begun_s

    iterator.__next__ = following


def refuse_own_ranks(marks: Marks, module: ModuleType) -> None:
    """Have a rank fail that waits for processes which are to train in its place.

    Their steps would not be seen, and the farm would wait for the first one until it gives up.
    """
    original = module.start_processes

    @functools.wraps(original)
    def start_processes(
        fn: Any, args: Any = (), nprocs: int = 1, join: bool = True, *others: Any, **named: Any
    ) -> Any:
        if join and "RANK" in os.environ and not marks.is_begun:
            raise RuntimeError(
                "torch.multiprocessing.spawn: expected this process to train as one rank, as under "
                f"torchrun, got {nprocs} processes of its own, whose steps are not seen"
            )
        return original(fn, args, nprocs, join, *others, **named)

    module.start_processes = start_processes  # type: ignore[attr-defined]


def follow_exec(marks: Marks) -> None:
    """Watch a script, too, that replaces its process by Python with a script, mostly itself.

    Scripts do so to change variables that libraries read as they are loaded.
    """
    original = os.execve

    def execve(path: Any, args: Any, env: Any) -> Any:
        words = list(args)
        if path != sys.executable or len(words) < 2 or not Path(os.fsdecode(words[1])).is_file():
            return original(path, args, env)
        with marks.handed_on() as variables:
            if variables:
                words[1:1] = ["-m", "benchfarm.run"]
            return original(path, words, {**env, **variables})

    def execv(path: Any, args: Any) -> Any:
        return execve(path, args, os.environ)

    # The others of their family call these.
    os.execv, os.execve = execv, execve  # type: ignore[assignment]


class Stepper:
    """Chooses whose steps are those of the training, where several objects step.

    The first that steps counts, so the two optimizers of a GAN give one mark a turn. A newcomer,
    which did not step before the latest step of the one that counts, replaces it with its second
    step in a row: an optimizer that was created again costs one mark. One that was there before
    replaces it after 100 steps in a row. So of a critic with five steps a turn and its generator
    the critic counts.

    Whether an object still exists does not matter: that depends on the garbage collector, and
    all ranks must count alike to end at the same step.
    """

    def __init__(self) -> None:
        # Weak, since optimizers hold memory of the device.
        self._counted: weakref.ref[Any] | None = None
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()
        self._others: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def counts(self, stepped: object) -> bool:
        """Return whether a step of this object is a step of the training."""
        counted = None if self._counted is None else self._counted()
        if self._counted is not None and counted is not stepped:
            step_count = self._others[stepped] = self._others.get(stepped, 0) + 1
            if step_count <= (_PATIENCE_STEPS if stepped in self._known else 1):
                return False
            if counted is not None:
                self._known.add(counted)
        if counted is not stepped:
            self._counted = weakref.ref(stepped)
        if self._others:
            self._known.update(self._others)
            self._others.clear()
        return True


class TorchHook:
    """Marks each step of the optimizer that counts."""

    def __init__(self, marks: Marks, stepper: Stepper) -> None:
        self._marks = marks
        self._stepper = stepper

    def install(self, module: ModuleType) -> None:
        # PyTorch 1 has none.
        register = getattr(module, "register_optimizer_step_post_hook", None)
        if register is not None:
            register(self._after_step)

    def _after_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self._stepper.counts(optimizer):
            size = None if self._marks.is_begun else _size_of_torch(optimizer)
            self._marks.hooked_step(size=size)


class KerasHook:
    """Marks the end of each training batch with its loss, and of each epoch with its accuracy.

    What `fit` does between two epochs, such as validation, is in no step.
    """

    def __init__(self, marks: Marks, stepper: Stepper) -> None:
        self._marks = marks
        self._stepper = stepper
        self._next_reading_s = 0.0
        self._changed: set[Any] = set()

    def install(self, module: ModuleType) -> None:
        """Have a module's `CallbackList` call back after each batch; do so once for a class."""
        callback_list = getattr(module, "CallbackList", None)
        # A package and its module have the same class.
        if callback_list is None or callback_list in self._changed:
            return
        self._changed.add(callback_list)
        original = callback_list.on_train_batch_end

        @functools.wraps(original)
        def on_train_batch_end(callbacks: Any, batch: Any, logs: Any = None) -> None:
            original(callbacks, batch, logs)
            self._after_batch(callbacks, logs)

        callback_list.on_train_batch_end = on_train_batch_end
        self._watch_epochs(callback_list)

    def _watch_epochs(self, callback_list: Any) -> None:
        begin, end = callback_list.on_epoch_begin, callback_list.on_epoch_end

        @functools.wraps(begin)
        def on_epoch_begin(callbacks: Any, epoch: Any, logs: Any = None) -> None:
            begin(callbacks, epoch, logs)
            self._marks.begin_step()

        @functools.wraps(end)
        def on_epoch_end(callbacks: Any, epoch: Any, logs: Any = None) -> None:
            end(callbacks, epoch, logs)
            self._after_epoch(logs)

        callback_list.on_epoch_begin, callback_list.on_epoch_end = on_epoch_begin, on_epoch_end

    def _after_epoch(self, logs: Any) -> None:
        known = logs if isinstance(logs, Mapping) else {}
        accuracy = next((known[name] for name in _ACCURACIES if name in known), None)
        self._marks.end_epoch(
            loss=number(known.get("loss")),
            val_loss=number(known.get("val_loss")),
            accuracy=number(accuracy),
        )

    def _after_batch(self, callbacks: Any, logs: Any) -> None:
        # All of Keras is one: `fit` makes a new CallbackList each time.
        if not self._stepper.counts(self):
            return
        loss = None
        begun_s = time.monotonic()
        is_due = begun_s >= self._next_reading_s or self._marks.next_is_last
        if is_due and isinstance(logs, Mapping):
            loss = number(logs.get("loss"))
            ended_s = time.monotonic()
            self._next_reading_s = ended_s + (ended_s - begun_s) / _READING_SHARE
        size = None if self._marks.is_begun else _size_of_keras(callbacks)
        self._marks.hooked_step(loss, size)


def _size_of_torch(optimizer: Any) -> tuple[int, int] | None:
    """Return how many numbers the optimizer trains, over all ranks, and their bytes.

    None: that is not known. FSDP's first version knows of the others' shards only inside.
    """
    try:
        trained = {id(p): p for group in optimizer.param_groups for p in group["params"]}.values()
        if any(hasattr(parameter, "_local_shard") for parameter in trained):
            return None
        counted = [(p.numel(), p.element_size()) for p in trained if p.requires_grad]
        return sum(n for n, _ in counted), sum(n * size for n, size in counted)
    except Exception:  # whatever stands in the place of parameters
        return None


def _size_of_keras(callbacks: Any) -> tuple[int, int] | None:
    """Return how many numbers the model trains, and their bytes. None: that is not known."""
    try:
        model = getattr(callbacks, "_model", None) or callbacks.model
        count = byte_count = 0
        for weight in model.trainable_weights:
            here = math.prod(map(int, weight.shape))
            bits = _BITS.search(str(getattr(weight.dtype, "name", weight.dtype)))
            count += here
            byte_count += here * int(bits.group()) // 8  # type: ignore[union-attr] # caught
    except Exception:  # whatever stands in the place of a model
        return None
    return count, byte_count


class ImportWatch(MetaPathFinder):
    """Calls a function as soon as a module of a certain name has been executed."""

    def __init__(self, then: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self._then = then

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Have a watched module's hook called once it is imported; None: not one of them."""
        then = self._then.get(name)
        if then is None:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    _call_after(spec.loader, then)
                return spec
        return None


def _call_after(loader: Any, then: Callable[[ModuleType], None]) -> None:
    # The loader of a file is of this file alone, and stays what it is for those who ask for it.
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        then(module)

    loader.exec_module = exec_module

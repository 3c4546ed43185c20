"""Builds the stand-in for NVIDIA's management library, and says what its GPUs are like."""

from __future__ import annotations

import ctypes
import importlib
import shutil
import subprocess
from pathlib import Path

import pynvml

_SOURCE = Path(__file__).with_suffix(".c")
_FIELD_COUNT, _PROCESS_COUNT = 256, 4  # by GPU, as in the source


class FakeNvml:
    """The library, built in `folder`; `use` makes the binding in this process load it."""

    def __init__(self, folder: Path, *, is_old: bool = False, gpu_count: int = 0) -> None:
        """`gpu_count`: until it is set, and for other processes that load the library."""
        compiler = shutil.which("cc")
        assert compiler, "this test builds a library in C: install gcc, which has the command cc"
        self.path = folder / "libnvidia-ml.so.1"
        old = ["-DOLD_DRIVER"] if is_old else []
        options = [f"-DGPU_COUNT={gpu_count}", *old]
        command = [compiler, "-Wall", "-Werror", "-shared", "-fPIC", *options]
        subprocess.run([*command, "-o", str(self.path), str(_SOURCE)], check=True)
        self.library = ctypes.CDLL(str(self.path))

    def use(self) -> None:
        """Let the binding ask this library from now on; another `use` or `leave` ends that."""
        importlib.reload(pynvml)  # it keeps what it found of the library before
        pynvml.nvmlLib = self.library

    @staticmethod
    def leave() -> None:
        """Let the binding look for the machine's own library again."""
        importlib.reload(pynvml)

    def set(self, name: str, value: int, *, place: int = 0) -> None:
        """Set one of the source's arrays, or of its numbers."""
        array = ctypes.c_ulonglong * (place + 1)
        array.in_dll(self.library, name)[place] = value

    def set_field(self, gpu: int, field: int, value: int) -> None:
        """Set what `nvmlDeviceGetFieldValues` returns."""
        place = gpu * _FIELD_COUNT + field
        self.set("has_field", 1, place=place)
        self.set("fields", value, place=place)

    def run(self, gpu: int, *pids: int) -> None:
        """Let these processes compute on the GPU, and no others."""
        for number, pid in enumerate(pids):
            self.set("pids", pid, place=gpu * _PROCESS_COUNT + number)
        self.set("process_count", len(pids), place=gpu)


def uuid_of(gpu: int) -> str:
    """Return the UUID of a GPU of the stand-in."""
    return f"GPU-{gpu:08x}-0000-0000-0000-000000000000"

"""Describes the hardware and software of a run for the page of the benchmarks."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

import psutil

from farm.embedded.redis import find_redis
from farm.errors import FarmError
from farm.text.display import byte_count
from tests.services.postgres_programs import NoPostgres, binary_folder
from worker_agent.machine.hardware import parse_cpu_model, read_tensorflow_version


def describe_machine() -> list[tuple[str, str]]:
    """Return (what, which) of the hardware and of the software that takes part."""
    cpu = parse_cpu_model(Path("/proc/cpuinfo").read_text()) or platform.machine()
    return [
        ("CPU", f"{cpu}, {len(os.sched_getaffinity(0))} cores"),
        # Without decimals: equal VMs differ by what their firmware keeps.
        ("memory", byte_count(psutil.virtual_memory().total)),
        ("kernel", f"{platform.system()} {platform.release()}"),
        ("Python", platform.python_version()),
        ("TensorFlow", read_tensorflow_version() or "absent"),
        ("Celery", importlib.metadata.version("celery")),
        ("Redis", _redis_version()),
        ("PostgreSQL", _postgresql_version()),
    ]


def _redis_version() -> str:
    try:
        binary = find_redis()
    except FarmError:
        return "absent"
    name = binary.name.removesuffix("-server").capitalize()
    return f"{name} {_version_of(binary)}"


def _postgresql_version() -> str:
    try:
        return _version_of(binary_folder() / "postgres")
    except NoPostgres:
        return "absent"


def _version_of(binary: Path) -> str:
    run = subprocess.run(
        [str(binary), "--version"], capture_output=True, text=True, timeout=10, check=False
    )
    found = re.search(r"\d+(\.\d+)+", run.stdout)
    return found[0] if found else "of an unknown version"

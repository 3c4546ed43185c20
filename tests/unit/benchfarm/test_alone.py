"""It runs in any interpreter from Python 3.9 on, with nothing else installed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODULES = sorted((ROOT / "benchfarm").glob("*.py"))


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.name)
def test_its_syntax_is_that_of_python_3_9(file: Path) -> None:
    ast.parse(file.read_text(), feature_version=(3, 9))


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.name)
def test_annotations_are_never_evaluated(file: Path) -> None:
    """Unions such as `int | None` are an error there."""
    assert "\nfrom __future__ import annotations\n" in file.read_text()


def test_it_loads_nothing_but_the_standard_library() -> None:
    names = [f"benchfarm.{file.stem}" for file in MODULES if file.stem != "__init__"]
    program = (
        f"import importlib, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "tops = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(tops - sys.stdlib_module_names - {'__main__'}))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.stdout.strip(), done.stderr) == ("['benchfarm']", "")

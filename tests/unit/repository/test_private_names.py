"""Tests use the public names of the code: what has a leading underscore may change at any time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
OWN_PACKAGES = {"farm", "worker_agent", "web", "benchfarm", "benchmarks", "tests"}
# TensorFlow has no public way to the body of a loop.
OF_OTHERS = {"graph._get_function"}
# As a notebook asks for it.
OF_NOTEBOOKS = "_repr_html_"
# They take the name of what they read or replace as a text.
BY_NAME = {"getattr", "hasattr", "setattr", "delattr", "patch", "object"}


def is_private(name: str) -> bool:
    last = name.rpartition(".")[2]
    return last.startswith("_") and not last.startswith("__") and last != "_"


def is_own(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] in OWN_PACKAGES


def private_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each use of a private name that is not the test's own."""
    tree = ast.parse(source)
    of_others = _imported_from_others(tree) | {"self", "cls"}
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=module, names=names) if is_own(module):
                yield from ((node.lineno, one.name) for one in names if is_private(one.name))
            case ast.Import(names=names):
                yield from (
                    (node.lineno, one.name)
                    for one in names
                    if is_own(one.name) and any(map(is_private, one.name.split(".")))
                )
            case ast.Attribute(value=owner, attr=name) if is_private(name):
                if not (isinstance(owner, ast.Name) and owner.id in of_others):
                    yield node.lineno, ast.unparse(node)
            case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called)) if (
                called in BY_NAME
            ):
                yield from (
                    (given.lineno, given.value)
                    for given in node.args[:2]
                    if isinstance(given, ast.Constant)
                    and isinstance(given.value, str)
                    and is_private(given.value)
                )


def _imported_from_others(tree: ast.Module) -> set[str]:
    """Return the names by which a file knows modules of other packages."""
    return {
        one.asname or one.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for one in node.names
        if not is_own(one.name)
    }


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from farm.cli import _main", ["_main"]),
        ("import farm._secret", ["farm._secret"]),
        ("spool._file.close()", ["spool._file"]),
        ("import farm.gang\nfarm.gang._verdict(1)", ["farm.gang._verdict"]),
        ("monkeypatch.setattr(logs, '_pause', wait)", ["_pause"]),
        ("monkeypatch.setattr('web.pages._MOST', 1)", ["web.pages._MOST"]),
        ("patch('web.pages._MOST', 1)", ["web.pages._MOST"]),
        ("patch.object(Supervisor, '_step', step)", ["_step"]),
        ("self._supervisor._step()", ["self._supervisor._step"]),
        ("import os\nos._exit(1)", []),
        ("from itertools import _odd", []),
        ("self._own = one.__class__", []),
        ("for _ in range(3): write('_text')", []),
    ],
)
def test_a_use_of_a_private_name_is_found(source: str, names: list[str]) -> None:
    assert [name for _, name in private_names(source)] == names


def test_no_test_uses_a_private_name() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}: {name}"
        for path in sorted(TESTS.rglob("*.py"))
        for line, name in private_names(path.read_text())
        if name not in OF_OTHERS and not name.endswith(OF_NOTEBOOKS)
    ]
    assert found == []

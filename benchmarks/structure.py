"""Counts features of the source code that make it hard to change.

    python -m benchmarks.structure [--json]

- lines and modules of the product (`farm`, `worker_agent`, `web`, `benchfarm`), with blank lines
- modules in the folder that has most of them
- own names imported per 100 lines, and modules that exactly one other module imports
- classes that declare `global_batch_size`: each lists a configuration's fields once more
- functions named with one underscore that are used once, as a share of all functions
- class names that are defined more than once
- words of documents, of the studies' pages before their results are put in, and of notebooks'
  texts; those in marked generated parts and in pages that a command writes left out

Beside them stands what they are to become at most, and what was counted in five well-kept programs
of the same kind: procrastinate, distributed, asv, warehouse and PerfKitBenchmarker. None is an aim
in itself. How many files a sweep passes from its POST to the trainer is not counted: the way leads
through five processes, and no reading of the source shows it.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import root

PACKAGES = ("farm", "worker_agent", "web", "benchfarm")
_GENERATED_PART = re.compile(r"<!-- (\S+): begin -->.*?<!-- \1: end -->", re.DOTALL)
_GENERATED_PAGE = re.compile(r"Written by `(farm |python -m tests\.notebooks)")
_NOTEBOOK_TEXT = re.compile(r"^# %% \[markdown\]\n((?:#.*\n)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sign:
    """One count. `aim`: at most this; None where there is none. `elsewhere`: in other programs."""

    name: str
    value: float
    aim: float | None = None
    elsewhere: str = ""


@dataclass(frozen=True, slots=True)
class Module:
    """A source file. `name`: as it is imported."""

    name: str
    line_count: int
    tree: ast.Module


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.structure", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    given = parser.parse_args()
    signs = [*signs_of(list(modules(root()))), Sign("words of documents", words(root()), 40_000)]
    if given.json:
        print(json.dumps({sign.name: sign.value for sign in signs}, indent=2))
        return 0
    print(f"{'':44} {'here':>10}{'':18} in others")
    for sign in signs:
        aim = "" if sign.aim is None else f"  at most {sign.aim:,g}"
        print(f"{sign.name:44} {sign.value:>10,g}{aim:18} {sign.elsewhere}".rstrip())
    return 0


def modules(folder: Path) -> Iterator[Module]:
    """Read the product's modules."""
    for package in PACKAGES:
        for file in sorted((folder / package).rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            text = file.read_text()
            yield Module(name, text.count("\n"), ast.parse(text))


def signs_of(found: list[Module]) -> list[Sign]:
    """Count everything that the source shows."""
    names = {module.name for module in found}
    imported_names = 0
    importers: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    declaring = functions = 0
    private: Counter[tuple[str, str]] = Counter()
    for module in found:
        of_module = set()
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    target = whole if whole in names else node.module
                    if target in names:
                        imported_names += 1
                        of_module.add(target)
            elif isinstance(node, ast.ClassDef):
                classes[node.name] += 1
                declaring += any(
                    isinstance(one, ast.AnnAssign)
                    and isinstance(one.target, ast.Name)
                    and one.target.id == "global_batch_size"
                    for one in node.body
                )
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions += 1
                if node.name.startswith("_") and not node.name.startswith("__"):
                    private[module.name, node.name] += 0
        importers.update(of_module - {module.name})
        private.update(
            (module.name, _used_name(node))
            for node in ast.walk(module.tree)
            if (module.name, _used_name(node)) in private
        )
    line_count = sum(module.line_count for module in found)
    packages = {name.rpartition(".")[0] for name in names}
    folders = Counter(name.rpartition(".")[0] for name in names - packages)
    used_once = sum(count == 1 for count in private.values())
    return [
        Sign("lines", line_count, 60_000),
        Sign("modules", len(found), 420),
        Sign("modules in the largest folder", max(folders.values(), default=0), 15),
        Sign(
            "own names imported per 100 lines",
            round(100 * imported_names / line_count, 1),
            4,
            "0.1 to 2.5",
        ),
        Sign("modules that one other imports", sum(n == 1 for n in importers.values())),
        Sign("classes that declare global_batch_size", declaring, 5, "1 to 3"),
        Sign(
            "private functions used once, %", round(100 * used_once / functions, 1), 12, "7 to 16"
        ),
        Sign("class names defined more than once", sum(n > 1 for n in classes.values()), 0),
    ]


def _used_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def words(folder: Path) -> int:
    """Count the words that people wrote."""
    pages = [folder / "README.md", folder / "deploy" / "README.md"]
    pages += sorted((folder / "docs").rglob("*.md"))
    texts = [page.read_text() for page in pages]
    texts = [_GENERATED_PART.sub("", text) for text in texts if not _GENERATED_PAGE.search(text)]
    texts += [page.read_text() for page in sorted((folder / "farm" / "studies").glob("*/page.md"))]
    for notebook in sorted((folder / "examples" / "notebooks").glob("*.py")):
        cells = _NOTEBOOK_TEXT.findall(notebook.read_text())
        texts += [re.sub(r"^#", "", cell, flags=re.MULTILINE) for cell in cells]
    return sum(len(text.split()) for text in texts)


if __name__ == "__main__":
    sys.exit(main())

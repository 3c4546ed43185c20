"""A copy of the code to which a test adds what docs/extending.md adds."""

from __future__ import annotations

import ast
import difflib
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("farm", "web", "worker_agent", "benchfarm", "tests", "benchmarks")


class CopiedTree:
    """The packages in a folder of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for package in PACKAGES:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / package, folder / package, ignore=ignored)

    def add_file(self, path: str, text: str) -> None:
        file = self.folder / path
        assert not file.exists()
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    def add_import(self, path: str, line: str) -> None:
        """Add an import to the others of a file."""
        imports = [
            node for node in self._tree(path).body if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        end = imports[-1].end_lineno
        assert end is not None
        self._insert(path, end, f"{line}\n")

    def add_entry(self, path: str, name: str, entry: str) -> None:
        """Add an entry to the end of the list of that name."""
        [value] = [
            node.value
            for node in self._tree(path).body
            if isinstance(node, ast.Assign | ast.AnnAssign) and name in _targets(node)
        ]
        assert value is not None
        listed = next(node for node in ast.walk(value) if isinstance(node, ast.Tuple))
        assert listed.end_lineno is not None
        if listed.lineno != listed.end_lineno:
            self._insert(path, listed.end_lineno - 1, f"{entry},\n")
            return
        file = self.folder / path
        lines = file.read_text().splitlines(keepends=True)
        line, at = lines[listed.lineno - 1], listed.end_col_offset
        assert at is not None
        lines[listed.lineno - 1] = f"{line[: at - 1]}, {entry}{line[at - 1 :]}"
        file.write_text("".join(lines))

    def add_field(self, path: str, class_name: str, declaration: str) -> None:
        """Add a field behind the others of a class."""
        [declaring] = [
            node
            for node in self._tree(path).body
            if isinstance(node, ast.ClassDef) and node.name == class_name
        ]
        fields = [node for node in declaring.body if isinstance(node, ast.AnnAssign)]
        end = fields[-1].end_lineno
        assert end is not None
        self._insert(path, end, textwrap.indent(f"{declaration}\n", "    "))

    def replace(self, path: str, old: str, new: str) -> None:
        """Write something else where a file has `old` for the first time."""
        file = self.folder / path
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))

    def added(self) -> dict[str, int]:
        """How many lines each file has that the tree has not; it lacks none of the tree."""
        added = {}
        for file in sorted(self.folder.rglob("*")):
            if file.is_dir() or file.parent.name == "__pycache__":
                continue
            path = file.relative_to(self.folder)
            here, there = file.read_bytes(), b""
            if (ROOT / path).exists():
                there = (ROOT / path).read_bytes()
            if here != there:
                before, after = there.decode().splitlines(), here.decode().splitlines()
                lines = difflib.ndiff(before, after)
                added[str(path)] = sum(line.startswith("+ ") for line in lines)
        return added

    def run(self, program: str, *arguments: str) -> set[str]:
        """Run a program of the tests in the copy; return the lines that it prints."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", program, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return set(done.stdout.splitlines())

    def _tree(self, path: str) -> ast.Module:
        return ast.parse((self.folder / path).read_text())

    def _insert(self, path: str, after_line: int, text: str) -> None:
        file = self.folder / path
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join([*lines[:after_line], text, *lines[after_line:]]))


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]

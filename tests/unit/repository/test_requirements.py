"""The pinned dependencies of a deployment cover what the project asks for, each with hashes."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# File, and what of the project it is for.
FILES = {"server": ("server", "ml"), "agent": ("agent",), "agent-gpu": ("agent-gpu",)}
_ENTRY = re.compile(r"^[a-z0-9]", re.IGNORECASE)
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def entries(name: str) -> Iterator[tuple[Requirement, int]]:
    """Yield each pinned package with the number of its hashes."""
    text = (ROOT / "deploy" / f"requirements-{name}.txt").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            assert _ENTRY.match(line), f"neither a package nor a comment: {line[:80]}"
            yield Requirement(_HASH.sub("", line).strip()), len(_HASH.findall(line))


def wanted(name: str) -> list[Requirement]:
    texts = PROJECT["project"]["dependencies"]
    return [*map(Requirement, texts), *(one for extra in FILES[name] for one in of_extra(extra))]


def of_extra(extra: str) -> Iterator[Requirement]:
    """Yield what an extra asks for, and what the extras that it consists of do."""
    for one in map(Requirement, PROJECT["project"]["optional-dependencies"][extra]):
        if one.name == PROJECT["project"]["name"]:
            for part in one.extras:
                yield from of_extra(part)
        else:
            yield one


@pytest.mark.parametrize("name", [*FILES, "torch", "build"])
def test_every_package_has_one_version_and_its_hashes(name: str) -> None:
    for requirement, hash_count in entries(name):
        [pin] = requirement.specifier
        assert pin.operator == "==", requirement
        assert requirement.url is None
        assert hash_count > 0, requirement


@pytest.mark.parametrize("name", FILES)
def test_what_the_project_asks_for_is_pinned_to_what_it_allows(name: str) -> None:
    pinned = {canonicalize_name(found.name): found for found, _ in entries(name)}
    for requirement in wanted(name):
        found = pinned.get(canonicalize_name(requirement.name))
        assert found is not None, f"deploy/requirements-{name}.txt lacks {requirement}: make pins"
        [pin] = found.specifier
        assert requirement.specifier.contains(pin.version), f"{found} is not {requirement}"


def test_pytorch_is_pinned_to_the_version_that_is_tested() -> None:
    pinned = {canonicalize_name(found.name): found for found, _ in entries("torch")}
    [pin] = pinned[canonicalize_name("torch")].specifier
    for extra in ("torch", "dev"):
        [allowed] = [one for one in of_extra(extra) if one.name == "torch"]
        assert allowed.specifier.contains(pin.version)


def test_the_lists_of_an_agent_have_each_package_in_one_version() -> None:
    """They are installed one after the other, so that the last would win."""
    agent = {(one.name, str(one.marker)): one.specifier for one, _ in entries("agent")}
    for name in ("agent-gpu", "torch"):
        for found, _ in entries(name):
            key = (found.name, str(found.marker))
            assert agent.get(key, found.specifier) == found.specifier, f"{found}: make pins"


def test_what_builds_the_project_is_pinned() -> None:
    pinned = {canonicalize_name(found.name): found for found, _ in entries("build")}
    for text in PROJECT["build-system"]["requires"]:
        requirement = Requirement(text)
        [pin] = pinned[canonicalize_name(requirement.name)].specifier
        assert requirement.specifier.contains(pin.version)


@pytest.mark.parametrize("name", [*FILES, "torch", "build"])
def test_pip_reads_the_file_and_asks_for_the_hashes(name: str, tmp_path: Path) -> None:
    """Without an index, so that nothing is downloaded: pip stops at the first package it lacks."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--dry-run", "--require-hashes", "--no-deps"),
            *("--no-index", "--find-links", tmp_path, "--ignore-installed"),
            *("-r", ROOT / "deploy" / f"requirements-{name}.txt"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "No matching distribution found for" in done.stderr
    assert "hash" not in done.stderr.lower()

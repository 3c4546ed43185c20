"""Who may import whom, and what a light process must not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORE = {"sqlalchemy", "alembic", "psycopg"}
MATHS = {"numpy", "scipy", "sklearn"}
FRAMEWORKS = {"tensorflow", "keras", "torch"}
SHELLS = {"worker_agent", "web", "farm.scheduler", "farm.collector", "farm.cli"}

# The longest prefix of a module's name decides. Only what is written here may be imported;
# "farm.core" stands for everything below it, and a package may always import itself.
RULES: dict[str, set[str]] = {
    "farm.errors": set(),
    "farm.core": {"farm.errors"},
    "farm.log": {"farm.core"},
    "farm.marked": {"farm.process_environment"},
    "farm.process_environment": set(),
    "farm.lab": {"farm.core", "farm.errors"},
    "farm.broker_errors": {"farm.broker_url", "farm.errors", "kombu", "redis"},
    "farm.wire": {
        *("farm.broker_errors", "farm.broker_url", "farm.core", "farm.errors", "farm.transport"),
        "farm.task_message",
        *("celery", "kombu", "redis"),
    },
    "farm.wake": {"farm.broker_errors", "farm.wire"},
    "farm.transport": {"farm.task_message", "kombu", "redis"},
    "farm.broker_accounts": {
        *(
            "farm.broker_errors",
            "farm.broker_url",
            "farm.core",
            "farm.errors",
            "farm.wire",
            "redis",
        ),
    },
    "farm.broker_url": {"farm.core", "farm.errors"},
    "farm.database_url": {"farm.broker_url", "farm.core", "farm.errors", "farm.store", *STORE},
    "farm.web_listening": {"farm.broker_url", "farm.config", "farm.core", "farm.errors"},
    "farm.signing_key": {"farm.broker_url", "farm.config", "farm.core", "farm.errors"},
    "farm.keyring": {"farm.core", "farm.errors", "farm.store", *STORE},
    "farm.private_files": set(),
    "farm.refusals": set(),
    "farm.service_manager": set(),
    "farm.standard_output": {"farm.core"},
    "farm.config": {"farm.broker_url", "farm.core", "farm.database_url", "farm.errors"},
    "farm.diagnosis": {"farm.core", "farm.errors", "farm.figures"},
    "farm.claim": {
        *("farm.broker_errors", "farm.broker_url", "farm.core", "farm.errors", "farm.life_signs"),
        *("farm.store", "farm.wire", *STORE),
    },
    "farm.life_signs": {
        *("farm", "farm.broker_errors", "farm.core", "farm.errors", "farm.wire"),
        "redis",
    },
    "farm.broker_state": {
        *("farm.broker_errors", "farm.broker_url", "farm.diagnosis", "farm.errors"),
        *("farm.wake", "farm.wire"),
        "redis",
    },
    "farm.registry": {"farm.core", "farm.errors", "farm.trainers"},
    "farm.figures": {"farm.core", "farm.errors", "farm.registry", "farm.recommend", "farm.store"},
    "farm.figures.sweep_reading": {
        "farm.core",
        "farm.figures",
        "farm.recommend",
        "farm.store",
        *STORE,
    },
    "farm.figures.job_reading": {"farm.core", "farm.figures", "farm.store", *STORE},
    "farm.plotting": {"farm.core", "farm.errors", "farm.figures", "matplotlib"},
    "farm.studies": {
        *("farm.core", "farm.errors", "farm.registry", "farm.lab.wirefilter", "farm.importers"),
        *("farm.figures", "farm.plotting", "matplotlib"),
    },
    "farm.submission": {"farm.core", "farm.errors", "farm.registry", "farm.store", *STORE},
    "farm.trainers": {"farm", "farm.core", "farm.errors", "farm.registry", "farm.log", *MATHS},
    "farm.trainers.torch_gang": {"farm.core", "farm.trainers", "psutil", "torch"},
    "farm.store": {"farm", "farm.core", "farm.errors", "farm.private_files", *STORE},
    "farm.aside": {"farm.errors", "farm.trainers"},
    "farm.recommend": {"farm.core", "farm.errors", "farm.registry", "farm.trainers", *MATHS},
    "farm.recommend.kept.memory": {"farm.aside", "farm.recommend"},
    "farm.recommend.doubts": {"farm.core", "farm.recommend", "farm.store", *STORE},
    "farm.recommend.expected": {
        *("farm.core", "farm.registry", "farm.recommend", "farm.store"),
        *STORE,
    },
    "farm.recommend.plans.known_origin": {
        *("farm.core", "farm.errors", "farm.recommend", "farm.store"),
        *STORE,
    },
    "farm.recommend.kept.knowledge": {"farm.core", "farm.recommend", "farm.store", *STORE},
    "farm.recommend.predictors.threads": {"numpy", "threadpoolctl"},
    "farm.recommend.sweep_answers": {"farm.core", "farm.recommend", "farm.store", *STORE},
    "farm.recommend.predictions": {"farm.core", "farm.recommend", "farm.store", *STORE},
    "farm.recommend.service": {
        *("farm.core", "farm.errors", "farm.registry", "farm.recommend", "farm.store"),
        *STORE,
    },
    "farm.recommend.observations": {
        *("farm.core", "farm.errors", "farm.recommend", "farm.store"),
        *STORE,
    },
    "farm.importers": {"farm.core", "farm.errors"},
    "farm.exporting": {"farm.core", "farm.errors", "farm.store", "pyarrow", *STORE},
    "farm.importing": {"farm.core", "farm.errors", "farm.importers", "farm.store", *STORE},
    "worker_agent": {
        *("farm", "farm.core", "farm.wire", "farm.errors", "farm.registry", "farm.log"),
        *(
            "farm.broker_url",
            "farm.marked",
            "farm.private_files",
            "farm.refusals",
            "farm.service_manager",
            "farm.standard_output",
            "farm.lab.wirefilter",
            "celery",
            "kombu",
            "redis",
            "psutil",
            "pynvml",
            "pyroute2",
        ),
    },
    "web": {
        *("farm", "farm.core", "farm.store", "farm.recommend", "farm.submission", "farm.errors"),
        *(
            "farm.figures",
            "farm.plotting",
            "farm.aside",
            "farm.config",
            "farm.exporting",
            "farm.importers",
            "farm.importing",
            "farm.registry",
            "farm.log",
            "farm.broker_errors",
            "farm.wire",
            "farm.wake",
            "farm.life_signs",
            "farm.broker_state",
            "farm.service_manager",
            "farm.standard_output",
            "farm.web_listening",
        ),
        *("apiflask", "pydantic", "typing_extensions"),
        *("flask", "flask_limiter", "werkzeug", "markupsafe", "gunicorn", "prometheus_client"),
        *STORE,
    },
}
# The framework's side of the trainers. What describes a model, a data set or a strategy imports
# these modules, and frameworks, inside functions only, where a trainer's process calls them.
FRAMEWORK_SIDE = ("farm.trainers.tensorflow_", "farm.trainers.sessions", "farm.trainers.torch_")


def modules() -> Iterator[tuple[str, Path]]:
    for package in ("farm", "worker_agent", "web"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(p for p in parts if p != "__init__"), path


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Every imported module, and whether that happens when `path` is loaded."""

    def walk(node: ast.AST, *, at_load: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from ((alias.name, at_load) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}: a relative import"
                yield child.module or "", at_load
            is_deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from walk(child, at_load=at_load and not is_deferred and not for_types(child))

    return walk(ast.parse(path.read_text()), at_load=True)


def for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def is_within(module: str, packages: set[str]) -> bool:
    # "farm" alone is the version; it does not allow everything below it.
    return any(module == p or (p != "farm" and module.startswith(f"{p}.")) for p in packages)


def rule_for(module: str) -> str | None:
    fitting = [package for package in RULES if is_within(module, {package})]
    return max(fitting, key=len, default=None)


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=lambda value: str(value))
def test_a_module_imports_only_what_its_package_may(module: str, path: Path) -> None:
    package = rule_for(module)
    for imported, at_load in imports(path):
        top = imported.partition(".")[0]
        if package is not None and top not in sys.stdlib_module_names:
            allowed = RULES[package] | {package}
            if package == "farm.trainers" and (not at_load or module.startswith(FRAMEWORK_SIDE)):
                allowed = allowed | FRAMEWORKS
            elif at_load:
                assert not imported.startswith(FRAMEWORK_SIDE), f"{module} loads {imported}"
            assert is_within(imported, allowed), f"{module} may not import {imported}"
        own = {shell for shell in SHELLS if is_within(module, {shell})}
        assert own or not is_within(imported, SHELLS), f"{module} imports the shell {imported}"


def test_every_rule_is_of_a_package_that_exists() -> None:
    known = {module for module, _ in modules()}
    assert set(RULES) <= known


def test_core_agent_and_strategies_load_neither_a_framework_nor_the_store() -> None:
    names = [m for m, _ in modules() if m.startswith("farm.core")]
    names += ["farm.registry", "farm.trainers.strategies", "farm.submission"]
    names += [m for m, _ in modules() if m.startswith("worker_agent") and "__main__" not in m]
    heavy = sorted(STORE | MATHS | FRAMEWORKS)
    program = (
        f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\n"
        f"print(sorted(set({heavy!r}) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")

"""Who may import whom, and what a light process must not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STORE = {"sqlalchemy", "alembic", "psycopg"}
MATHS = {"numpy", "scipy", "sklearn"}
CLIENT = {"httpx", "matplotlib", "pandas", "polars", "pyarrow"}
FRAMEWORKS = {"tensorflow", "keras", "torch"}
SHELLS = {"worker_agent", "web", "farm.scheduler", "farm.collector", "farm.cli"}

# The rooms of pure code: no clock, no file, no log. Each may import those before it.
PURE_ROOMS = (
    *("farm.values", "farm.text", "farm.configuration", "farm.sampling", "farm.messages"),
    *("farm.statistics", "farm.measuring", "farm.gang", "farm.placement"),
)
PURE = {"farm.errors", *PURE_ROOMS}

# The longest prefix of a module's name decides. Only what is written here may be imported; a name
# stands for everything below it, and a package may always import itself.
RULES: dict[str, set[str]] = {
    # It runs in the interpreter of a user's script, which has nothing of ours.
    "benchfarm": set(),
    # What `pip install benchfarm` brings; what packs scripts and draws figures needs no more.
    "benchfarm.client": {
        *("benchfarm", "farm.script_folder", "farm.errors"),
        *("farm.charts.chart", "farm.charts.files", "farm.text", *CLIENT),
    },
    "farm.errors": set(),
    **{room: {"farm.errors", *PURE_ROOMS[:place]} for place, room in enumerate(PURE_ROOMS)},
    "farm.log": {"farm.text", "farm.processes.token_bucket"},
    "farm.registry": PURE | {"farm.trainers"},
    "farm.broker": PURE | {"kombu", "redis"},
    "farm.broker.celery_app": PURE | {"farm.broker", "celery", "kombu", "redis"},
    "farm.broker.claim": PURE | {"farm.broker", "farm.store", *STORE},
    "farm.broker.health_records": PURE | {"farm", "farm.broker", "redis"},
    "farm.broker.plaintext": {"farm.errors"},
    "farm.broker.refusals": set(),
    "farm.broker.state": PURE | {"farm.broker", "farm.diagnosis", "redis"},
    "farm.broker.task_message": set(),
    "farm.broker.url": {"farm.broker", "farm.errors"},
    "farm.keys": {"farm.errors"},
    "farm.keys.api_tokens": PURE,
    "farm.keys.keyring": PURE | {"farm.store", *STORE},
    "farm.keys.signing_key": PURE | {"farm.broker.url", "farm.settings"},
    "farm.processes": PURE,
    "farm.processes.subprocess_call": {"farm.errors", "farm.trainers"},
    "farm.processes.private_files": set(),
    "farm.processes.service_manager": set(),
    "farm.settings": PURE | {"farm.broker", "farm.notifications.addresses", "farm.trackers"},
    "farm.settings.declaration": {"farm.errors"},
    "farm.settings.shared": {"farm.broker", "farm.settings.declaration"},
    "farm.settings.database_url": {
        *("farm.broker", "farm.errors", "farm.store"),
        *STORE,
    },
    "farm.notifications": PURE,
    "farm.notifications.addresses": PURE | {"farm.notifications"},
    "farm.notifications.services": PURE | {"farm.notifications", "apprise"},
    "farm.notifications.webhook": PURE | {"farm.notifications", "httpx"},
    "farm.notifications.event_detection": PURE
    | {"farm.cells", "farm.notifications", "farm.recommend", "farm.store", *STORE},
    "farm.notifications.notifier": PURE
    | {"farm.broker", "farm.notifications", "farm.store", *STORE},
    "farm.lab": PURE,
    "farm.diagnosis": PURE,
    "farm.cells": PURE | {"farm.registry", "farm.recommend", "farm.store"},
    "farm.cells.history": PURE
    | {"farm.cells", "farm.recommend", "farm.registry", "farm.store", *STORE},
    "farm.cells.reading": PURE | {"farm.cells", "farm.recommend", "farm.store", *STORE},
    "farm.charts": PURE | {"farm.cells", "farm.registry", "farm.recommend", "farm.store"},
    "farm.charts.job.reading": PURE | {"farm.charts", "farm.store", *STORE},
    "farm.charts.plots": PURE
    | {"farm.cells", "farm.charts", "farm.recommend", "farm.store", "matplotlib", *STORE},
    "farm.charts.files": PURE | {"farm.charts", "matplotlib"},
    "farm.studies": PURE
    | {
        *("farm.registry", "farm.lab.wirefilter", "farm.importers", "farm.charts", "matplotlib"),
        "farm.processes.whole_file",
    },
    "farm.script_folder": PURE,
    "farm.submission": PURE | {"farm.notifications", "farm.registry", "farm.store", *STORE},
    "farm.trainers": PURE | {"farm", "farm.registry", "farm.log", "benchfarm.torch_trace", *MATHS},
    "farm.trainers.datasets.own": PURE | {"farm.trainers", "PIL", *MATHS},
    "farm.trainers.script": PURE | {"benchfarm", "farm.processes", "farm.trainers", "psutil"},
    "farm.trainers.torch.gang": PURE | {"farm.trainers", "psutil", "torch"},
    "farm.trainers.torch.loader": PURE | {"farm.trainers", "numpy", "psutil", "torch"},
    "farm.store": PURE
    | {"farm", "farm.keys.api_tokens", *STORE}
    | {"farm.notifications.addresses", "farm.notifications.events"}
    | {"farm.processes.private_files"},
    "farm.recommend": PURE | {"farm.registry", "farm.trainers", *MATHS},
    "farm.recommend.implausible": PURE | {"farm.recommend", "farm.store", *STORE},
    "farm.recommend.sweeps": PURE | {"farm.registry", "farm.recommend", "farm.store", *STORE},
    "farm.recommend.plans.proposed": PURE
    | {"farm.registry", "farm.recommend", "farm.store", *STORE},
    "farm.recommend.cache.knowledge": PURE
    | {"farm.processes.cache", "farm.processes.subprocess_call"}
    | {"farm.recommend", "farm.store", *STORE},
    "farm.recommend.predictors.estimates": PURE | {"farm.recommend", "threadpoolctl", *MATHS},
    "farm.recommend.predictions": PURE | {"farm.recommend", "farm.store", *STORE},
    "farm.recommend.service": PURE | {"farm.registry", "farm.recommend", "farm.store", *STORE},
    "farm.recommend.observations": PURE | {"farm.recommend", "farm.store", *STORE},
    "farm.importers": PURE,
    "farm.exporting": PURE | {"farm.store", "pyarrow", *STORE},
    "farm.trackers": PURE | {"farm.charts", "farm.processes", "farm.store", *STORE},
    "farm.sweep_bundle": PURE
    | {
        *("farm", "farm.cells", "farm.charts", "farm.exporting", "farm.importers"),
        *("farm.importing", "farm.recommend", "farm.store", "jinja2", "pyarrow"),
        *STORE,
    },
    "farm.importing": PURE | {"farm.importers", "farm.store", *STORE},
    "worker_agent": PURE
    | {
        *("farm", "farm.broker.celery_app", "farm.broker.sending"),
        *("farm.broker.url", "farm.broker.refusals"),
        *("farm.broker.plaintext", "farm.broker.task_message", "farm.settings.declaration"),
        "farm.settings.shared",
        *("farm.processes", "farm.registry", "farm.log", "farm.lab.wirefilter"),
        *("celery", "kombu", "redis", "psutil", "pynvml", "pyroute2"),
    },
    "web": PURE
    | {
        *("farm", "farm.store", "farm.recommend", "farm.submission", "farm.cells", "farm.charts"),
        *("farm.exporting", "farm.importers", "farm.importing", "farm.registry", "farm.log"),
        "farm.sweep_bundle",
        *("farm.broker", "farm.keys", "farm.notifications", "farm.processes", "farm.settings"),
        *("apiflask", "pyarrow", "pydantic", "typing_extensions"),
        *("flask", "flask_limiter", "jinja2", "werkzeug", "markupsafe", "gunicorn"),
        "prometheus_client",
        *STORE,
    },
}
# The framework's side of the trainers. What describes a model, a data set or a strategy imports
# these modules, and frameworks, inside functions only, where a trainer's process calls them.
FRAMEWORK_SIDE = ("farm.trainers.tensorflow", "farm.trainers.torch")


def modules() -> Iterator[tuple[str, Path]]:
    for package in ("farm", "worker_agent", "web", "benchfarm"):
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


def test_pure_rooms_agent_and_strategies_load_neither_a_framework_nor_the_store() -> None:
    names = [module for module, _ in modules() if is_within(module, set(PURE_ROOMS))]
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

"""What holds for all tests."""

from __future__ import annotations

import contextlib
import importlib
import signal

import pytest
from hypothesis import HealthCheck, settings

# PyTorch built for GPUs, which is what PyPI has, brings Triton, and loads it with its first
# optimizer. Loaded after TensorFlow it ends the process by a segmentation fault, and here tests of
# both meet in one. A trainer has only one of them.
with contextlib.suppress(ImportError):
    importlib.import_module("triton")

# Machines that test stand still for seconds: an example that takes long says nothing of the code.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples each time: a change fails for what it changed, and not for an old fault that
# chance found. `make test-all` and `--hypothesis-profile=explore` look for those.
settings.register_profile("repeat", settings.get_profile("explore"), derandomize=True)
settings.load_profile("repeat")

# What takes longest begins first, so that no process is left with it while the others have ended.
LONGEST = ("e2e", "property")

# `make test` leaves these to `make test-all`, beside the tests that are marked `slow` themselves:
# they take most of the time of all tests, and change seldom.
SLOW_FILES: dict[str, tuple[str, ...]] = {
    "e2e": (
        *("test_browser.py", "test_browser_live.py", "test_browser_logs.py"),
        *("test_browser_pages.py", "test_browser_sweep.py"),
        *("test_documented_commands.py", "test_documented_shell.py", "test_doctor.py"),
        *(
            "test_failures.py",
            "test_faults.py",
            "test_logs.py",
            "test_messages.py",
            "test_noise.py",
            "test_own_data.py",
        ),
        *("test_precision.py", "test_ranks_per_agent.py", "test_servers.py"),
        *("test_signed_farm.py", "test_strict_farm.py"),
    ),
    "integration": (
        *("test_agent_attempt.py", "test_agent_faults.py", "test_agent_state_folder.py"),
        *("test_benchmarks.py", "test_cli_doctor.py", "test_slow_clients.py"),
        *("test_web_access.py", "test_web_advice.py", "test_web_sweep_page.py"),
        *("test_cli_evaluate.py", "test_cli_plot.py", "test_cli_reproduce.py"),
        *(
            "test_cli_reproduce_loopback.py",
            "test_container_scripts.py",
            "test_broker_client_process.py",
        ),
        *("test_embedded_farm.py", "test_extending.py", "test_failure_kinds.py", "test_fleet.py"),
        *(
            "test_keras_steps.py",
            "test_marked.py",
            "test_mlflow.py",
            "test_models_built.py",
            "test_script_tensorflow.py",
        ),
        *("test_rivals.py", "test_strategies_trained.py", "test_tensorflow_placement.py"),
        *("test_tensorflow_strategies.py", "test_tls.py", "test_torch_engine.py"),
        *("test_torch_pipelined.py", "test_torch_sharded.py"),
        *("test_trainer_loop.py", "test_warm_tensorflow.py", "test_warm_trainers.py"),
        *("test_web_data.py", "test_web_fuzz.py", "test_web_hostile.py", "test_web_limits.py"),
        *("test_web_schemathesis.py", "test_web_server.py", "test_web_sweep_exports.py"),
    ),
    "lab": (
        *("test_chaos.py", "test_command.py", "test_farm.py", "test_links.py"),
        *("test_reproduce.py", "test_strangers.py", "test_vde_link.py", "test_wrong_links.py"),
    ),
    "unit": (
        *("test_benchmark_compare.py", "test_benchmark_fleet.py", "test_benchmark_pages.py"),
        *("test_benchmark_precision.py", "test_benchmarks.py"),
        *("test_subprocess_call.py", "test_installer.py", "test_installer_broker.py"),
        *("test_machines_study.py", "test_recommend_truths.py"),
    ),
}
# Tests of these files run on SQLite and on PostgreSQL with every change, all others on SQLite.
ON_BOTH_DATABASES = ("test_store_", "test_migrations", "test_collector_", "test_scheduler_")


def pytest_configure() -> None:
    # What a shell has started in its background, and so all that this starts, ignores SIGINT.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def kind_of(item: pytest.Item) -> str:
    """Return the folder right below `tests`: unit, integration, e2e and so on."""
    return item.path.relative_to(item.config.rootpath).parts[1]


def is_slow(item: pytest.Item) -> bool:
    """Return whether a test is left to `make test-all` by its file or its database."""
    file = item.path
    if file.name in SLOW_FILES.get(kind_of(item), ()):
        return True
    parameters = getattr(item, "callspec", None)
    database = parameters.params.get("database_kind") if parameters is not None else None
    return database == "postgresql" and not file.name.startswith(ON_BOTH_DATABASES)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_slow(item):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: kind_of(item) not in LONGEST)

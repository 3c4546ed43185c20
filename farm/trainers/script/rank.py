"""One rank that runs a script of a user's own: from its assignment to its result."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

import benchfarm
from farm.configuration.bundle import MOST_SCRIPT_BYTES
from farm.configuration.scripts import (
    bundle_of,
    examples_per_epoch,
    python_of,
    script_of,
    version_of,
)
from farm.messages.trainer_lines import Assignment, DatasetSource, FailureKind, GoLine, Ready
from farm.trainers.failures import RankFailed
from farm.trainers.processes.installed_file import NotInstalled, read_installed
from farm.trainers.processes.process import EventWriter, Orders
from farm.trainers.script.launchers import ScriptLauncher
from farm.trainers.script.process import ScriptProcess
from farm.trainers.script.watch import ScriptWatch
from farm.values.codec import from_text


def run_script(
    assignment: Assignment, launcher: ScriptLauncher, *, line: EventWriter, orders: Orders
) -> None:
    """Report ready, wait for go, run the script, and report the result.

    Raises:
        RankFailed: the script is not here, ended too early, failed, or said that its loss is no
            number.
    """
    job = assignment.job
    script, sha256 = _read(assignment)
    source = DatasetSource(
        name=job.dataset,
        origin="the script's own",
        sha256=sha256,
        is_synthetic=False,
        train_examples_count=examples_per_epoch(job.dataset) or 0,
        test_examples_count=0,
    )
    line.emit(
        Ready(
            import_s=0.0,
            framework=launcher.framework(assignment.python),
            dataset=source,
            model_sha256=sha256,
        )
    )
    go = from_text(GoLine, orders.next_line(timeout_s=job.time_limit_s))
    if _read(assignment) != (script, sha256):
        problem = f"script {script.name}: it has changed since this rank was ready"
        raise RankFailed(FailureKind.MODEL_MISSING, problem)
    with _own_folder(assignment) as name, _own_folder(assignment) as hooks:
        folder = Path(name)
        script = _placed(script, job.model, folder)
        Path(hooks, "benchfarm").symlink_to(Path(benchfarm.__file__).parent)
        process = ScriptProcess(
            assignment, launcher, go, script=script, folder=folder, hooks=Path(hooks)
        )
        try:
            line.emit(ScriptWatch(assignment, process, line).follow())
        finally:
            process.end()


def _read(assignment: Assignment) -> tuple[Path, str]:
    name = f"script {script_of(assignment.job.model)}"
    if assignment.script is None:
        problem = f"{name}: it is not among this agent's; see AGENT_SCRIPT_DIR and AGENT_SCRIPTS"
        raise RankFailed(FailureKind.MODEL_MISSING, problem)
    python = python_of(assignment.job.model)
    if python is not None and assignment.python is None:
        problem = f"{name}: this agent has no interpreter {python}; see AGENT_PYTHON_ENVIRONMENTS"
        raise RankFailed(FailureKind.MODEL_MISSING, problem)
    path = Path(assignment.script)
    try:
        content = read_installed(path, most_bytes=MOST_SCRIPT_BYTES, agent_uid=assignment.agent_uid)
    except NotInstalled as error:
        raise RankFailed(FailureKind.MODEL_MISSING, f"{name}: {error}") from None
    sha256 = hashlib.sha256(content).hexdigest()
    version = version_of(assignment.job.model)
    # The version of a bundle is the whole archive's, which the agent has compared.
    if bundle_of(assignment.job.model) is None and not sha256.startswith(version):
        problem = f"{name}: expected a sha256 that begins with {version}, got {sha256}"
        raise RankFailed(FailureKind.MODEL_MISSING, problem)
    return path, sha256


def _own_folder(assignment: Assignment) -> tempfile.TemporaryDirectory[str]:
    """Make a folder for the script; the agent removes what a killed trainer leaves."""
    prefix = None if assignment.folder_prefix is None else Path(assignment.folder_prefix)
    return tempfile.TemporaryDirectory(
        prefix=None if prefix is None else prefix.name,
        dir=None if prefix is None else prefix.parent,
        ignore_cleanup_errors=True,
    )


def _placed(script: Path, model: str, folder: Path) -> Path:
    """Copy a bundle into the folder that its script may write; return where the script is."""
    name = script_of(model)
    if bundle_of(model) is None or name is None:
        return script
    root = script.parents[name.count("/")]
    shutil.copytree(root, folder, copy_function=shutil.copyfile, dirs_exist_ok=True)
    return folder / name

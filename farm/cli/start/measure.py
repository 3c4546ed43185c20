"""`farm measure`: runs your own training script, unchanged, on a farm of this machine."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from farm.cli.output import json_option, print_json, to_stderr
from farm.cli.ranges import whole_numbers
from farm.cli.session import settings, store, wake_scheduler
from farm.cli.start.demonstration import check_abilities, demonstrate, print_results
from farm.cli.sweeps.watch import SweepWatch, follow, make_display
from farm.configuration.bundle import ScriptBundle
from farm.configuration.scripts import LAUNCHERS, parameters_of
from farm.configuration.spec import (
    DEFAULT_WARMUP_STEPS,
    MAX_GLOBAL_BATCH_SIZE,
    MAX_WORLD_SIZE,
    JobSpec,
)
from farm.configuration.sweep import ALL_STEPS, AUTO, DEFAULT_STEPS
from farm.embedded.farm import EmbeddedFarm
from farm.embedded.home import is_held
from farm.embedded.redis import free_port
from farm.embedded.signals import Stopped, StopSignals
from farm.embedded.sites import local_site, share_cores
from farm.errors import InvalidSpec
from farm.gang.lifecycle import JobState
from farm.measuring.quantities import QUANTITIES_BY_NAME
from farm.recommend.sweeps.answers import answers_for
from farm.script_folder import FoundScript, find_module, find_script
from farm.settings.server import Settings
from farm.store.agents.agents import live_agents
from farm.store.engine import reading, writing
from farm.store.measurements.measurements import MeasurementFilter, list_measurements
from farm.store.result_tables import MeasurementRow
from farm.store.sweeps.bundles import add_bundle
from farm.store.sweeps.jobs import list_jobs
from farm.store.tables import JobRow
from farm.submission import SubmissionPlan, plan, submit
from farm.text.plurals import counted
from farm.values.codec import from_json

if TYPE_CHECKING:
    import sqlalchemy as sa

_INTERPRETERS = ("python", "python3")
_MOST_JOBS = 100_000
# With agents that have gone, on a farm that somebody else may stop.
_PATIENCE_S = 60.0
_ALIKE_EXAMPLES = 0.01  # of a step, as asked and as told
# How a script learns its share of the batch.
_SHARES = ("per_rank_batch_size", "global_batch_size", "world_size")


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--world-size", "world_sizes", default="1,2", show_default=True, metavar="N,...")
@click.option(
    "--global-batch-size",
    "batch_sizes",
    required=True,
    metavar="N,...",
    help="Examples in one step of all ranks together.",
)
@click.option(
    "--one-way-delay-ms",
    "delays_ms",
    metavar="MS,...",
    help="Delay added to every packet that an agent sends; needs an emulator.",
)
@click.option("--launcher", default="torch", show_default=True, type=click.Choice(list(LAUNCHERS)))
@click.option("--steps", default=str(DEFAULT_STEPS), show_default=True, metavar="N|all")
@click.option(
    "--warmup-steps", default=DEFAULT_WARMUP_STEPS, show_default=True, type=click.IntRange(min=0)
)
@click.option("--repetitions", default="1", show_default=True, metavar="R|auto")
@click.option(
    "--parameter",
    "parameters",
    multiple=True,
    metavar="NAME=V1,V2",
    help="Values of {NAME} in COMMAND; repeat for others.",
)
@click.option("--dry-run", is_flag=True, help="Print the script's files and the jobs only.")
@json_option
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND...")
def measure(
    *,
    dry_run: bool,
    as_json: bool,
    command: tuple[str, ...],
    **given: Any,
) -> None:
    """Measure your own training script on several numbers of ranks, and recommend one.

    COMMAND is `python SCRIPT ARGS...`, or `python -m MODULE ARGS...` of a module in this folder.
    `python` is the farm's own interpreter. Another one, such as venv/bin/python, need not have
    benchfarm installed. Words in braces are filled in: {per_rank_batch_size}, {global_batch_size},
    {world_size}, {rank}, {seed}, {data_dir} and your own --parameter. Steps of PyTorch optimizers
    and of Keras' fit are detected; other scripts call benchfarm.step() after each step. After the
    warm-up and the timed steps each rank is ended; with --steps all it trains to its end.

    The command starts a farm on this machine, with one agent for each rank, unless `farm up` runs
    one in FARM_HOME already. All results stay there. Exit status: 0 every job succeeded, 1 one
    failed, 2 wrong usage.
    """
    loaded = settings()
    python, words = _python_of(command)
    found, args = _script_of(words, home=loaded.home)
    planned = plan(_sweep(found, args, python, **given))  # refused before a farm is started
    if dry_run:
        _print_plan(found, [job.model for job in planned.expansion.jobs], as_json=as_json)
        return
    world_sizes = {job.world_size for job in planned.expansion.jobs}
    if len(world_sizes) > 1 and not any(f"{{{name}}}" in " ".join(args) for name in _SHARES):
        to_stderr(
            f"COMMAND has none of {', '.join(f'{{{name}}}' for name in _SHARES)}: each rank is "
            "taken to compute its share of the batch"
        )
    show = _print_json if as_json else _print_text
    if is_held(loaded.home):
        to_stderr(f"on the farm that runs in {loaded.home}")
        succeeded = _on_running_farm(loaded, planned, found.bundle, show=show)
        raise click.exceptions.Exit(0 if succeeded else 1)
    agents = max(world_sizes)
    cores = share_cores(sorted(os.sched_getaffinity(0)), agents=agents)

    def start(signals: StopSignals) -> EmbeddedFarm:
        to_stderr(f"starting a farm with {counted(agents, 'agent')} in {loaded.home}")
        return _farm(loaded, cores, python, signals=signals)

    succeeded = demonstrate(
        start, planned=planned, and_exit=True, show=show, bundles=[found.bundle]
    )
    raise click.exceptions.Exit(0 if succeeded else 1)


def _sweep(
    found: FoundScript,
    args: list[str],
    python: Interpreter | None,
    *,
    world_sizes: str,
    batch_sizes: str,
    delays_ms: str | None,
    launcher: str,
    steps: str,
    warmup_steps: int,
    repetitions: str,
    parameters: tuple[str, ...],
) -> dict[str, Any]:
    """Return the sweep that the command asks for. Raises InvalidSpec: an option does not fit."""
    case: dict[str, Any] = {
        "script": found.name,
        "bundle_sha256": found.bundle.sha256,
        "launcher": launcher,
        "args": args,
        "parameters": _parameters(parameters),
        "world_size": _numbers("--world-size", world_sizes, most=MAX_WORLD_SIZE),
        "global_batch_size": _numbers(
            "--global-batch-size", batch_sizes, most=MAX_GLOBAL_BATCH_SIZE
        ),
        "steps": _count_or("--steps", steps, word=ALL_STEPS),
        "warmup_steps": warmup_steps,
    }
    if python is not None:
        case["python"] = python.name
    if delays_ms is not None:
        case["one_way_delay_ms"] = _delays(delays_ms)
    return {
        "name": f"measure {found.name}",
        "repetitions": _count_or("--repetitions", repetitions, word=AUTO),
        "case": [case],
    }


def _on_running_farm(
    loaded: Settings,
    planned: SubmissionPlan,
    bundle: ScriptBundle,
    *,
    show: Callable[[sa.Engine, int], None],
) -> bool:
    """Measure on the agents that are there; return whether every job succeeded.

    Raises:
        InvalidSpec: they could not serve some of the jobs.
        FarmError: they have gone meanwhile.
        click.Abort: stopped; the sweep goes on.
    """
    now = dt.datetime.now(dt.UTC)
    with store(loaded) as engine, StopSignals() as signals:
        with reading(engine) as session:
            agents = live_agents(session, now=now, live_within_s=loaded.lease_s)
        check_abilities(engine, planned, agent_ids=[agent.agent_id for agent in agents])
        with writing(engine) as session:
            add_bundle(session, bundle, now=now)
            sweep_id = submit(session, planned, now=now).sweep_id
        wake_scheduler(loaded)
        watch = SweepWatch(engine, sweep_id, settings=loaded)
        try:
            with make_display() as display:
                summary = follow(
                    watch, display, pause=signals.pause, unschedulable_after_s=_PATIENCE_S
                )
        except Stopped:
            to_stderr(f"sweep {sweep_id} goes on; `farm cancel {sweep_id}` ends it")
            raise click.Abort from None
        show(engine, sweep_id)
    return summary.counts[JobState.SUCCEEDED] == summary.job_count


def _farm(
    loaded: Settings,
    cores: list[tuple[int, ...]],
    python: Interpreter | None,
    *,
    signals: StopSignals,
) -> EmbeddedFarm:
    sites = [
        local_site(number, count=len(cores), cpus=cpus, home=loaded.home.absolute())
        for number, cpus in enumerate(cores)
    ]
    if python is not None:
        own = {"AGENT_PYTHON_ENVIRONMENTS": f"{python.name}={python.path}"}
        sites = [dataclasses.replace(site, settings={**site.settings, **own}) for site in sites]
    # The address of this dashboard is not printed, so it can use any free port.
    loaded = dataclasses.replace(loaded, web_port=free_port())
    return EmbeddedFarm(loaded, sites=sites, signals=signals, report=to_stderr)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """`name`: distinguishes scripts of two folders."""

    name: str
    path: Path


def _python_of(command: tuple[str, ...]) -> tuple[Interpreter | None, list[str]]:
    """Return the interpreter, and the command with `python` in its place; None: the farm's own."""
    first, *words = command
    name = Path(first).name
    if "/" not in first or not name.startswith("python") or name.endswith(".py"):
        return None, list(command)
    # Not resolved: that of a virtual environment is a link, and knows by its place which it is.
    path = Path(first).absolute()
    if not path.is_file() or not os.access(path, os.X_OK) or "," in str(path):
        raise InvalidSpec("COMMAND", first, "an interpreter that may be run, or python")
    digits = hashlib.sha256(os.fsencode(path)).hexdigest()[:4]
    folder = re.sub(r"[^A-Za-z0-9]", "", path.parent.parent.name)[:30]
    return Interpreter(f"{folder or 'python'}-{digits}", path), ["python", *words]


def _script_of(command: list[str], *, home: Path) -> tuple[FoundScript, list[str]]:
    """Return what the command runs, and its arguments."""
    words = command
    if words[0] in _INTERPRETERS:
        words = words[1:]
        if words[:1] == ["-u"]:  # what ranks write arrives at once anyway
            words = words[1:]
        if words[:1] == ["-m"] and len(words) > 1:
            return find_module(words[1], home=home), words[2:]
    if not words or words[0].startswith("-") or not words[0].endswith(".py"):
        expected = (
            "python SCRIPT.py ARGS... or python -m MODULE ARGS..., which the farm starts on each "
            "rank in the place of torchrun and other launchers"
        )
        raise InvalidSpec("COMMAND", " ".join(command), expected)
    return find_script(Path(words[0]), home=home), words[1:]


def _numbers(option: str, text: str, *, most: int) -> list[int]:
    return list(whole_numbers(option, text, most=most, example="1,2,4"))


def _delays(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidSpec("--one-way-delay-ms", text, "numbers such as 0,20") from None


def _count_or(option: str, text: str, *, word: str) -> int | str:
    if text == word:
        return word
    if not text.isdecimal() or not int(text):
        raise InvalidSpec(option, text, f"a number from 1, or {word}")
    return int(text)


def _parameters(given: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in given:
        name, sign, values = text.partition("=")
        if not (name and sign and values):
            raise InvalidSpec("--parameter", text, "NAME=V1,V2")
        if name in found:
            raise InvalidSpec("--parameter", text, f"all values of {name} in one, with commas")
        found[name] = values.split(",")
    return found


def _print_plan(found: FoundScript, jobs: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json({"files": list(found.bundle.files), "commands": jobs})
        return
    click.echo(f"{counted(len(found.bundle.files), 'file')} of the script:")
    for name in found.bundle.files:
        click.echo(f"  {name}")
    click.echo(f"{counted(len(jobs), 'job')}:")
    for command in jobs:
        click.echo(f"  {command}")


def warnings_of(measured: Iterable[MeasurementRow]) -> list[str]:
    """Print the jobs whose ranks did not train as requested.

    That is alone, as with Keras 3 on several machines, or on another number of examples.
    """
    found = []
    for m in measured:
        if m.world_size > 1 and m.sent_bytes_per_step == 0.0:
            found.append(
                f"{m.world_size} ranks sent each other nothing, so each trained alone: {m.model}"
            )
        examples = QUANTITIES_BY_NAME["examples_per_step"].value_measured(m)
        expected = m.global_batch_size
        if examples is not None and not math.isclose(examples, expected, rel_tol=_ALIKE_EXAMPLES):
            found.append(f"a step had {examples:g} examples, and not {expected}: {m.model}")
    return found


def _print_text(engine: sa.Engine, sweep_id: int) -> None:
    print_results(engine, sweep_id)
    with reading(engine) as session:
        measured = list_measurements(
            session, MeasurementFilter(sweep_id=sweep_id), limit=_MOST_JOBS
        )
    for warning in dict.fromkeys(warnings_of(measured)):
        click.echo(f"\nWarning: {warning}")


def _print_json(engine: sa.Engine, sweep_id: int) -> None:
    """Print the one object of the command: its jobs, what is recommended, and what is doubtful."""
    with reading(engine) as session:
        jobs = list_jobs(session, sweep_id=sweep_id, limit=_MOST_JOBS)
        which = MeasurementFilter(sweep_id=sweep_id)
        measured = {m.job_id: m for m in list_measurements(session, which, limit=_MOST_JOBS)}
        answers = answers_for(session, sweep_id)
    best = next((a for a in answers if a.answer.recommended is not None), None)
    doubts = warnings_of(measured.values())
    doubts += [w for a in answers for w in (*a.answer.cautions, *a.answer.warnings)]
    print_json(
        {
            "id": sweep_id,
            "sweep_id": sweep_id,  # the former name of `id`, until 0.2.0
            "jobs": [_job_json(job, measured.get(job.id)) for job in jobs],
            "recommended": None if best is None else best.to_json()["recommended"],
            "warnings": list(dict.fromkeys(doubts)),
        }
    )


def _job_json(job: JobRow, measured: MeasurementRow | None) -> dict[str, object]:
    spec = from_json(JobSpec, job.spec)
    succeeded = job.state is JobState.SUCCEEDED
    timed_step_count = measured.timed_step_count if measured and succeeded else None
    return {
        "job_id": job.id,
        "state": job.state.value,
        "world_size": job.world_size,
        "global_batch_size": job.global_batch_size,
        "one_way_delay_s": 0.0 if spec.network is None else spec.network.one_way_delay_s,
        "command": job.model,
        "parameters": dict(parameters_of(job.model)),
        "repetition": job.repetition,
        "step_time_s": measured.step_time_s if measured else None,
        "timed_step_count": timed_step_count,
        "step_count": timed_step_count,  # the former name, until 0.2.0
        "throughput_examples_per_s": measured.throughput_examples_per_s if measured else None,
        "failure_kind": job.failure_kind,
        "failure_reason": None if succeeded else job.reason,
        "flags": [] if measured is None else measured.flags,
    }

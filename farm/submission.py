"""Reads sweeps and stores their jobs. Needs the store, never the broker."""

from __future__ import annotations

import codecs
import dataclasses
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from farm.configuration.catalogue import DatasetFacts
from farm.configuration.expansion import Expansion, expand, without_jobs
from farm.configuration.model_size import ModelSize
from farm.configuration.own_data import find_dataset
from farm.configuration.spec import spec_json
from farm.configuration.sweep import NOTIFY, SweepSpec, parse_sweep
from farm.errors import InvalidSpec
from farm.gang.snapshots import LiveAgent
from farm.notifications.addresses import check_address, masked
from farm.notifications.events import make_secret
from farm.placement.memory import least_agent_memory_bytes, memory_problem
from farm.registry import catalogue, model_size

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

# Far above any sweep written by hand, and far below what would hurt.
MAX_FILE_BYTES = 10_000_000
_POSITION = re.compile(r"^(?P<what>.*) \(at (?:line (?P<line>\d+), column \d+|end of document)\)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionPlan:
    """A sweep that may be submitted, as it came, and what it would become.

    `data` is what is stored of it, without the addresses of `sweep.notify`.
    """

    data: Mapping[str, object]
    sweep: SweepSpec
    expansion: Expansion

    @property
    def skipped(self) -> tuple[str, ...]:
        """The cells left out, each with its reason."""
        return tuple(map(str, self.expansion.impossible))

    def to_json(self, *, most_jobs: int | None = None) -> dict[str, object]:
        """Return what it would become, with the first jobs alone where `most_jobs` says so."""
        jobs = self.expansion.jobs
        shown = jobs[:most_jobs]
        return {
            "name": self.sweep.name,
            "job_count": len(jobs),
            "max_job_count": self.expansion.max_job_count,
            "skipped": list(self.skipped),
            "jobs": [spec_json(job) for job in shown],
            "has_more_jobs": len(shown) < len(jobs),
        }


@dataclass(frozen=True, slots=True)
class SignedTarget:
    """`address` is masked. `secret`: shown once, to the submitter."""

    address: str
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedSweep:
    """`max_job_count`: with the repetitions that may still be added. `skipped`: the cells left out.

    `notify`: for each address, masked, the secret that messages to it are signed with.
    """

    sweep_id: int
    job_count: int
    max_job_count: int
    skipped: tuple[str, ...]
    notify: tuple[SignedTarget, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return it with the names of the API."""
        return {
            "id": self.sweep_id,
            "job_count": self.job_count,
            "max_job_count": self.max_job_count,
            "skipped": list(self.skipped),
            "notify": [{"address": one.address, "secret": one.secret} for one in self.notify],
        }


def read_sweep_file(path: Path) -> object:
    """Read a sweep file's TOML; what it says is checked by `plan`.

    Raises:
        InvalidSpec: it cannot be read, or is not TOML; names the file and the line.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidSpec(
            "sweep file", str(path), f"a readable file ({error.strerror or error})"
        ) from None
    if len(content) > MAX_FILE_BYTES:
        raise InvalidSpec(str(path), "more", f"at most {MAX_FILE_BYTES} bytes")
    # Editors of another system put it in front, and TOML does not know it.
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidSpec(
            f"{path} line {line}", content[error.start : error.start + 1], "UTF-8 text"
        ) from None
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # not only tomllib's own: a number too long
        raise _syntax_error(path, text, str(error)) from None


def plan(data: object) -> SubmissionPlan:
    """Check a sweep and expand it against everything that is registered.

    Raises:
        InvalidSpec: see `parse_sweep` and `expand`.
    """
    sweep = parse_sweep(data)
    assert isinstance(data, Mapping)  # or it would not have been parsed
    for number, address in enumerate(sweep.notify):
        check_address(address, field=f"{NOTIFY}[{number}]")
    data = {key: value for key, value in data.items() if key != NOTIFY}
    return SubmissionPlan(data=data, sweep=sweep, expansion=expand(sweep, catalogue()))


def within_memory(planned: SubmissionPlan, agents: Collection[LiveAgent]) -> SubmissionPlan:
    """Leave out what is too large for every live agent that may serve it, or refuse the sweep.

    Nothing is refused where no such agent is alive or one of them does not say how much memory its
    models have, nor where a model's size is not known here.

    Raises:
        InvalidSpec: the sweep does not say `skip_impossible`, or all of it is too large.
    """
    known = catalogue()
    datasets = known.datasets
    smallest = min((a.memory_bytes for a in agents if a.memory_bytes is not None), default=None)
    if smallest is None:
        return planned
    # None: it fits all of them. So do most, and only of the others it matters who may serve them.
    sizes: dict[tuple[object, ...], tuple[ModelSize, DatasetFacts] | None] = {}
    reasons: dict[int, InvalidSpec] = {}
    for place, job in enumerate(planned.expansion.jobs):
        what = (job.model, job.dataset, job.training_pass.value)
        shape = (job.replicas_per_rank, job.global_batch_size, job.world_size, job.server_count)
        key = (*what, job.strategy, *shape, frozenset(job.axes.items()))
        facts = known.strategy(job.strategy)
        if key not in sizes:
            size = model_size(job.model, job.dataset)
            dataset = find_dataset(job.dataset, datasets)
            sizes[key] = None
            # A script's size and data set are its own affair.
            if size is not None and dataset is not None:
                needed = least_agent_memory_bytes(job, size, dataset, strategy=facts)
                sizes[key] = (size, dataset) if needed > smallest else None
        if (too_large := sizes[key]) is not None:
            problem = memory_problem(job, *too_large, agents, strategy=facts)
            if problem is not None:
                reasons[place] = problem
    expansion = without_jobs(planned.expansion, planned.sweep, reasons)
    return dataclasses.replace(planned, expansion=expansion)


def submit(session: Session, planned: SubmissionPlan, *, now: datetime) -> SubmittedSweep:
    """Write the jobs of a planned sweep. The caller owns the transaction.

    Planning a large sweep takes seconds, which no other writer should have to wait for: so plan
    before the transaction begins.

    Raises:
        InvalidSpec: a job's bundle is not in the store, or lacks its script.
    """
    # Imported here: who only plans needs no database installed.
    from farm.store.notifications import add_targets
    from farm.store.sweeps.bundles import check_bundles, check_scripts
    from farm.store.sweeps.sweeps import insert_sweep

    expansion = planned.expansion
    models = [job.model for job in expansion.jobs]
    check_bundles(session, models)
    check_scripts(session, models)
    sweep_id = insert_sweep(
        session,
        name=planned.sweep.name,
        spec=planned.data,
        jobs=expansion.jobs,
        skipped=planned.skipped,
        priority=planned.sweep.priority,
        budget_machine_s=planned.sweep.budget_machine_s,
        now=now,
    )
    addresses = planned.sweep.notify
    secrets = [make_secret() for _ in addresses]
    add_targets(session, addresses, secrets, sweep_id=sweep_id, now=now)
    return SubmittedSweep(
        sweep_id=sweep_id,
        job_count=len(expansion.jobs),
        max_job_count=expansion.max_job_count,
        skipped=planned.skipped,
        notify=tuple(
            SignedTarget(masked(address), secret)
            for address, secret in zip(addresses, secrets, strict=True)
        ),
    )


def _syntax_error(path: Path, text: str, message: str) -> InvalidSpec:
    lines = text.splitlines() or [""]
    match = _POSITION.match(message)
    number = int(match["line"]) if match and match["line"] else len(lines)
    what = match["what"] if match else message
    return InvalidSpec(f"{path} line {number}", lines[number - 1], f"TOML ({what})")

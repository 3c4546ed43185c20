"""The sweep that the demo submits."""

from __future__ import annotations

import pytest

from farm.cli.start.demo import demo_sweep
from farm.cli.start.demonstration import disturbance_warning
from farm.submission import plan
from tests.factories import job_spec
from tests.stored.sweep_cells import lines_of, measured_job


@pytest.mark.parametrize(
    ("agents", "widths"), [(1, [1]), (2, [1, 2]), (4, [1, 2, 4]), (5, [1, 2, 4, 5])]
)
def test_the_sweep_uses_what_the_agents_can_form(agents: int, widths: list[int]) -> None:
    jobs = plan(demo_sweep(agents)).expansion.jobs
    assert sorted({job.world_size for job in jobs}) == widths
    assert {job.strategy for job in jobs if job.world_size == 1} == {"single"}
    # Every width meets every batch size, or efficiencies could not be told.
    assert len({job.global_batch_size for job in jobs}) == 2
    assert len({job.cell_hash for job in jobs}) == 2 * len(widths)


def test_the_sweep_trains_by_epochs_on_real_images() -> None:
    jobs = plan(demo_sweep(2)).expansion.jobs
    assert {job.dataset for job in jobs} == {"digits"}
    assert all(job.epochs for job in jobs)


def test_on_a_busy_machine_one_line_says_so_and_what_to_do() -> None:
    flag = {"kind": "foreign_load", "message": "", "value": 0.8}
    spec = job_spec()
    calm = [measured_job(spec, job_id=1, step_time_s=0.1)]
    busy = [measured_job(spec, job_id=n, step_time_s=0.1, flags=[flag]) for n in range(2, 9)]
    line = disturbance_warning(lines_of([*calm, *busy]))
    assert line == (
        "This machine was busy: 7 of 8 measurements were disturbed, by other programs (7). "
        "Close other programs, or use fewer agents, and run it again."
    )
    assert disturbance_warning(lines_of(calm)) is None

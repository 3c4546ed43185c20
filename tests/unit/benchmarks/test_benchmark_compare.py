"""The comparison with what people use instead: its sums, and who is missed where absent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.jobs.compare import DASK, FARM, WORKS, compared
from benchmarks.jobs.makespans import (
    Played,
    each_round,
    idle_ratio,
    makespan_s,
    overhead_s_a_job,
    processor_s_a_job,
    ratio,
    steps_s_a_job,
)
from farm.errors import FarmError

ROOT = Path(__file__).parents[3]
OURS = [Played(4.0, (0.5, 0.5), processor_s=6.0), Played(6.0, (1.0, 1.0), processor_s=8.0)]
THEIRS = [Played(5.0, (0.5, 0.5), processor_s=2.0), Played(6.0, (1.0, 1.0), processor_s=2.0)]
PHASES_S = {"attempt: measuring": [0.25, 0.75]}


def test_sums_are_of_all_rounds_and_the_ratio_is_the_median_of_theirs() -> None:
    assert makespan_s(OURS) == 10.0
    assert steps_s_a_job(OURS) == 0.75
    assert overhead_s_a_job(OURS) == pytest.approx(1.75)
    assert processor_s_a_job(OURS) == 3.5
    assert idle_ratio(OURS) == pytest.approx(0.7)
    assert ratio(OURS, THEIRS) == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("job_count", "fitting"), [(12, "give 8 or 16"), (41, "give 40 or 48"), (3, "give 8")]
)
def test_jobs_that_do_not_fill_the_rounds_are_refused_with_what_to_give(
    job_count: int, fitting: str
) -> None:
    with pytest.raises(FarmError) as refused:
        each_round(job_count, round_count=8)
    assert str(refused.value) == (
        f"--jobs {job_count}: expected a multiple of 8, the number of rounds; {fitting}"
    )
    assert each_round(40, round_count=8) == 5


def test_a_rival_that_is_not_installed_is_a_limit_missed_and_says_how_to_install_it() -> None:
    with_dask = {FARM: OURS, "raw Celery": THEIRS, DASK: THEIRS}
    without = {name: rounds for name, rounds in with_dask.items() if name != DASK}
    for work in WORKS.values():
        assert len(compared(work, with_dask, phases_s=PHASES_S)) == 2
        figures = compared(work, without, phases_s=PHASES_S)
        [missed] = [figure for figure in figures if figure.against == DASK]
        assert (missed.reached, missed.baseline) == (False, None)
        assert "pip install -e '.[compare]'" in missed.note


def test_the_farm_must_be_ahead_only_where_a_framework_is_imported() -> None:
    played = {FARM: OURS, DASK: THEIRS}
    [held] = compared(WORKS["tensorflow"], played, phases_s=PHASES_S)
    [free] = compared(WORKS["fake"], played, phases_s=PHASES_S)
    assert held.ratio == pytest.approx(0.9)
    assert held.reached
    assert free.reached is None
    assert "steps a job 0.75 s, Dask 0.75 s" in held.note
    assert "of the farm's overhead 0.50 s a job" in held.note


def test_make_bench_installs_every_rival() -> None:
    makefile = (ROOT / "Makefile").read_text()
    [recipe] = re.findall(r"^bench: .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert "-e '.[compare]'" in recipe

"""A study's page says only what its undisturbed runs show."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

import pytest

from farm.errors import FarmError
from farm.measuring.measurement import OK
from farm.measuring.precision import ASSUMED_CORRELATION, variance_inflation
from farm.measuring.study_run import StudyRun
from farm.studies import STUDIES
from farm.studies.conditions import findings
from farm.studies.contracts import Study
from farm.studies.publishing import data_path, page_path, read_data, read_runs
from farm.studies.run_groups import VARIANCE_INFLATION
from tests.stored.study_runs import study_run

DOCUMENTS = Path(__file__).parents[3] / "docs"
AXES = (
    *("model", "dataset", "strategy", "framework", "world_size", "global_batch_size"),
    *("one_way_delay_s", "server_count", "server_placement", "replicas_per_rank"),
    *("steps_between_averages", "training_pass"),
)


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_a_committed_page_says_how_many_of_its_runs_were_disturbed(study: Study) -> None:
    # That the page is the one of its data is tested with the latency study.
    runs = read_runs(read_data(data_path(study, DOCUMENTS)), name=study.name)
    disturbed_count = sum(bool(run.flags) for run in runs)
    page = page_path(study, DOCUMENTS).read_text()
    assert f"**{disturbed_count} of {len(runs)} runs were disturbed**" in page


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_intervals_are_wide_enough_for_runs_that_resemble_their_neighbours(study: Study) -> None:
    runs = read_runs(read_data(data_path(study, DOCUMENTS)), name=study.name)
    measured = sorted((run for run in runs if run.status == OK), key=attrgetter("measured_at"))
    places: dict[tuple[object, ...], list[int]] = {}
    for place, run in enumerate(measured):
        places.setdefault(tuple(run[axis] for axis in AXES), []).append(place)
    for of_one in places.values():
        gaps = tuple(later - earlier for earlier, later in itertools.pairwise(of_one))
        assert variance_inflation(gaps, ASSUMED_CORRELATION) <= VARIANCE_INFLATION


def pair(world_size: int, step_s: float, *, flags: tuple[str, ...] = ()) -> list[StudyRun]:
    return [
        study_run(world_size=world_size, step_time_s=step_s, repetition=n, flags=flags)
        for n in range(2)
    ]


def claims(runs: Sequence[StudyRun]) -> list[str]:
    """Say how fast each gang is, and whether two machines beat one."""
    medians_s = {
        size: statistics.median(
            run["step_time_s"] or 0 for run in runs if run["world_size"] == size
        )
        for size in sorted({run["world_size"] for run in runs})
    }
    if not medians_s:
        raise FarmError("no run")
    sentences = [
        f"With {size} machines a step takes {time_s:g} s." for size, time_s in medians_s.items()
    ]
    if medians_s.keys() >= {1, 2}:
        sentences.append(f"Two are {'faster' if medians_s[2] < medians_s[1] else 'slower'}.")
    return sentences


def test_without_disturbances_everything_is_said_as_it_is() -> None:
    assert findings([*pair(1, 1.0), *pair(2, 0.5)], claims).splitlines() == [
        "- With 1 machines a step takes 1 s.",
        "- With 2 machines a step takes 0.5 s.",
        "- Two are faster.",
    ]


def test_what_disturbed_runs_alone_show_is_left_out_and_the_rest_says_how_many_there_were() -> None:
    busy = ("foreign_load",)
    runs = [*pair(1, 1.0), *pair(1, 2.0, flags=busy), *pair(2, 0.5, flags=busy)]
    head, empty, *lines = findings(runs, claims).splitlines()
    for counted in ("4 of 6 runs", "`foreign_load` 4", "2 of 3 findings"):
        assert counted in head
    assert empty == ""
    [kept] = lines
    assert kept.startswith("- With 1 machines a step takes 1.5 s.")
    assert "2 of the 4 runs" in kept
    assert "With 1 machines a step takes 1 s." in kept


def test_a_verdict_that_turns_without_the_disturbed_runs_is_left_out() -> None:
    busy = ("foreign_load",)
    runs = [*pair(1, 1.0), *pair(2, 1.1), *pair(1, 9.0, flags=busy), *pair(1, 9.0, flags=busy)]
    assert "Two are" not in findings(runs, claims)


def test_where_all_runs_are_disturbed_nothing_is_claimed() -> None:
    text = findings(pair(1, 1.0, flags=("steal",)), claims)
    assert "1 of 1 finding" in text

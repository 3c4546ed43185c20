"""The latency study: what its page says of measurements whose truth is known."""

from __future__ import annotations

import dataclasses
import re
from importlib.resources import as_file
from pathlib import Path

import pytest

from farm.errors import FarmError
from farm.measuring.study_run import StudyRun
from farm.studies import STUDIES
from farm.studies.contracts import Page, Study
from farm.studies.latency import latency_page, panels_of
from farm.studies.publishing import (
    data_path,
    own_sweep,
    page_path,
    publish_page,
    read_data,
    read_runs,
    sweep_path,
)
from farm.submission import plan, read_sweep_file
from tests.stored.study_runs import (
    ALONE_S,
    BASE_S,
    TRIPS,
    changed,
    gang_run,
    study_run,
    whole_study,
)

DOCS = Path(__file__).parents[3] / "docs"


def rows(page: Page, title: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its titles and its ruler."""
    below = page.text.split(f"## {title}\n", 1)[1]
    found = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert found, f"no table below {title}"
    lines = found[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


# --- what is measured against the truth ---------------------------------------------------------


def test_the_round_trips_and_the_time_without_delay_are_found_again() -> None:
    [panel] = panels_of(whole_study())

    for curve in panel.gangs:
        assert curve.fit is not None
        assert curve.fit.slope == pytest.approx(TRIPS[curve.world_size], rel=1e-3)
        assert curve.fit.intercept == pytest.approx(BASE_S[curve.world_size], rel=1e-3)
        assert curve.bend_ratio == pytest.approx(0.0, abs=1e-3)


def test_the_measured_round_trip_counts_and_not_the_delay_asked_for() -> None:
    runs = [changed(run, one_way_delay_s=run["one_way_delay_s"] * 1.1) for run in whole_study()]
    [panel] = panels_of(runs)

    assert [round(curve.fit.slope, 2) for curve in panel.gangs if curve.fit] == [2.0, 4.0]


def test_a_gang_pays_until_its_round_trips_have_eaten_the_gain() -> None:
    [panel] = panels_of(whole_study())
    two, three = panel.gangs

    assert two.pays_up_to_s == pytest.approx((ALONE_S - BASE_S[2]) / TRIPS[2] / 2, rel=0.01)
    assert dataclasses.replace(three, alone_s=0.010).pays_up_to_s is None


def test_without_a_second_delay_there_is_no_slope() -> None:
    [panel] = panels_of([run for run in whole_study() if run["one_way_delay_s"] == 0])

    assert [curve.fit for curve in panel.gangs] == [None, None]


def test_ranks_on_the_fullest_core() -> None:
    [panel] = panels_of(whole_study())

    assert [curve.ranks_on_a_core for curve in panel.curves] == [1, 1, 2]


# --- the page -----------------------------------------------------------------------------------


def test_the_page_has_every_figure_of_a_fit() -> None:
    two, three = rows(latency_page(whole_study()), "Round trips in a step")

    assert two[:3] == ["`small_cnn`", "192", "2"]
    assert two[3].startswith("20.0 (")
    assert two[4].startswith("2.00 (")
    assert two[5] == "3"
    assert three[4].startswith("4.00 (")
    assert three[5] == "5"
    assert two[7:] == ["9", "30.0", "2.50"]


def test_the_page_holds_bytes_against_the_rings_theory() -> None:
    two, three = rows(latency_page(whole_study()), "Bytes on the wire")

    assert two[3:] == ["300", "300", "303", "+1.0 %", "318", "+6.0 %"]
    assert three[4] == "400"  # 2 (n - 1) / n


def test_the_page_says_who_shared_cores() -> None:
    text = latency_page(whole_study()).text

    assert "3 hosts shared 2 cores" in text
    assert "2 hosts had a core each" in text
    alone = latency_page([run for run in whole_study() if run["world_size"] < 3]).text
    assert "shared" not in alone


def test_the_page_counts_what_was_disturbed_and_what_was_tried_again() -> None:
    runs = [
        changed(run, flags=("foreign_load",), attempt_count=2)
        if run["world_size"] == 3 and run.repetition == 0
        else run
        for run in whole_study()
    ]
    text = latency_page(runs).text

    assert "3 of 9 runs of 3 hosts (`foreign_load` 3)" in text
    assert "3 runs are not" in text
    assert "None is flagged." in latency_page(whole_study()).text


def test_failures_and_other_hardware_are_left_out_and_counted() -> None:
    whole = latency_page(whole_study())
    more = [
        study_run(status="out_of_memory", step_time_s=None),
        study_run(fingerprint="another kind", step_time_s=9.0),
    ]
    page = latency_page([*whole_study(), *more])

    assert rows(page, "All configurations") == rows(whole, "All configurations")
    assert "1 that ended as `out_of_memory`" in page.text
    assert "1 on other hardware" in page.text


def test_the_order_of_the_runs_changes_nothing() -> None:
    assert latency_page(whole_study()[::-1]).text == latency_page(whole_study()).text


@pytest.mark.parametrize(
    "runs",
    [
        [study_run()],
        [gang_run(2, 0.02)],
        [gang_run(2, delay_s) for delay_s in (0.0, 0.02, 0.04)],
        [
            gang_run(2, 0.0, rtt_s=None, wire_bytes_per_step=None, gradient_bytes=None),
            study_run(core_count=0, steps_per_epoch=None, timed_step_count=None),
        ],
    ],
    ids=["one run", "one gang", "nobody alone", "little known"],
)
def test_a_study_of_little_has_a_page_all_the_same(runs: list[StudyRun]) -> None:
    page = latency_page(runs)

    assert "$" not in page.text
    for drawing in page.drawings:
        drawing.draw()


def test_a_study_without_a_time_has_no_page() -> None:
    with pytest.raises(FarmError, match="no measured run"):
        latency_page([study_run(status="out_of_memory", step_time_s=None)])


# --- what is published --------------------------------------------------------------------------


def test_equal_pages_are_equal_files_each_figure_as_png_and_svg(tmp_path: Path) -> None:
    [study] = [study for study in STUDIES if study.name == "latency"]
    contents = []
    for name in ("once", "again"):
        written = publish_page(study, tmp_path / name, page=latency_page(whole_study()))
        contents.append({path.name: path.read_bytes() for path in written})

    assert contents[0] == contents[1]
    linked = re.findall(r"\((images/[^)]+)\)", contents[0]["latency-study.md"].decode())
    assert {Path(link).name for link in linked} == set(contents[0]) - {"latency-study.md"}
    assert b"5 hosts" not in contents[0]["latency-epoch-time.svg"]
    assert b"3 hosts" in contents[0]["latency-epoch-time.svg"]


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_a_studys_sweep_file_can_be_submitted(study: Study) -> None:
    with as_file(own_sweep(study)) as path:
        planned = plan(read_sweep_file(path))

    assert planned.expansion.impossible == ()
    assert max(job.world_size for job in planned.expansion.jobs) <= study.place.count


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_the_page_in_the_documents_is_the_one_of_the_data_beside_it(study: Study) -> None:
    data = data_path(study, DOCS)
    page = study.page(read_runs(read_data(data), name=str(data)))

    assert page_path(study, DOCS).read_text() == page.text
    for drawing in page.drawings:
        for suffix in ("png", "svg"):
            assert (DOCS / "images" / f"{drawing.name}.{suffix}").is_file()
    # Whoever repeats the study measures what was measured for it.
    assert sweep_path(study, DOCS).read_text() == own_sweep(study).read_text()

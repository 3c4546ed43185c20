"""The machines study: what its page says of the published table, and of runs of a known truth."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import as_file
from pathlib import Path
from typing import Any

import pytest

from farm.charts import chart
from farm.charts.files.style import file_of
from farm.errors import FarmError
from farm.importers.anwar2021 import ANWAR2021
from farm.importers.contracts import read_publication
from farm.measuring.study_run import StudyRun
from farm.studies.contracts import LabHosts, Page
from farm.studies.machines import MACHINES, machines_page, paired_batches
from farm.studies.machines.cells import CellTimes, own_times, published_times
from farm.studies.machines.claims import ORDERINGS, size_of, values_of
from farm.studies.orderings import Ordering, judge
from farm.studies.publishing import own_sweep
from farm.submission import plan, read_sweep_file
from tests.stored.study_runs import changed, study_run

BATCHES, DELAYS_S = (96, 600, 9000), (0.0, 0.005, 0.02)
EXAMPLE_S, EXCHANGE_S = 4e-5, 0.030


def truth(world_size: int, batch: int, delay_s: float) -> float:
    """Computing is shared by two cores; the exchange waits for 2 n - 1 round trips."""
    if world_size == 1:
        return 0.005 + batch * EXAMPLE_S
    computing_s = 0.005 + batch * EXAMPLE_S * -(-world_size // 2) / world_size
    return computing_s + EXCHANGE_S * world_size / 2 + (2 * world_size - 1) * 2 * delay_s


def run(world_size: int, batch: int, delay_s: float = 0.0, **changes: Any) -> StudyRun:
    fields: dict[str, Any] = {
        "world_size": world_size,
        "global_batch_size": batch,
        "one_way_delay_s": delay_s,
        "step_time_s": truth(world_size, batch, delay_s),
        "rtt_s": None if world_size == 1 else 2 * delay_s,
        "timed_step_count": 8,
    }
    return study_run(**{**fields, **changes})


def whole_study() -> list[StudyRun]:
    """Three runs of each configuration, which differ by a thousandth."""
    places = [(1, batch, 0.0) for batch in BATCHES]
    places += [(size, batch, delay) for size in (2, 3) for batch in BATCHES for delay in DELAYS_S]
    return [
        run(*place, repetition=number, step_time_s=truth(*place) * (1 + 0.001 * (number - 1)))
        for number in range(3)
        for place in places
    ]


@pytest.fixture(scope="module")
def published() -> CellTimes:
    return published_times(read_publication(ANWAR2021).measurements)


def rows(page: Page, after: str) -> list[list[str]]:
    """The cells of the first table after a text, without its titles and its ruler."""
    found = re.search(r"(?:^\|.*\n)+", page.text.split(after, 1)[1], re.MULTILINE)
    assert found, f"no table after {after}"
    lines = found[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


# --- the published table ------------------------------------------------------------------------

# How many neighbouring pairs of the published table agree, of how many: the table never changes.
SHOWN_BY_THE_TABLE = {
    "a longer delay makes a step of two or more machines longer": (86, 90),
    "without a delay, at the smallest batch, each further machine makes a step longer": (3, 3),
    "at the smallest batch, under a delay, each further machine makes a step longer": (13, 15),
    "without a delay, at the large batch, two machines are faster than one": (1, 1),
    "under a delay, at the large batch, two machines are faster than one": (5, 5),
    "without a delay, at the large batch, three machines are faster than two": (1, 1),
    "a larger batch makes a step longer": (92, 94),
    "a larger batch takes less time for each example": (90, 94),
    "the same delay lengthens a step by a smaller share at the large batch than at the smallest": (
        12,
        15,
    ),
    "a step of three machines waits for more round trips than one of two": (4, 6),
    "under the longest delay fewer machines are the fastest than without any": (4, 5),
    "at the large batch more machines are the fastest than at the smallest": (6, 6),
}


@pytest.mark.parametrize("ordering", ORDERINGS, ids=lambda one: one.says)
def test_the_published_table_shows_each_ordering(published: CellTimes, ordering: Ordering) -> None:
    found = judge(ordering, values_of(published)[ordering.of])

    count = found.agree + found.against + found.tied
    assert (found.agree, count) == SHOWN_BY_THE_TABLE[ordering.says]
    assert found.holds


def test_one_machine_holds_at_every_delay_of_the_study(published: CellTimes) -> None:
    """A look-up by batch and delay alone would never answer 1 under a delay."""
    answers = {
        (batch, delay_s): found
        for batch in published.batches
        for delay_s in published.delays_s
        if (found := published.fastest(batch, delay_s))
    }

    assert sum(found.world_size == 1 for found in answers.values()) == 13
    assert answers[192, 0.1].world_size == 1
    assert answers[64000, 0.0].world_size == 4  # what the study's own system answers
    assert answers[64000, 0.02].world_size == 3
    assert answers[64000, 0.0].speedup is None  # one machine ran out of memory


def test_the_step_time_of_one_machine_is_that_of_its_fifty_steps(published: CellTimes) -> None:
    alone = published.cell(1, 2560, 0.1)
    assert alone is not None
    assert alone.step_time.value == pytest.approx(0.784)
    assert alone.epoch_time.value == pytest.approx(70 * 0.784)


def test_the_study_waits_for_as_many_round_trips_as_a_ring_has(published: CellTimes) -> None:
    slopes = {
        size: [fit.slope for b in (192, 1280, 2560) if (fit := published.round_trips(size, b))]
        for size in (2, 3)
    }
    assert all(2.5 < slope < 3.5 for slope in slopes[2])
    assert all(4.0 < slope < 5.0 for slope in slopes[3])


def test_the_large_batch_is_the_largest_that_one_machine_has_done(published: CellTimes) -> None:
    sizes = [size_of(published, batch) for batch in published.batches]
    assert sizes == ["small", "between", "between", "between", "large", "beyond"]


# --- our own runs against the truth -------------------------------------------------------------


def test_the_page_finds_the_fastest_number_of_machines_again() -> None:
    found = rows(machines_page(whole_study()), "Here:\n")

    assert found == [
        ["96", "**1**", "**1**", "**1**"],
        ["600", "**1**", "**1**", "**1**"],
        ["9 000", "**2** (1.70 x)", "**2** (1.49 x)", "**2** (1.09 x)"],
    ]


def test_intervals_that_overlap_leave_open_which_is_faster() -> None:
    wide = [
        run(2, 600, repetition=number, step_time_s=step_time_s)
        for number, step_time_s in enumerate((0.020, 0.030, 0.040))
    ]
    alone = [run(1, 600, repetition=n, step_time_s=0.0290 + 0.0001 * n) for n in range(3)]
    found = own_times([*wide, *alone]).fastest(600, 0.0)

    assert found is not None
    assert (found.world_size, found.others) == (1, (2,))


def test_round_trips_are_found_again_from_what_was_measured() -> None:
    own = own_times(whole_study())
    for size in (2, 3):
        fit = own.round_trips(size, 600)
        assert fit is not None
        assert fit.slope == pytest.approx(2 * size - 1, rel=0.01)
    assert own.round_trips(1, 600) is None


def test_orderings_that_differ_say_why() -> None:
    page = machines_page(whole_study())
    found = {row[0].split(". ", 1)[1]: row[1:] for row in rows(page, "## What agrees\n")}

    assert found["a longer delay makes a step of two or more machines longer"] == [
        "86 of 90",
        "12 of 12",
        "yes",
    ]
    third = found["without a delay, at the large batch, three machines are faster than two"]
    assert third == ["1 of 1", "0 of 1", "**no**"]
    why = next(one.because for one in ORDERINGS if "three machines are faster" in one.says)
    assert why in page.text.split("Why not:", 1)[1]


def test_an_epoch_is_seventy_steps_at_every_batch() -> None:
    found = rows(machines_page(whole_study()), "## All configurations\n")
    shown = {tuple(row[:3]): row for row in found}

    epoch_s = 70 * truth(3, 9000, 0.02)
    assert float(shown["9 000", "3", "20"][5]) == pytest.approx(epoch_s, rel=0.01)
    per_example_us = truth(1, 9000, 0.0) / 9000 * 1e6
    assert float(shown["9 000", "1", "-"][6]) == pytest.approx(per_example_us, rel=0.01)


def test_every_batch_of_ours_stands_below_one_of_the_study(published: CellTimes) -> None:
    own = own_times(whole_study())
    assert paired_batches(published, own) == [(192, 96), (2560, 600), (32000, 9000)]
    one = own_times([run(1, 96)])
    assert paired_batches(published, one) == [(192, 96)]


# --- pages of less than all ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "runs",
    [
        [run(1, 96)],
        [run(2, 96, 0.005)],
        # Far apart, so that the interval goes over several powers of ten.
        [run(1, 96, repetition=n, step_time_s=s) for n, s in enumerate((0.002, 0.01, 0.2))],
        [changed(one, rtt_s=None, timed_step_count=None) for one in whole_study()[:4]],
        [run(4, 96, step_time_s=0.1), run(5, 96, 0.2, step_time_s=0.2)],
    ],
)
def test_few_runs_make_a_page_whose_figures_can_be_drawn(runs: Sequence[StudyRun]) -> None:
    page = machines_page(runs)

    assert "$" not in page.text
    for drawing in page.drawings:
        assert file_of(drawing.draw(), "svg")


def test_what_failed_is_named_as_a_result() -> None:
    failed = run(1, 9000, status="out_of_memory", step_time_s=None)
    kept = [
        one for one in whole_study() if (one["world_size"], one["global_batch_size"]) != (1, 9000)
    ]
    page = machines_page([*kept, failed])

    assert "batch 9 000 on 1: out_of_memory" in page.text
    assert rows(page, "Here:\n")[2] == ["9 000", "**2**", "**2**", "**2**"]


def test_without_a_measured_run_there_is_no_page() -> None:
    with pytest.raises(FarmError, match="no measured run"):
        machines_page([run(1, 96, status="out_of_memory", step_time_s=None)])


def test_runs_of_other_work_are_refused_and_never_pooled() -> None:
    with pytest.raises(FarmError, match="got model mlp, small_cnn"):
        machines_page([*whole_study(), run(2, 96, model="mlp")])


def test_all_panels_share_one_key() -> None:
    """Delays of the study and of ours are told apart by one key, above all panels."""
    drawn = machines_page(whole_study()).drawings[0].draw()
    [key] = drawn.legends
    names = [text.get_text() for text in key.get_texts()]
    assert names == ["0 ms", "5 ms", "20 ms", "40 ms", "60 ms", "80 ms", "100 ms"]
    assert len(names) > chart.STYLES
    assert not any(axes.get_legend() for axes in drawn.axes)


# --- the sweep and its links --------------------------------------------------------------------


def test_the_sweep_is_what_the_page_says() -> None:
    with as_file(own_sweep(MACHINES)) as path:
        planned = plan(read_sweep_file(path))

    jobs = planned.expansion.jobs
    assert len(jobs) == 84
    assert {job.world_size for job in jobs} == {1, 2, 3}
    delays_s = {job.network.one_way_delay_s if job.network else 0.0 for job in jobs}
    assert delays_s == set(DELAYS_S)
    assert not planned.expansion.impossible
    assert MACHINES.place == LabHosts(3)


def test_links_lead_to_pages_that_are_there() -> None:
    docs = Path(__file__).parents[4] / "docs"
    links = re.findall(r"\]\(\.\./([\w./-]+\.md)", machines_page(whole_study()).text)
    assert links
    assert not [link for link in links if not (docs / link).is_file()]

"""The contract of every published study that can be imported, and what is known of each."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

import pytest

from farm.configuration.spec import TrainingPass
from farm.errors import FarmError
from farm.importers import IMPORTERS
from farm.importers.anwar2021 import ANWAR2021
from farm.importers.contracts import Publication, read_publication
from farm.importers.graur2019 import GRAUR2019
from farm.measuring.imported import FlagKind, ImportedMeasurement, misfits
from farm.measuring.quantities import ADVISED
from farm.store.measurements.imports import check_origin

each_publication = pytest.mark.parametrize("publication", IMPORTERS, ids=lambda p: p.name)


def measurements(publication: Publication) -> tuple[ImportedMeasurement, ...]:
    return read_publication(publication).measurements


# --- the contract -----------------------------------------------------------------------------


def test_every_publication_has_a_name_of_its_own() -> None:
    names = [publication.name for publication in IMPORTERS]
    assert len(set(names)) == len(names)
    assert [check_origin(name) for name in names] == names
    assert all(name.isidentifier() for name in names)  # what one types after `farm import`


@each_publication
def test_a_publication_says_what_it_is_and_gives_a_citation(publication: Publication) -> None:
    assert len(publication.citation) > 20
    assert publication.what
    assert "\n" not in publication.citation + publication.what


@each_publication
def test_a_file_that_was_edited_is_not_imported(publication: Publication) -> None:
    edited = dataclasses.replace(publication, sha256="0" * 64)
    with pytest.raises(FarmError, match=rf"^{publication.file}: expected SHA-256 0+, got"):
        read_publication(edited)


@each_publication
def test_reading_twice_gives_the_same(publication: Publication) -> None:
    assert read_publication(publication) == read_publication(publication)


@each_publication
def test_every_measurement_is_one_and_has_a_row(publication: Publication) -> None:
    read = read_publication(publication)
    keys = [m.source_key for m in read.measurements]
    numbers = [m.row_number for m in read.measurements]
    assert len(set(keys)) == len(keys)
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 2  # below the header
    assert numbers[-1] <= read.row_count + 1
    assert all(len(key) <= 64 for key in keys)


@each_publication
def test_nothing_impossible_is_handed_on(publication: Publication) -> None:
    for m in measurements(publication):
        assert not misfits({one.name: m[one.name] for one in ADVISED})
        assert 1 <= m["world_size"] <= m["global_batch_size"]


@each_publication
def test_what_worked_has_a_step_time_and_what_failed_has_none(publication: Publication) -> None:
    for m in measurements(publication):
        assert (m.status == "ok") == (m["step_time_s"] is not None)


@each_publication
def test_repetitions_of_a_configuration_are_numbered(publication: Publication) -> None:
    numbered = Counter(
        (
            *(
                m["model"],
                m["dataset"],
                m["training_pass"],
                m.framework,
                m["strategy"],
                m["placement"],
                m["network"],
            ),
            *(m["world_size"], m["global_batch_size"], m["one_way_delay_s"], m.repetition),
        )
        for m in measurements(publication)
    )
    assert set(numbered.values()) == {1}


@each_publication
def test_what_is_left_out_or_doubted_says_why(publication: Publication) -> None:
    for m in measurements(publication):
        assert all(flag.message for flag in m.flags)
        assert all(m.notes)
        assert m.printed


# --- anwar2021 --------------------------------------------------------------------------------


def anwar(world_size: int, batch: int, delay_ms: int = 0) -> ImportedMeasurement:
    [found] = [
        m
        for m in measurements(ANWAR2021)
        if (m["world_size"], m["global_batch_size"]) == (world_size, batch)
        and math.isclose(m["one_way_delay_s"], delay_ms / 1000)
    ]
    return found


def test_an_accuracy_above_1_is_flagged_and_left_out_but_not_the_time_beside_it() -> None:
    row = anwar(2, 2560, 40)
    assert row["accuracy"] is None
    assert row["step_time_s"] == 0.708
    assert [flag.kind for flag in row.flags] == [FlagKind.IMPOSSIBLE]
    assert "2.1095" in row.flags[0].message
    assert row.printed["accuracy"] == "2.1095"


def test_running_out_of_memory_is_a_result() -> None:
    row = anwar(1, 64000)
    assert (row.status, row["step_time_s"], row["time_per_epoch_s"]) == (
        "out_of_memory",
        None,
        None,
    )
    assert [m.status for m in measurements(ANWAR2021)].count("ok") == 113


def test_of_a_step_that_does_not_fit_its_epoch_the_epoch_is_used() -> None:
    row = anwar(1, 192)
    assert (row["step_time_s"], row["time_per_epoch_s"], row["steps_per_epoch"]) == (0.08, 4, 50)
    assert [flag.kind for flag in row.flags] == [FlagKind.CONTRADICTORY]
    assert "0.73" in row.flags[0].message


def test_an_epoch_is_70_steps_but_50_of_one_machine_at_small_batches() -> None:
    short = {
        (m["world_size"], m["global_batch_size"])
        for m in measurements(ANWAR2021)
        if m["steps_per_epoch"] == 50
    }
    assert short == {(1, 6400), (1, 2560), (1, 1280), (1, 192)}
    assert {m["steps_per_epoch"] for m in measurements(ANWAR2021)} == {50, 70}


@pytest.mark.parametrize(
    ("row", "step_time_s"),
    [
        (anwar(4, 32000), 220 / 70),  # printed as 3 s
        (anwar(4, 6400), 0.815),  # finer than 57 s an epoch
        (anwar(4, 1280, 60), 316.5 / 70),
        (anwar(1, 6400), 96 / 50),
    ],
)
def test_the_finer_of_two_printed_times_gives_the_step_time(
    row: ImportedMeasurement, step_time_s: float
) -> None:
    assert row["step_time_s"] == pytest.approx(step_time_s)


def test_both_printed_times_of_a_row_agree_within_a_tenth_unless_flagged() -> None:
    for m in measurements(ANWAR2021):
        if m["time_per_epoch_s"] and m["step_time_s"] and m["steps_per_epoch"]:
            assert m["step_time_s"] * m["steps_per_epoch"] == pytest.approx(
                m["time_per_epoch_s"], rel=0.1
            )


def test_doubtful_values_are_noted_and_kept() -> None:
    noted = [m for m in measurements(ANWAR2021) if m.notes]
    assert [(m["world_size"], m["global_batch_size"]) for m in noted] == [
        (4, 2560),
        (4, 192),
        (3, 32000),
    ]
    assert noted[0]["accuracy"] == 0.1354
    assert noted[1]["time_per_epoch_s"] == 54


def test_one_machine_is_faster_than_every_gang_in_17_cells_with_a_delay() -> None:
    """As the analysis of the published epochs says: up to 12.75 times."""
    alone = {m["global_batch_size"]: m["time_per_epoch_s"] for m in measurements(ANWAR2021)[-6:]}
    gangs: dict[tuple[int, float], float] = {}
    for m in measurements(ANWAR2021):
        if m["world_size"] > 1 and m["one_way_delay_s"] > 0:
            assert m["time_per_epoch_s"] is not None
            cell = (m["global_batch_size"], m["one_way_delay_s"])
            gangs[cell] = min(gangs.get(cell, math.inf), m["time_per_epoch_s"])
    ratios = [gang / (alone[batch] or math.inf) for (batch, _), gang in gangs.items()]
    assert sum(ratio > 1 for ratio in ratios) == 17
    assert max(ratios) == 12.75


# --- graur2019 --------------------------------------------------------------------------------


def test_a_step_takes_the_whole_clusters_batch_over_its_throughput() -> None:
    [row] = [m for m in measurements(GRAUR2019) if m.row_number == 14]
    assert (row["world_size"], row["global_batch_size"]) == (2, 64)
    assert row["step_time_s"] == pytest.approx(64 / 26.615)
    assert row.throughput_examples_per_s == pytest.approx(26.615)
    assert (row["network"], row["placement"]) == ("ethernet_1g", "hard")
    assert row["training_pass"] == TrainingPass.FORWARD.value


def test_what_is_printed_twice_is_measured_once_with_both_tables() -> None:
    read = read_publication(GRAUR2019)
    assert (read.row_count, read.repeated_count) == (295, 30)
    tables = [m.printed["tables"] for m in read.measurements]
    assert tables.count(["A.3", "B.2"]) == 2
    assert tables.count(["A.1", "A.8"]) == 2


def test_one_node_has_no_network_and_its_other_values_are_repetitions() -> None:
    alone = [m for m in measurements(GRAUR2019) if m["world_size"] == 1]
    assert {m["network"] for m in alone} == {None}
    repeated = [
        m.printed["images_per_second"]
        for m in alone
        if (m["strategy"], m["placement"], m["global_batch_size"]) == ("ps_collocated", "hard", 32)
        and m["training_pass"] == TrainingPass.FORWARD.value
    ]
    assert repeated == ["14.6", "13.31", "13.23"]


def test_a_placement_that_does_not_apply_is_none() -> None:
    assert {m["placement"] for m in measurements(GRAUR2019) if m.framework == "caffe2"} == {None}


def test_cells_that_contradict_their_neighbours_are_noted() -> None:
    noted = {m.row_number: m.notes for m in measurements(GRAUR2019) if m.notes}
    assert set(noted) == {37, 38, 39, 51, 75, 76, 102, 143, 144, 145, 146}

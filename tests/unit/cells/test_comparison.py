"""Two sweeps side by side: what is paired, and what stands alone."""

from __future__ import annotations

import dataclasses

from farm.cells.comparison import by_difference, compare_sweeps
from farm.configuration.sweep import Precision
from tests.stored.sweep_cells import cell, table


def test_equal_configurations_are_paired_whatever_their_length() -> None:
    a = table(cell(0.1, 0.1, 0.1), cell(0.2, world_size=2))
    b = table(
        cell(0.2, 0.2, 0.2, steps=None, epochs=2, label_pairs=(("rack", "b"),)),
        cell(0.3, world_size=4),
    )
    found = compare_sweeps(a, b)
    [pair] = found.pairs
    assert pair.ratio is not None
    assert round(pair.ratio.ratio, 9) == 2
    assert pair.ratio.is_beyond_noise
    assert [line.configuration["world_size"] for line in found.only_a] == [2]
    assert [line.configuration["world_size"] for line in found.only_b] == [4]
    assert (found.judged_count, found.differing_count) == (1, 1)


def test_of_few_repetitions_nothing_is_said() -> None:
    found = compare_sweeps(table(cell(0.1)), table(cell(0.2)))
    [pair] = found.pairs
    assert pair.ratio is not None
    assert pair.ratio.is_beyond_noise is None
    assert (found.judged_count, found.differing_count) == (0, 0)


def test_what_was_not_measured_in_both_has_no_ratio() -> None:
    [pair] = compare_sweeps(table(cell(0.1)), table(cell())).pairs
    assert pair.ratio is None


def test_cells_that_differ_in_their_length_alone_stay_apart() -> None:
    a = table(cell(0.1), cell(0.2, steps=None, epochs=5))
    b = table(cell(0.1), cell(0.2, steps=None, epochs=5))
    found = compare_sweeps(a, b)
    assert len(found.pairs) == 2
    assert [pair.ratio.ratio for pair in found.pairs if pair.ratio] == [1.0, 1.0]


def test_other_hardware_is_marked() -> None:
    [pair] = compare_sweeps(table(cell(0.1)), table(cell(0.1, fingerprint="y"))).pairs
    assert pair.is_other_hardware
    [pair] = compare_sweeps(table(cell(0.1)), table(cell())).pairs
    assert not pair.is_other_hardware


def test_the_most_different_come_first_and_the_unknown_last() -> None:
    a = table(
        cell(0.1, 0.1, 0.1),
        cell(0.1, 0.1, 0.1, world_size=2),
        cell(0.1, world_size=4),
        cell(0.1, world_size=8),
        cell(0.1, 0.1, 0.1, world_size=16),
    )
    b = table(
        cell(0.1, 0.1, 0.1),
        cell(0.15, 0.15, 0.15, world_size=2),
        cell(0.9, world_size=4),
        cell(world_size=8),
        cell(0.02, 0.02, 0.02, world_size=16),
    )
    ordered = by_difference(compare_sweeps(a, b).pairs)
    assert [pair.a.configuration["world_size"] for pair in ordered] == [16, 2, 4, 1, 8]


def test_pairs_of_unchanged_cells_are_those_of_before() -> None:
    a = table(cell(0.1, 0.1, 0.1), cell(0.2, 0.2, 0.2, world_size=2))
    b = table(cell(0.1, 0.1, 0.1), cell(0.2, 0.2, 0.2, world_size=2))
    first = compare_sweeps(a, b)
    later = dataclasses.replace(b, lines=[b.lines[0], table(cell(0.4, world_size=2)).lines[0]])
    found = compare_sweeps(a, later, before=first)
    assert found == compare_sweeps(a, later)
    assert found.pairs[0] is first.pairs[0]
    other_test = dataclasses.replace(b, precision=Precision(target_ratio=0.05, max_repetitions=9))
    assert compare_sweeps(a, other_test, before=first) == compare_sweeps(a, other_test)

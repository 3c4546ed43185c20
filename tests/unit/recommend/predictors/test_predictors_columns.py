"""Configurations as columns, and rows that are looked up by number."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from farm.recommend.predictors.columns import NUMERIC_FEATURES, FeatureColumns
from farm.recommend.predictors.neighbours import Numbering
from tests.truths.synthetic_steps import configuration


def test_configurations_that_differ_in_batch_and_network_alone_are_one_family() -> None:
    gang = configuration(2, 64, 0.02)
    others = [
        dataclasses.replace(gang, global_batch_size=128),
        dataclasses.replace(gang, packet_loss_ratio=0.01),
    ]
    columns = FeatureColumns.of(
        [gang, configuration(4, 64), *others, configuration(2, 64, strategy="ps")]
    )
    assert columns.family_of.tolist() == [0, 1, 0, 0, 2]
    assert columns.world_sizes.tolist() == [2, 4, 2, 2, 2]
    assert columns.replica_batch_sizes.tolist() == [32, 16, 64, 32, 32]


def test_a_bandwidth_is_seconds_per_byte_and_no_limit_is_none() -> None:
    limited = configuration(2, 64, bandwidth_bytes_per_s=4e6)
    columns = FeatureColumns.of([configuration(2, 64), limited])
    assert columns.condition("bandwidth_bytes_per_s").tolist() == [0.0, 2.5e-7]


def test_one_machine_has_no_network_and_a_server_beside_it_has_one() -> None:
    alone = dataclasses.replace(configuration(1, 64), one_way_delay_s=0.02, network="far")
    served = dataclasses.replace(alone, server_count=1)
    columns = FeatureColumns.of([alone, configuration(1, 64), served])
    assert columns.family_of.tolist() == [0, 0, 1]
    assert columns.are_gangs.tolist() == [False, False, True]
    assert columns.condition("one_way_delay_s").tolist() == [0.0, 0.0, 0.02]


def test_no_configuration_is_no_row() -> None:
    columns = FeatureColumns.of([])
    assert len(columns) == 0
    assert columns.places.shape == (0, len(NUMERIC_FEATURES))
    assert not columns.are_gangs.any()


@pytest.mark.parametrize(
    ("row", "number"),
    [((1, 5), 0), ((1, 7), 1), ((2, 5), 2), ((2, 7), -1), ((1, 6), -1), ((9, 5), -1), ((0, 5), -1)],
)
def test_rows_are_known_by_all_of_their_columns(row: tuple[int, int], number: int) -> None:
    rows = np.array([(2, 5), (1, 7), (1, 5), (1, 7)], dtype=float)
    assert Numbering.of(rows).numbers(np.array([row], dtype=float)).tolist() == [number]


def test_of_no_rows_none_is_known() -> None:
    nothing = Numbering.of(np.zeros((0, 2)))
    assert nothing.numbers(np.ones((3, 2))).tolist() == [-1, -1, -1]

"""Covariances and what is learned of them, against what takes longer and is plain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from farm.recommend.configuration import Configuration
from farm.recommend.predictors.columns import FeatureColumns
from farm.recommend.predictors.gaussian_process import BY_PART, SMOOTH, GaussianProcessFit
from farm.recommend.predictors.kernel import Component, Kernel
from farm.recommend.predictors.physical import PARTS
from farm.recommend.predictors.points import Distances, Frame, Points
from tests.truths.synthetic_steps import grid

CONFIGURATIONS = [
    *grid(world_sizes=(1, 2, 4), batches=(64, 256), delays_s=(0.0, 0.02)),
    *grid(world_sizes=(2, 4), batches=(64, 512), delays_s=(0.02,), strategy="ps", server_count=1),
]

kernels = pytest.mark.parametrize("components", [SMOOTH, BY_PART], ids=["smooth", "by part"])


def points_of(configurations: Sequence[Configuration], frame: Frame) -> Points:
    """With shares that differ from one to the next."""
    columns = FeatureColumns.of(configurations)
    shares = np.arange(len(columns) * len(PARTS), dtype=np.float64) % 7
    return frame.points(columns, 1.0 + shares.reshape(-1, len(PARTS)))


def frame_of(configurations: Sequence[Configuration]) -> Frame:
    return Frame.of(FeatureColumns.of(configurations))


@kernels
def test_slopes_are_those_of_the_covariances(components: Sequence[Component]) -> None:
    frame = frame_of(CONFIGURATIONS)
    kernel, points = Kernel(components, frame), points_of(CONFIGURATIONS, frame)
    draw = np.random.default_rng(1)
    parameters = kernel.start() + draw.normal(0, 0.2, len(kernel.start()))
    change = draw.normal(0, 1, (len(points), len(points)))
    known, slopes_of = kernel.with_slopes(parameters, Distances.of(points, points))
    assert known == pytest.approx(kernel.between(parameters, points, points))
    step = 1e-5
    expected = [
        np.sum(change * (kernel.between(parameters + step * e, points, points) - known)) / step
        for e in np.eye(len(parameters))
    ]
    assert slopes_of(change) == pytest.approx(expected, rel=1e-3, abs=1e-4)


@kernels
def test_variances_are_the_diagonal_of_the_covariances(components: Sequence[Component]) -> None:
    frame = frame_of(CONFIGURATIONS)
    kernel, points = Kernel(components, frame), points_of(CONFIGURATIONS, frame)
    known = kernel.between(kernel.start(), points, points)
    assert kernel.variances(kernel.start(), points) == pytest.approx(np.diag(known))


@kernels
def test_some_points_are_as_far_apart_as_they_are_among_all(
    components: Sequence[Component],
) -> None:
    frame = frame_of(CONFIGURATIONS)
    kernel, points = Kernel(components, frame), points_of(CONFIGURATIONS, frame)
    rows = np.array([7, 2, 11])
    known = kernel.between(kernel.start(), points, points)
    some = kernel.between(kernel.start(), points.at(rows), points)
    assert some == pytest.approx(known[rows])


def test_sums_over_families_are_those_over_their_points() -> None:
    frame = frame_of(CONFIGURATIONS)
    these = points_of(CONFIGURATIONS[::-1], frame)
    those = points_of(CONFIGURATIONS[2:9], frame)
    distances = Distances.of(these, those)
    values = np.random.default_rng(1).normal(0, 1, distances.shape)
    sums = distances.gathered(values)
    for i, row in enumerate(sums):
        for j, found in enumerate(row):
            pairs = np.ix_(these.family_of == i, those.family_of == j)
            assert found == pytest.approx(values[pairs].sum())


def test_a_process_says_the_same_of_its_points_as_of_any_and_of_many_as_of_few() -> None:
    configurations = grid(batches=range(32, 352, 16))
    frame = frame_of(configurations)
    points = points_of(configurations, frame)
    errors = np.sin(points.numbers.sum(axis=0))
    weights = np.ones(len(points))
    parameters = np.append(Kernel(SMOOTH, frame).start(), np.log(0.03))
    process = GaussianProcessFit(
        Kernel(SMOOTH, frame), points, errors, weights=weights, parameters=parameters
    )
    found = process.log_errors(points)
    assert len(found) > 200  # more than are worked out at a time
    assert found == pytest.approx(process.own_log_errors, abs=1e-9)
    assert found == pytest.approx(process.normals(points)[0], abs=1e-9)

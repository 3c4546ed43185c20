"""What a prediction is still off by, between measurements that differ on one axis."""

from __future__ import annotations

import numpy as np
import pytest

from farm.importers.anwar2021 import ANWAR2021
from farm.recommend.configuration import Configuration
from farm.recommend.predictors.columns import FeatureColumns, cells_of
from farm.recommend.predictors.ensemble import Ensemble
from farm.recommend.predictors.neighbours import Lines
from tests.truths.synthetic_steps import configuration, measure
from tests.unit.recommend.predictors.test_predictors_published import observations_of


def errors_between(known: dict[Configuration, float], *requested: Configuration) -> list[float]:
    """Interpolate these errors along conditions alone."""
    cells = cells_of(measure(list(known), time_s=lambda c: 1.0))
    errors = np.array([known[c] for c in cells.configurations])
    return [
        float(e)
        for e in Lines(cells, errors, only_conditions=True).log_errors(FeatureColumns.of(requested))
    ]


def test_between_two_delays_it_is_a_straight_line() -> None:
    known = {configuration(4, 256, 0.0): 0.1, configuration(4, 256, 0.04): 0.5}
    requested = [configuration(4, 256, d) for d in (0.0, 0.01, 0.04)]
    assert errors_between(known, *requested) == pytest.approx([0.1, 0.2, 0.5])


def test_beyond_the_last_delay_it_stays_as_it_was() -> None:
    known = {configuration(4, 256, 0.0): 0.1, configuration(4, 256, 0.04): 0.5}
    assert errors_between(known, configuration(4, 256, 0.1)) == pytest.approx([0.5])


def test_other_batches_and_one_machine_are_on_no_such_line() -> None:
    known = {configuration(4, b, d): 0.5 for b in (256, 1024) for d in (0.0, 0.04, 0.02)}
    requested = [configuration(4, 512, 0.02), configuration(2, 256, 0.02), configuration(1, 256)]
    assert errors_between(known, *requested) == [0.0, 0.0, 0.0]


def test_delays_that_differ_in_their_last_bits_are_one() -> None:
    known = {configuration(4, 256, 0.3): 0.1, configuration(4, 256, 0.04): 0.5}
    assert errors_between(known, configuration(4, 256, 0.1 + 0.2)) == [0.1]


def test_of_measurements_that_differ_in_such_bits_alone_the_last_one_counts() -> None:
    known = {configuration(4, 256, 0.3): 0.1, configuration(4, 256, 0.1 + 0.2): 0.2}
    known[configuration(4, 256, 0.5)] = 0.5
    requested = [configuration(4, 256, d) for d in (0.2, 0.3, 0.4)]
    assert errors_between(known, *requested) == pytest.approx([0.2, 0.2, 0.35])


def test_all_axes_together_say_the_mean_of_what_each_says() -> None:
    """At 4 machines, 100 examples and 20 ms; no weight is given but that of the axes."""
    known = {
        configuration(4, 50, 0.02): 0.2,  # the same but for the batch size
        configuration(4, 200, 0.02): 0.4,
        configuration(2, 100, 0.02): 0.8,  # the same global batch size
        configuration(2, 50, 0.02): 1.6,  # the same per replica
        configuration(8, 200, 0.02): 3.2,
        configuration(4, 100, 0.01): 6.4,  # another delay
        configuration(4, 100, 0.0, strategy="ps"): 12.8,  # on no line with it
        configuration(4, 100, 0.02, network="far"): 25.6,
    }
    cells = cells_of(measure(list(known), time_s=lambda c: 1.0))
    errors = np.array([known[c] for c in cells.configurations])
    requested = FeatureColumns.of(
        [configuration(4, 100, 0.02), configuration(4, 101, 0.03, strategy="p2")]
    )
    # Halfway in ln(batch); 1.6 + (3.2 - 1.6) / 3 in world size; beyond the last a tenth counts.
    weights = {0.3: 1.0, 1.6 + 1.6 / 3: 0.5, 0.8: 0.05, 6.4: 0.1}
    mean = sum(error * weight for error, weight in weights.items()) / sum(weights.values())
    assert Lines(cells, errors).log_errors(requested) == pytest.approx([mean, 0.0])


def test_a_delay_that_only_large_batches_feel_is_followed() -> None:
    """Below 60 ms small batches on 4 machines hardly slow down, large ones at once: by 40 ms they
    take twice as long. Of 32,000 examples at 20 ms, 3.93 s on 3 machines are less than 4 take, and
    whoever takes the large batches for outliers answers 4.
    """
    observations = observations_of(ANWAR2021)

    def is_asked(c: Configuration) -> bool:
        size = (c.world_size, c.global_batch_size)
        return size == (4, 32000) and c.one_way_delay_s == pytest.approx(0.02)

    [held_out] = [o for o in observations if is_asked(o.configuration)]
    [found] = (
        Ensemble()
        .fit([o for o in observations if o is not held_out])
        .predict([held_out.configuration])
    )
    assert found.step_time_s is not None
    assert 3.93 < found.step_time_s < 1.1 * held_out.step_time_s

import pytest

from farm.configuration.learning_rate import REFERENCE_BATCH_SIZE, scaled_learning_rate
from farm.configuration.spec import LearningRateScaling


@pytest.mark.parametrize(
    ("scaling", "at_a_quarter", "at_four_times"),
    [
        (LearningRateScaling.NONE, 0.1, 0.1),
        (LearningRateScaling.LINEAR, 0.025, 0.4),
        (LearningRateScaling.SQRT, 0.05, 0.2),
    ],
)
def test_a_rate_follows_the_batch_from_the_reference_on(
    scaling: LearningRateScaling, at_a_quarter: float, at_four_times: float
) -> None:
    for factor, expected in ((0.25, at_a_quarter), (1, 0.1), (4, at_four_times)):
        size = int(REFERENCE_BATCH_SIZE * factor)
        found = scaled_learning_rate(0.1, scaling, global_batch_size=size)
        assert found == pytest.approx(expected)

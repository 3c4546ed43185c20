import pytest

from farm.statistics import student_quantile


@pytest.mark.parametrize(
    ("ratio", "degrees", "tabulated"),
    [
        (0.95, 1, 6.31375),
        (0.95, 2, 2.91999),
        (0.975, 2, 4.30265),
        (0.985, 2, 5.64278),
        (0.95, 3, 2.35336),
        (0.975, 9, 2.26216),
        (0.985, 9, 2.57380),
        (0.95, 10, 1.81246),
        (0.9, 5, 1.47588),
        (0.975, 30, 2.04227),
        (0.975, 31, 2.03951),
        (0.95, 100, 1.66023),
    ],
)
def test_the_quantile_agrees_with_the_tables_of_students_distribution(
    ratio: float, degrees: int, tabulated: float
) -> None:
    assert student_quantile(ratio, degrees) == pytest.approx(tabulated, rel=5e-6)
    assert student_quantile(1 - ratio, degrees) == pytest.approx(-tabulated, rel=5e-6)

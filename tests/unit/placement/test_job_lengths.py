import pytest

from farm.configuration.spec import JobSpec
from farm.placement.progress import MeasuredLength, expected_lengths_s
from tests.factories import job_spec

SHORT = job_spec(steps=90, warmup_step_count=10, epochs=None)
LONG = job_spec(steps=990, warmup_step_count=10, epochs=None)


def measured(spec: JobSpec, length_s: float) -> MeasuredLength:
    return MeasuredLength(cell_hash=spec.cell_hash, spec=spec, length_s=length_s)


def expected(*known: MeasuredLength, predicted_s: float | None = None) -> float:
    key = LONG.cell_hash
    predicted = {} if predicted_s is None else {key: predicted_s}
    return expected_lengths_s({key: LONG}, measured=known, predicted_s=predicted)[key]


def test_what_the_same_cell_took_counts_before_what_is_predicted() -> None:
    known = [measured(LONG, 30.0), measured(LONG, 50.0)]
    assert expected(*known, predicted_s=7.0) == 40.0


def test_what_is_predicted_counts_before_what_other_cells_took() -> None:
    assert expected(measured(SHORT, 15.0), predicted_s=7.0) == 7.0


def test_other_cells_tell_by_their_steps_beside_the_start() -> None:
    assert expected(measured(SHORT, 15.0)) == pytest.approx(5.0 + 1000 * 0.1)


def test_of_nothing_known_more_steps_are_longer() -> None:
    found = expected_lengths_s(
        {spec.cell_hash: spec for spec in (SHORT, LONG)}, measured=(), predicted_s={}
    )
    assert found[SHORT.cell_hash] < found[LONG.cell_hash]

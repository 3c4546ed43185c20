import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from farm.recommend.cache import fit_files
from farm.recommend.cache.fits import MAX_MODELS, Fits
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.contracts import StepTimeModel
from tests.fakes.step_times import FakeStepTimes

ASKED = Configuration(strategy="ring", world_size=2, global_batch_size=64)
_LONG_S = 20.0  # far more than a thread needs to begin


def observations(count: int) -> tuple[Observation, ...]:
    return tuple(
        Observation(
            measurement_id=n,
            configuration=Configuration(world_size=1, global_batch_size=16 * n),
            step_time_s=0.16 * n,
        )
        for n in range(1, count + 1)
    )


class Counting:
    """Fits at once, or as soon as `gate` opens, and counts."""

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.counts: list[int] = []
        self.done = threading.Semaphore(0)
        self._gate = gate

    def __call__(self, known: Sequence[Observation]) -> StepTimeModel:
        if self._gate is not None:
            assert self._gate.wait(_LONG_S)
        self.counts.append(len(known))
        self.done.release()
        return FakeStepTimes.fit(known)


def failing(error: Exception) -> Callable[[Sequence[Observation]], StepTimeModel]:
    def fit(known: Sequence[Observation]) -> StepTimeModel:
        del known
        raise error

    return fit


def test_the_same_measurements_are_fitted_once() -> None:
    fit = Counting()
    fits = Fits(fit)
    for _ in range(3):
        fitted = fits.model_of("subject", observations(3))
        assert fitted.model is not None
        assert (fitted.measurement_count, fitted.is_current) == (3, True)
    assert fits.model_of("subject", observations(4)).measurement_count == 4
    assert fit.counts == [3, 4]


def test_the_order_of_the_measurements_does_not_matter() -> None:
    fit = Counting()
    fits = Fits(fit)
    fits.model_of("subject", observations(3))
    fits.model_of("subject", observations(3)[::-1])
    assert fit.counts == [3]


def test_another_process_finds_the_model_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit_files, "PACKAGES", (*fit_files.PACKAGES, "tests."))
    first, second = Counting(), Counting()
    written = Fits(first, folder=tmp_path / "fits").model_of("subject", observations(3))
    read = Fits(second, folder=tmp_path / "fits").model_of("subject", observations(3))
    assert (first.counts, second.counts) == ([3], [])
    assert written.model is not None
    assert read.model is not None
    assert read.model.predict([ASKED]) == written.model.predict([ASKED])


def test_what_cannot_be_imported_is_a_reason_not_an_error() -> None:
    fitted = Fits(failing(ModuleNotFoundError(name="sklearn"))).model_of("s", observations(3))
    assert fitted.model is None
    assert fitted.lacking_because == "predictions need sklearn: pip install 'benchfarm[ml]'"


def test_numbers_that_no_fit_is_made_for_are_a_reason_not_an_error() -> None:
    fitted = Fits(failing(ValueError("infs or NaNs"))).model_of("subject", observations(3))
    assert fitted.model is None
    assert fitted.lacking_because == "predictions failed (infs or NaNs)"


def test_a_command_shows_a_fit_that_fails() -> None:
    with pytest.raises(KeyError):
        Fits(failing(KeyError())).model_of("subject", observations(3))


def test_a_server_goes_on_without_a_fit_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    fits = Fits(failing(KeyError()), in_background=True)
    for _ in range(2):
        assert fits.model_of("subject", observations(3)).model is None
    assert [record.message for record in caplog.records] == ["a fit failed"]


def test_a_server_waits_for_its_first_model_only_if_it_may() -> None:
    gate = threading.Event()
    fit = Counting(gate)
    fits = Fits(fit, in_background=True)
    lacking = fits.model_of("subject", observations(3), may_wait=False)
    assert lacking.model is None
    assert lacking.lacking_because == "predictions are being prepared: ask again"
    gate.set()
    assert fits.model_of("subject", observations(3)).model is not None
    assert fit.counts == [3]


def test_while_a_server_fits_again_the_last_model_answers() -> None:
    gate = threading.Event()
    gate.set()
    fit = Counting(gate)
    fits = Fits(fit, in_background=True)
    assert fits.model_of("subject", observations(3)).is_current
    gate.clear()
    stale = fits.model_of("subject", observations(4))
    assert (stale.measurement_count, stale.is_current) == (3, False)
    assert stale.model is not None
    gate.set()
    assert fit.done.acquire(timeout=_LONG_S)
    assert fit.done.acquire(timeout=_LONG_S)
    renewed = fits.model_of("another", observations(4))
    assert (renewed.measurement_count, renewed.is_current) == (4, True)
    assert fit.counts == [3, 4]


def test_only_the_newest_measurements_of_a_subject_are_fitted() -> None:
    gate = threading.Event()
    fit = Counting(gate)
    fits = Fits(fit, in_background=True)
    fits.model_of("busy", observations(2), may_wait=False)
    for count in (3, 4, 5):
        fits.model_of("subject", observations(count), may_wait=False)
    gate.set()
    for _ in range(2):
        assert fit.done.acquire(timeout=_LONG_S)
    assert fits.model_of("subject", observations(5)).is_current
    assert fit.counts == [2, 5]


def test_models_that_nobody_asks_for_go() -> None:
    fit = Counting()
    fits = Fits(fit)
    for count in range(1, MAX_MODELS + 2):
        fits.model_of(count, observations(count))
    fits.model_of(MAX_MODELS + 1, observations(MAX_MODELS + 1))
    fits.model_of(1, observations(1))
    assert fit.counts == [*range(1, MAX_MODELS + 2), 1]


def test_who_does_not_wait_is_told_that_there_will_be_more() -> None:
    gate = threading.Event()
    fit = Counting(gate)
    fits = Fits(fit, in_background=True)
    first = fits.model_of("subject", observations(3), may_wait=False)
    assert (first.model, first.is_awaited) == (None, True)
    gate.set()
    assert not fits.model_of("subject", observations(3)).is_awaited
    assert fits.model_of("subject", observations(4), may_wait=False).is_awaited

"""The peak rate of a rank, on devices whose speed is known."""

from __future__ import annotations

import itertools

import pytest

from farm.trainers.contracts import MatrixProduct
from farm.trainers.loop.peak import peak_flop_per_s


class Device:
    """Computes at a rate, takes a time to start a run, and is held up in most runs."""

    def __init__(self, flop_per_s: float, *, start_s: float = 0.0, held_up_s: float = 0.0) -> None:
        self._flop_per_s = flop_per_s
        self._start_s = start_s
        self._held_up = itertools.cycle([held_up_s] * 4 + [0.0])
        self.now_s = 0.0
        self.sides: list[int] = []
        self.run_s: list[float] = []

    def product(self, side: int) -> MatrixProduct:
        self.sides.append(side)
        flop = 2.0 * side**3

        def run(count: int) -> None:
            time_s = self._start_s + count * flop / self._flop_per_s + next(self._held_up)
            self.now_s += time_s
            self.run_s.append(time_s)

        return MatrixProduct(run=run, flop=flop)

    def peak(self) -> float:
        return peak_flop_per_s(self.product, clock=lambda: self.now_s)


@pytest.mark.parametrize("flop_per_s", [1e9, 1e11, 1e13, 1e15])
def test_the_peak_is_found_on_slow_and_fast_devices_in_a_fraction_of_a_second(
    flop_per_s: float,
) -> None:
    device = Device(flop_per_s, start_s=2e-5)
    assert device.peak() == pytest.approx(flop_per_s, rel=0.05)
    assert device.now_s < 0.5


def test_runs_that_were_held_up_do_not_count() -> None:
    assert Device(1e11, held_up_s=0.02).peak() == pytest.approx(1e11)


def test_matrices_are_no_larger_than_it_takes() -> None:
    slow, fast = Device(1e11), Device(1e15)
    slow.peak()
    fast.peak()
    assert slow.sides == [256, 512]  # the second takes 2.7 ms
    assert max(fast.sides) == 8192

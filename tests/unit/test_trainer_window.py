"""What the interface carried while the window was open."""

from __future__ import annotations

from pathlib import Path

import pytest

from farm.trainers.window import InterfaceBytes, TimedWindow, read_interface


class Counters:
    """A folder like /sys/class/net with one interface."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "eth7" / "statistics").mkdir(parents=True)
        self.set(0, 0)

    def set(self, rx_bytes: int, tx_bytes: int) -> None:
        for name, value in (("rx_bytes", rx_bytes), ("tx_bytes", tx_bytes)):
            (self.folder / "eth7" / "statistics" / name).write_text(f"{value}\n")


@pytest.fixture
def counters(tmp_path: Path) -> Counters:
    return Counters(tmp_path)


def test_only_what_passes_while_it_is_open_counts(counters: Counters) -> None:
    window = TimedWindow("eth7", statistics=counters.folder)
    for before, after in ((100, 110), (5000, 5003)):
        counters.set(before, 2 * before)
        window.open()
        counters.set(after, 2 * after)
        window.close()
    assert window.traffic == InterfaceBytes(rx_bytes=13, tx_bytes=26)
    assert 0.0 < window.duration_s <= window.span_s


def test_a_counter_that_went_back_gives_nothing_and_not_a_wrong_number(counters: Counters) -> None:
    window = TimedWindow("eth7", statistics=counters.folder)
    counters.set(100, 100)
    window.open()
    counters.set(200, 99)
    window.close()
    window.open()
    window.close()
    assert window.traffic is None


def test_an_unknown_interface_gives_nothing(counters: Counters) -> None:
    assert read_interface("eth8", statistics=counters.folder) is None
    window = TimedWindow("eth8", statistics=counters.folder)
    window.open()
    window.close()
    assert window.traffic is None


def test_the_loopback_interface_of_this_machine_can_be_read() -> None:
    assert read_interface("lo") is not None

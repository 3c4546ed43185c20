"""How a wire is spoken to, with a program in its place that answers as a bad one might."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from farm.configuration.spec import NetworkProfile
from farm.errors import EmulationFailed
from farm.lab.wirefilter import WireDirection, Wirefilter

pytestmark = pytest.mark.alone

PROMPT = b"\nVDEwf$ "
DONE = b"1000 Success\n" + PROMPT
PROFILE = NetworkProfile(one_way_delay_s=0.02, packet_loss_ratio=0.01)


def info(*, delay: str = "20+0U", mtu: str = "0") -> bytes:
    """What the real one shows, of version 2.3.2."""
    lines = [
        "0000 DATA END WITH '.'",
        "WireFilter: bidirectional",
        "Loss   L->R 1+0U   R->L 0+0U",
        "Lburst L->R 0+0U   R->L 0+0U",
        f"Delay  L->R {delay}   R->L 1.5e+06+0U",
        "Bandw  L->R 1.375e+07+0U   R->L 1.31072e+06+0U",
        f"MTU    L->R {mtu}     R->L {mtu}   ",
        "Cap.   L->R 3.025e+06+0U   R->L 0+0U",
        ".",
    ]
    return "\n".join(lines).encode() + b"\n" + DONE


@contextmanager
def wire(path: Path, answers: dict[str, bytes], *, chunk: int = 4096) -> Iterator[list[str]]:
    """Answer commands, some bytes at a time; yields what was asked. Others succeed silently."""
    heard: list[str] = []

    def speak(connection: socket.socket, reply: bytes) -> None:
        for start in range(0, len(reply), chunk):
            connection.sendall(reply[start : start + chunk])
            time.sleep(0)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile() as lines:
            speak(connection, b"\nVDE wirefilter V.2.3.2" + PROMPT)
            for line in lines:
                heard.append(line.strip())
                speak(connection, answers.get(line.strip(), DONE))

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield heard
        thread.join(timeout=60)
        assert not thread.is_alive()


def test_each_command_waits_for_the_end_of_the_answer_before(tmp_path: Path) -> None:
    path = tmp_path / "wire"
    with wire(path, {"showinfo": info()}, chunk=1) as heard:
        Wirefilter(path).apply(PROFILE, direction=WireDirection.TO_HOST)

    assert heard == [
        "delay LR 20",
        "loss LR 1",
        "bandwidth LR 13750000",
        "chanbufsize LR 3025000",
        "showinfo",
    ]


def test_a_value_that_was_not_taken_is_noticed(tmp_path: Path) -> None:
    # It says success to whatever it cannot read.
    with (
        wire(tmp_path / "wire", {"showinfo": info(delay="19+0U")}),
        pytest.raises(EmulationFailed, match="link wire: delay should be 20 and is 19"),
    ):
        Wirefilter(tmp_path / "wire").apply(PROFILE, direction=WireDirection.TO_HOST)


def test_a_wire_that_was_told_otherwise_meanwhile_is_noticed(tmp_path: Path) -> None:
    with wire(tmp_path / "as_told", {"showinfo": info()}) as heard:
        Wirefilter(tmp_path / "as_told").check(PROFILE, direction=WireDirection.TO_HOST)
    assert heard == ["showinfo"], "who looks changes nothing"
    with (
        wire(tmp_path / "wire", {"showinfo": info(delay="0+0U")}),
        pytest.raises(EmulationFailed, match="link wire: delay should be 20 and is 0"),
    ):
        Wirefilter(tmp_path / "wire").check(PROFILE, direction=WireDirection.TO_HOST)


def test_a_cut_that_was_not_taken_is_noticed(tmp_path: Path) -> None:
    with (
        wire(tmp_path / "wire", {"showinfo": info(mtu="0")}),
        pytest.raises(EmulationFailed, match="mtu should be 1 and is 0"),
    ):
        Wirefilter(tmp_path / "wire").cut()


def test_a_refused_command_is_named(tmp_path: Path) -> None:
    answers = {"loss LR 1": b"1038 Function not implemented\n" + PROMPT}
    with (
        wire(tmp_path / "wire", answers),
        pytest.raises(EmulationFailed, match="refused 'loss LR 1': 1038 Function not impl"),
    ):
        Wirefilter(tmp_path / "wire").apply(PROFILE, direction=WireDirection.TO_HOST)


def test_both_directions_are_read_apart_and_large_numbers_too(tmp_path: Path) -> None:
    with wire(tmp_path / "wire", {"showinfo": info()}):
        towards = Wirefilter(tmp_path / "wire").read(WireDirection.TO_HOST)
    (tmp_path / "wire").unlink()
    answers = {"showinfo": info().replace(b"R->L 1.5e+06", b"R->L 2.5e-01")}
    with wire(tmp_path / "wire", answers):
        away = Wirefilter(tmp_path / "wire").read(WireDirection.FROM_HOST)

    assert towards == PROFILE
    assert away == NetworkProfile(one_way_delay_s=0.00025, bandwidth_bytes_per_s=1_310_720)


def test_an_answer_of_another_program_is_no_measurement(tmp_path: Path) -> None:
    with (
        wire(tmp_path / "wire", {"showinfo": b"nothing\n" + DONE}),
        pytest.raises(EmulationFailed, match="says nothing of 'Delay'"),
    ):
        Wirefilter(tmp_path / "wire").read(WireDirection.TO_HOST)


def test_a_wire_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    with (
        wire(tmp_path / "wire", {"showinfo": b"0000 DATA END WITH '.'\n"}),
        pytest.raises(EmulationFailed, match=r"link wire does not answer at .*: timed out"),
    ):
        Wirefilter(tmp_path / "wire", timeout_s=0.2).read(WireDirection.TO_HOST)


def test_no_wire_at_all_is_named(tmp_path: Path) -> None:
    assert not Wirefilter(tmp_path / "wire").is_there
    with pytest.raises(EmulationFailed, match="No such file"):
        Wirefilter(tmp_path / "wire").heal()

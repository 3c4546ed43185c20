"""How long an answer waits for its client, and which one ends when too many wait."""

from __future__ import annotations

import socket
from typing import Any, cast

import pytest

from web import slow_clients
from web.slow_clients import (
    ANSWER_WITHIN_S,
    LEAST_BYTES_PER_S,
    Answer,
    ClientSocket,
    PendingResponses,
)

KERNEL_BYTES = 200_000


class Client:
    """The socket of a client that takes so many bytes a second, beyond what the kernel holds."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._limit_s: float | None = None
        self.now_s = 0.0
        self.taken_bytes = 0
        self.is_reset_at_its_end = False

    def clock(self) -> float:
        return self.now_s

    def gettimeout(self) -> float | None:
        return self._limit_s

    def settimeout(self, limit_s: float | None) -> None:
        self._limit_s = limit_s

    def setsockopt(self, *option: object) -> None:
        self.is_reset_at_its_end = True

    def send(self, piece: memoryview) -> int:
        room = int(KERNEL_BYTES + self.now_s * self._bytes_per_s) - self.taken_bytes
        if room <= 0:
            assert self._limit_s is not None
            self.now_s += self._limit_s
            raise TimeoutError
        count = min(room, len(piece))
        self.taken_bytes += count
        return count


def answer_to(
    client: Client, *, slow: PendingResponses | None = None, address: str = "a"
) -> Answer:
    return Answer(
        client,
        address=address,
        slow=slow or PendingResponses(most_of_an_address=None),
        clock=client.clock,
    )


def test_a_client_that_takes_its_answer_steadily_gets_all_of_it() -> None:
    client = Client(1.1 * LEAST_BYTES_PER_S)
    answer_to(client).sendall(bytes(5_000_000))
    assert client.taken_bytes == 5_000_000
    assert client.now_s > 10 * ANSWER_WITHIN_S
    assert not client.is_reset_at_its_end


@pytest.mark.parametrize("bytes_per_s", [0.0, 1.0, 0.5 * LEAST_BYTES_PER_S])
def test_one_that_takes_too_little_is_given_up(bytes_per_s: float) -> None:
    client = Client(bytes_per_s)
    with pytest.raises(BrokenPipeError):
        answer_to(client).sendall(bytes(5_000_000))
    assert client.now_s <= 2 * ANSWER_WITHIN_S + 1
    assert client.is_reset_at_its_end


def test_a_stream_whose_client_takes_what_comes_goes_on_for_hours() -> None:
    client = Client(1e9)
    stream = answer_to(client)
    for _ in range(2_000):
        client.now_s += 10
        stream.sendall(b"event: changed\n\n")


def slow_ones(slow: PendingResponses, addresses: str) -> list[Answer]:
    answers = [answer_to(Client(0), slow=slow, address=address) for address in addresses]
    for answer in answers:
        slow.add(answer)
    return answers


def test_of_an_address_with_too_many_slow_answers_the_oldest_end() -> None:
    answers = slow_ones(PendingResponses(most_of_an_address=2), "abaaab")
    assert [answer.is_given_up for answer in answers] == [True, False, True, False, False, False]


def test_of_too_many_slow_answers_the_oldest_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_clients, "MOST_SLOW_ANSWERS", 3)
    slow = PendingResponses(most_of_an_address=None)
    first, *_ = slow_ones(slow, "abcd")
    assert first.is_given_up
    with pytest.raises(BrokenPipeError):
        first.sendall(b"more")
    [second] = slow_ones(slow, "e")
    slow.discard(second)
    [third] = slow_ones(slow, "f")
    assert not third.is_given_up


def test_an_interim_answer_waits_no_longer_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_clients, "ANSWER_WITHIN_S", 0.0)
    slow = PendingResponses(most_of_an_address=None)
    sock: Any = ClientSocket(cast("socket.socket", Client(0.0)), peer=("a", 1), slow=slow)
    with pytest.raises(BrokenPipeError):
        sock.send(b"HTTP/1.1 100 Continue\r\n\r\n")

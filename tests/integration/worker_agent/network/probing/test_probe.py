"""The echo by which peers time their way here: for them, and not for whoever knocks."""

from __future__ import annotations

import socket
from contextlib import ExitStack, closing

import pytest

from worker_agent.network.probing.probe import EchoServer

pytestmark = pytest.mark.alone


def connect(place: tuple[str, int]) -> socket.socket:
    return socket.create_connection(place, timeout=60)


def is_answered(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"x")
        return connection.recv(1) == b"x"
    except ConnectionError:
        return False


def test_beyond_its_number_of_connections_it_sends_others_away_until_some_have_gone() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    place = listener.getsockname()
    with closing(EchoServer(listener, most_connections=3)), ExitStack() as stack:
        held = [stack.enter_context(connect(place)) for _ in range(3)]
        assert all(map(is_answered, held))
        with connect(place) as surplus:
            assert not is_answered(surplus)
        assert all(map(is_answered, held)), "those that were there first stay"

        held[0].shutdown(socket.SHUT_WR)
        assert held[0].recv(1) == b"", "it has noticed that this one has gone"
        with connect(place) as next_one:
            assert is_answered(next_one)

"""What an address holds beside its host may be a password: it goes to the receiver alone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from farm import log
from farm.store.engine import reading
from farm.store.notifications import list_deliveries
from tests.integration.notifications.receiver import Receiver
from tests.integration.notifications.test_notifier import Clock, Sender, ended_sweep


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().serving() as found:
        yield found


@pytest.mark.usefixtures("own_log")
@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_no_log_has_it(
    engine: sa.Engine, receiver: Receiver, level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log.configure(level)
    ended_sweep(engine, receiver.address)
    Sender(engine, Clock()).turn()
    logged = capsys.readouterr().err
    assert f"message sweep.finished to http://127.0.0.1:{receiver.port}/...: 204" in logged
    assert "secret" not in logged


def test_a_receiver_that_repeats_it_in_its_answer_does_not_spread_it(
    engine: sa.Engine, receiver: Receiver
) -> None:
    receiver.answer = lambda number: 404
    receiver.reason = "no /hook?key=secret"
    receiver.says = b"Cannot POST /hook?key=secret"
    ended_sweep(engine, receiver.address)
    Sender(engine, Clock()).turn()
    with reading(engine) as session:
        [one] = list_deliveries(session, limit=10)
    assert one.last_said == "404 Not Found"


def test_a_receiver_that_repeats_it_in_what_is_no_http_does_not_spread_it(
    engine: sa.Engine,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"Cannot POST /hook?key=secret\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        ended_sweep(engine, f"http://127.0.0.1:{listener.getsockname()[1]}/hook?key=secret")
        Sender(engine, Clock()).turn()
        thread.join()
    with reading(engine) as session:
        [one] = list_deliveries(session, limit=10)
    assert one.last_said == "the answer breaks off, or is not HTTP"

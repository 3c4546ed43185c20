"""Messages by Apprise: to services that are listed, at hosts that the operator names."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from farm import log
from farm.errors import InvalidSpec
from farm.notifications.addresses import (
    AllowedNetworks,
    check_address,
    check_reachable,
    masked,
    parse_allowed,
)
from farm.notifications.events import DeliveryState
from farm.notifications.services import send_by_service
from farm.store.engine import reading
from farm.store.notifications import list_deliveries
from tests.integration.notifications.receiver import Receiver
from tests.integration.notifications.test_notifier import Clock, Sender, ended_sweep, states

SLACK = "slack://TokenA123/B1234567/abcdefghijklmnopqrstuvwx"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().serving() as found:
        found.answer = lambda number: 200
        yield found


def test_a_message_arrives_at_a_service_and_again_after_a_failure(
    engine: sa.Engine, receiver: Receiver
) -> None:
    receiver.answer = lambda number: 500 if number == 1 else 200
    ended_sweep(engine, f"ntfy://127.0.0.1:{receiver.port}/s3cret-topic")
    clock = Clock()
    sender = Sender(engine, clock)
    sender.turn()
    assert states(engine) == [(DeliveryState.WAITING, 1)]
    clock.go_on(10)
    sender.turn()
    assert states(engine) == [(DeliveryState.DELIVERED, 2)]
    message = receiver.messages[-1]
    assert (message["topic"], message["title"]) == (
        "s3cret-topic",
        "Benchfarm: sweep.finished",
    )
    assert message["message"] == "sweep 1, mine: 1 of 1 job succeeded"


def test_a_name_mentions_nobody_and_hides_no_link(receiver: Receiver) -> None:
    address = f"ntfy://127.0.0.1:{receiver.port}/topic"
    text = "sweep 1, @everyone <!channel> <https://bad.example|ours>"
    outcome = send_by_service(address, parse_allowed("127.0.0.0/8"), title="t", text=text)
    assert outcome.is_delivered
    [message] = receiver.messages
    assert message["message"].startswith("sweep 1, ")
    assert not set("@<>") & set(message["message"])


def test_a_service_is_not_followed_to_another_place(engine: sa.Engine, receiver: Receiver) -> None:
    receiver.answer = lambda number: 302
    with Receiver().serving() as other:
        receiver.location = other.address
        ended_sweep(engine, f"ntfy://127.0.0.1:{receiver.port}/topic")
        Sender(engine, Clock()).turn()
        assert len(receiver.received) == 1
        assert other.requests == []
    assert states(engine) == [(DeliveryState.WAITING, 1)]


def test_a_service_inside_the_network_is_not_reached_unless_it_is_allowed(
    engine: sa.Engine, receiver: Receiver
) -> None:
    ended_sweep(engine, f"ntfy://127.0.0.1:{receiver.port}/topic")
    Sender(engine, Clock(), allowed=AllowedNetworks()).turn()
    assert receiver.received == []
    with reading(engine) as session:
        [one] = list_deliveries(session, limit=10)
    assert one.last_said == "ntfy://...: its host is not named in FARM_NOTIFY_ALLOW"


@pytest.mark.parametrize(
    "address",
    [
        "ntfy://127.0.0.1/topic",
        "ntfy://93.184.215.14/topic",
        "ntfy://[2606:4700::1]/topic",
        "ntfy://[::1]/topic",
        "ntfy://[::ffff:127.0.0.1]/topic",
        "ntfy://2130706433/topic",
        "ntfy://localhost/topic",
        "ntfy://me:word@example.org@127.0.0.1/topic",
        "matrix://me:word@127.0.0.1/#room",
        "mailto://me:word@mail.example.org/you@example.org",
        "gotify://host.example/AbCdEfGhIjKlMno",
        "slack://nonsense",
    ],
)
def test_an_address_of_a_service_that_is_not_allowed_is_refused(address: str) -> None:
    check_address(address)
    with pytest.raises(InvalidSpec) as refused:
        check_reachable([address], parse_allowed("named.example"))
    assert refused.value.field == "notify[0]"
    assert "word" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "ntfys://named.example/topic?verify=no",
        "mailto://me:word@named.example/?smtp=127.0.0.1",
        "ntfy://named.example\\@127.0.0.1/topic",
        "syslog://",
        "dbus://",
        "gnome://",
        "windows://",
        "macosx://",
        "json://127.0.0.1/",
        "apprise://127.0.0.1/key",
    ],
)
def test_other_services_and_options_are_no_addresses(address: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        check_address(address)
    assert "word" not in str(refused.value)


@pytest.mark.parametrize(
    "address", [SLACK, "ntfys://named.example/topic", "mailtos://me:word@NAMED.example/you@a.org"]
)
def test_services_that_are_allowed(address: str) -> None:
    check_reachable([address], parse_allowed("named.example"))


@pytest.mark.parametrize("host", ["10.1.2.3", "[::ffff:10.1.2.3]", "93.184.215.14"])
def test_services_in_a_network_that_is_allowed(host: str) -> None:
    check_reachable([f"ntfy://{host}/topic"], parse_allowed("10.0.0.0/8,93.184.215.0/24"))


def test_only_the_scheme_of_a_service_is_shown() -> None:
    assert masked(SLACK) == "slack://..."
    assert masked(SLACK.replace("slack", "slac")) == "slac://..."


def test_without_apprise_the_refusal_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(InvalidSpec, match=r"pip install 'benchfarm\[notify\]'"):
        check_reachable([SLACK], AllowedNetworks())


@pytest.mark.usefixtures("own_log")
@pytest.mark.parametrize("is_there", [True, False])
def test_no_log_has_the_secrets_of_a_service(
    engine: sa.Engine,
    receiver: Receiver,
    capsys: pytest.CaptureFixture[str],
    *,
    is_there: bool,
) -> None:
    log.configure("DEBUG")
    logging.getLogger(__name__).info("begun")
    receiver.answer = lambda number: 403
    port = receiver.port if is_there else 1
    ended_sweep(engine, f"ntfy://me:s3cret@127.0.0.1:{port}/s3cret-topic")
    Sender(engine, Clock()).turn()
    logged = capsys.readouterr().err
    assert "begun" in logged
    assert "message sweep.finished to ntfy://...: the service did not take it" in logged
    assert "s3cret" not in logged

"""A simulated broker client: no process, publishes at once, delivers what it is given."""

from __future__ import annotations

from collections.abc import Callable

from tests.protocol.broker import Broker
from worker_agent.config import AgentConfig
from worker_agent.supervisor.events import (
    BrokerClientGone,
    BrokerClientReady,
    CommandArrived,
    OrderDone,
    Post,
)


class SimulatedBrokerClient:
    """Stands in for `worker_agent.broker.broker_client_supervisor.BrokerClientProcess`."""

    def __init__(
        self,
        number: int,
        *,
        config: AgentConfig,
        purge: bool,
        post: Post,
        broker: Broker,
        note_beat: Callable[[], None],
    ) -> None:
        """`note_beat` is called with each heartbeat."""
        self.number = number
        self.pid = -number
        self._agent_id = config.agent_id
        self._purge = purge
        self._post = post
        self._broker = broker
        self._note_beat = note_beat
        self._order = 0
        self._line = 0
        self.is_alive = True
        self.is_ready = False

    def connect(self) -> None:
        """Reach the broker if it is there; the first of an agent's life empties its queue."""
        if self.is_ready or not self.is_alive or self._broker.is_away:
            return
        if self._purge:
            self._broker.commands[self._agent_id].clear()
        self.is_ready = True
        self._post(BrokerClientReady(broker_client=self.number))

    def deliver(self, name: str, envelope: object, *, received_s: float) -> bool:
        """Hand a command over; False where there is nobody to do so."""
        if not (self.is_alive and self.is_ready):
            return False
        self._line += 1
        self._post(
            CommandArrived(
                broker_client=self.number,
                line=self._line,
                name=name,
                envelope=envelope,
                received_s=received_s,
            )
        )
        return True

    def publish(self, what: str, envelope: dict[str, object]) -> int:
        if what == "heartbeats":
            self._note_beat()
        if not self._broker.is_away:
            queue = self._broker.reports if what == "reports" else self._broker.heartbeats
            queue.append(envelope)
        return self._done()

    def ping(self) -> int:
        return self._done()

    def acknowledge(self, line: int) -> None:
        """What is acknowledged is the driver's to take from the broker, or to leave there."""

    def kill(self) -> None:
        if self.is_alive:
            self.is_alive = False
            self._post(BrokerClientGone(broker_client=self.number))

    def _done(self) -> int:
        self._order += 1
        if self.is_alive:
            error = "broker does not answer" if self._broker.is_away else None
            self._post(OrderDone(broker_client=self.number, order=self._order, error=error))
        return self._order

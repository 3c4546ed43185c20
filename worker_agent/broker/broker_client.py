"""The agent's child process that talks to the broker, so that a hang cannot block the agent.

The agent starts `python -m worker_agent.broker.broker_client` with one end of a socket pair. They
exchange lines of JSON: commands from the agent's queue to the agent, and publish requests to the
broker client. It is a Celery worker of one process, stores nothing, and may be killed at any
moment.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import logging
import os
import queue
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

from farm.broker.celery_app import (
    HEARTBEAT_TASK,
    REPORTS_TASK,
    agent_queue,
    check_broker,
    command_task,
    make_app,
    run_worker,
)
from farm.broker.refusals import RefusalCounts
from farm.broker.sending import Sender
from farm.broker.task_message import read_carried
from farm.errors import InvalidSpec, Unreachable
from farm.log import configure, set_log_ids
from farm.messages.agent_keys import AgentKey, read_key
from farm.messages.commands import COMMANDS
from farm.messages.signing import MessageDirection, is_signed, sign, verified
from worker_agent.trainer_process import privilege

logger = logging.getLogger("worker_agent.broker.broker_client")  # __name__ is __main__ here

ACK_TIMEOUT_S = 10.0
_RETRY_S = 1.0
_PR_SET_PDEATHSIG = 1
_ADVICE = "a new one from `farm agent add` or `farm agent rotate` on the server, if this persists"
_PUBLISHERS: dict[str, tuple[str, Callable[[Sender, dict[str, object]], None]]] = {
    "heartbeats": (HEARTBEAT_TASK, Sender.publish_heartbeat),
    "reports": (REPORTS_TASK, Sender.publish_reports),
}


class AgentLink:
    """The broker client's end of the socket: hands commands over, takes orders."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._write_lock = threading.Lock()  # commands and answers come from two threads
        self._acks: dict[int, threading.Event] = {}
        self._line = 0
        self.orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def listen(self) -> None:
        """Dispatch the agent's lines until it closes the socket; then end this process."""
        with self._connection.makefile("rb") as lines:
            for text in lines:
                line = json.loads(text)
                if "ack" in line:
                    waiting = self._acks.pop(line["ack"], None)
                    if waiting is not None:
                        waiting.set()
                else:
                    self.orders.put(line)
        # Nothing here is worth a farewell, and Celery's own would wait for the broker.
        os._exit(0)

    def deliver(self, name: str, envelope: object) -> None:
        """Pass a command to the agent. Raises TimeoutError if the agent does not acknowledge it."""
        self._line += 1
        ack = self._acks[self._line] = threading.Event()
        self.tell({"line": self._line, "command": name, "envelope": envelope})
        if not ack.wait(ACK_TIMEOUT_S):
            raise TimeoutError(f"the agent did not take {name} within {ACK_TIMEOUT_S:g} s")

    def tell(self, line: dict[str, object]) -> None:
        with self._write_lock:
            self._connection.sendall(json.dumps(line).encode() + b"\n")


def main() -> None:
    """Run until the agent closes the socket or dies."""
    parser = argparse.ArgumentParser(prog="worker_agent.broker.broker_client")
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--agent-id", required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--purge", action="store_true")
    options = parser.parse_args()
    die_with(options.parent)
    for number in (signal.SIGTTOU, signal.SIGTTIN):  # its agent's terminal must not stop it
        signal.signal(number, signal.SIG_IGN)
    privilege.hide()
    configure(os.environ["FARM_LOG_LEVEL"], form=os.environ["FARM_LOG_FORMAT"])
    set_log_ids(agent_id=options.agent_id)
    link = AgentLink(socket.socket(fileno=options.socket))
    broker_url = os.environ["FARM_BROKER_URL"]
    app, sender = make_app(broker_url), Sender(broker_url)
    key = os.environ.pop("AGENT_KEY", "")
    signatures = Signatures(options.agent_id, read_key(key) if key else None)
    refusals = RefusalCounts()
    for name in COMMANDS:
        register(app, link, name, signatures, refusals)
    threading.Thread(target=link.listen, name="agent", daemon=True).start()
    reach_broker(broker_url, sender, agent_queue(options.agent_id), purge=options.purge)
    threading.Thread(
        target=carry_out, args=(sender, link, signatures), name="publisher", daemon=True
    ).start()
    link.tell({"ready": True})
    run_worker(app, [agent_queue(options.agent_id)], name=options.agent_id)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)  # it died before the kernel knew


def register(
    app: Any, link: AgentLink, name: str, signatures: Signatures, refusals: RefusalCounts
) -> None:
    """Register a task that passes commands called `name` from the server to the agent."""

    task = command_task(name)

    def deliver(carried: object) -> None:
        try:
            plain = signatures.opened(task, read_carried(carried))
        except (InvalidSpec, ValueError) as error:
            refusals.add("server", f"{task}: {error}")
        else:
            link.deliver(name, plain)

    app.task(deliver, name=task, shared=False)


def reach_broker(broker_url: str, sender: Sender, own_queue: str, *, purge: bool) -> None:
    """Wait until the broker answers; with `purge` drop commands to the agent before a restart."""
    warned = False
    while True:
        try:
            if purge:
                dropped = sender.purge(own_queue)
                logger.info("commands from before the restart were dropped: %d", dropped)
            else:
                check_broker(broker_url)
        except Unreachable as error:
            if not warned:
                logger.warning("%s", error)
            warned = True
            threading.Event().wait(_RETRY_S)
        else:
            return


def carry_out(sender: Sender, link: AgentLink, signatures: Signatures) -> None:
    """Carry out the agent's publish requests one after another, and report each result.

    A ping is a request, too: its answer proves that this thread is not stuck.
    """
    while True:
        order = link.orders.get()
        error = None
        try:
            if "publish" in order:
                task, publish = _PUBLISHERS[order["publish"]]
                publish(sender, signatures.signed(task, order["envelope"]))
        except Unreachable as unreachable:
            error = str(unreachable)
        except Exception as unexpected:
            logger.exception("order was not carried out")
            error = repr(unexpected)
        link.tell({"done": order["order"], "error": error})


class Signatures:
    """Signs an agent's messages, and checks those of its server.

    Without a key, which is possible on loopback only, messages are not signed.
    """

    def __init__(self, agent_id: str, key: AgentKey | None) -> None:
        self._agent_id = agent_id
        self._keys = () if key is None else (key,)

    def signed(self, task: str, envelope: dict[str, object]) -> dict[str, object]:
        """Return a sealed report or heartbeat in the form that the collector accepts."""
        if not self._keys:
            return envelope
        to_server = MessageDirection.TO_SERVER
        return sign(envelope, self._keys, agent_id=self._agent_id, direction=to_server, kind=task)

    def opened(self, task: str, envelope: object) -> object:
        """Return a command as its server has sealed it.

        Raises:
            InvalidSpec: the server has not signed it for this agent, or it is signed and there is
            no key here to check it.
        """
        if not self._keys:
            if is_signed(envelope):
                expected = "the key of this agent, since its server signs: `farm agent add` there"
                raise InvalidSpec("AGENT_KEY", None, expected)
            return envelope
        to_agent = MessageDirection.TO_AGENT
        try:
            return verified(
                envelope, self._keys, agent_id=self._agent_id, direction=to_agent, kind=task
            )
        except InvalidSpec as error:
            if error.field != "signature":
                raise
            expected = f"{error.expected}; or {_ADVICE}"
            raise InvalidSpec(error.field, error.value, expected) from None


if __name__ == "__main__":
    main()

"""Starts the broker client process, and replaces one that died, hangs or receives nothing."""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import subprocess
import sys
import threading
import time

from farm.messages.agent_keys import key_text
from worker_agent.config import AgentConfig
from worker_agent.supervisor.events import (
    BrokerClientEvent,
    BrokerClientGone,
    BrokerClientReady,
    CommandArrived,
    OrderDone,
    Post,
)

logger = logging.getLogger(__name__)

PING_EVERY_S = 5.0
# Publishing gives up after about 10 s, so a broker client that is silent for this long has failed.
PING_LIMIT_S = 30.0
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
PROVEN_AFTER_S = 60.0
# A broker client that publishes well and hears nothing may have lost its subscription, or the
# server may be away. A new one costs a second of CPU, so this is tried ever more rarely.
DEAF_AFTER_S = 60.0
DEAF_LIMIT_S = 1800.0
# A broker client that does not read its socket for this long is stuck. What it had read meanwhile
# starts the time again once, so the agent itself is held up for twice as long at most.
_SEND_TIMEOUT_S = 2


class BrokerClientSupervisor:
    """Used in the supervisor's thread only. Instants are readings of the monotonic clock."""

    def __init__(self, config: AgentConfig, post: Post) -> None:
        self._config = config
        self._post = post
        self._broker_client: BrokerClientProcess | None = None
        self._number = 0
        self._has_purged = False
        self._is_ready = False
        self._start_at = 0.0
        self._started_s = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._under_way: dict[str, int] = {}  # what is being published or pinged, by its order
        self._pinged_s = 0.0
        self._heard_s = 0.0
        self._deaf_after_s = DEAF_AFTER_S

    @property
    def is_ready(self) -> bool:
        """Whether there is a broker client and it has reached the broker."""
        return self._is_ready

    @property
    def pids(self) -> frozenset[int]:
        """The broker client's own process."""
        return (
            frozenset({self._broker_client.pid}) if self._broker_client is not None else frozenset()
        )

    def can_publish(self, what: str) -> bool:
        """Whether the broker client is ready and has carried out the last request of this kind."""
        return self._is_ready and what not in self._under_way

    def has_published(self, what: str, event: BrokerClientEvent) -> bool:
        """Whether the event says that the broker has accepted the last published message."""
        return (
            isinstance(event, OrderDone)
            and self._broker_client is not None
            and event.broker_client == self._broker_client.number
            and event.error is None
            and self._under_way.get(what) == event.order
        )

    def publish(self, what: str, envelope: dict[str, object]) -> None:
        assert self._broker_client is not None
        self._under_way[what] = self._broker_client.publish(what, envelope)

    def tick(self, *, now: float) -> None:
        """Start, ping or kill the broker client, as due."""
        if self._broker_client is None:
            if now >= self._start_at:
                self._start(now)
            return
        if not self._is_ready:
            return
        if "ping" in self._under_way:
            if now - self._pinged_s > PING_LIMIT_S:
                self._replace("broker client did not answer for %.0f s", PING_LIMIT_S)
        elif now - self._pinged_s > PING_EVERY_S:
            self._under_way["ping"] = self._broker_client.ping()
            self._pinged_s = now
        if now - self._heard_s > self._deaf_after_s:
            self._replace("broker client heard nothing for %.0f s", self._deaf_after_s)
            self._heard_s = now
            self._deaf_after_s = min(2 * self._deaf_after_s, DEAF_LIMIT_S)

    def handle(self, event: BrokerClientEvent, *, now: float) -> bool:
        """Take an event; return whether it came from the present broker client."""
        if self._broker_client is None or event.broker_client != self._broker_client.number:
            return False
        if isinstance(event, BrokerClientReady):
            logger.info("broker client is ready", extra={"broker_client": event.broker_client})
            self._is_ready = self._has_purged = True
            self._pinged_s = self._heard_s = now
        elif isinstance(event, OrderDone):
            self._finish(event)
        elif isinstance(event, CommandArrived):
            self._heard_s, self._deaf_after_s = now, DEAF_AFTER_S
            # It is on its way through the supervisor's only thread, so it cannot be lost here.
            self._broker_client.acknowledge(event.line)
        elif isinstance(event, BrokerClientGone):
            self._lose(now)
        return True

    def stop(self) -> None:
        """Kill the broker client and start no other."""
        self._start_at = float("inf")
        if self._broker_client is not None:
            self._broker_client.kill()

    def _start(self, now: float) -> None:
        self._number += 1
        self._started_s = now
        self._broker_client = BrokerClientProcess(
            self._number, config=self._config, purge=not self._has_purged, post=self._post
        )
        extra = {"broker_client": self._number, "pid": self._broker_client.pid}
        logger.info("broker client was started", extra=extra)

    def _finish(self, event: OrderDone) -> None:
        for what, order in list(self._under_way.items()):
            if order == event.order:
                del self._under_way[what]
                if event.error is not None:
                    logger.warning("%s were not sent: %s", what, event.error)

    def _replace(self, reason: str, limit_s: float) -> None:
        assert self._broker_client is not None
        logger.warning(reason, limit_s, extra={"broker_client": self._broker_client.number})
        self._broker_client.kill()

    def _lose(self, now: float) -> None:
        if now - self._started_s >= PROVEN_AFTER_S:
            self._pause_s = FIRST_PAUSE_S
        if self._start_at != float("inf"):
            self._start_at = now + self._pause_s
        logger.warning("broker client is gone; the next starts in %.1f s", self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._broker_client = None
        self._is_ready = False
        self._under_way.clear()


class BrokerClientProcess:
    """One process of the broker client. Its messages arrive as events with its number.

    Start it from the main thread: the kernel ends it when the thread that started it ends.
    """

    def __init__(self, number: int, *, config: AgentConfig, purge: bool, post: Post) -> None:
        self.number = number
        self._post = post
        self._order = 0
        self._is_killed = False
        own, other = socket.socketpair()
        # A time limit of Python's own would apply to reading as well.
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_TIMEOUT_S, 0))
        self._connection = own
        # The broker client inherits the agent's restriction on where modules are searched for.
        flags = ["-P"] if sys.flags.safe_path else []
        command = [sys.executable, *flags, "-m", "worker_agent.broker.broker_client"]
        command += ["--socket", str(other.fileno())]
        command += ["--agent-id", config.agent_id, "--parent", str(os.getpid())]
        with other:
            self._process = subprocess.Popen(
                command + (["--purge"] if purge else []),
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                # Ctrl-C in a terminal is for the agent, which stops its broker client last.
                process_group=0,
                env={
                    **os.environ,
                    "FARM_BROKER_URL": config.settings.broker_url,
                    "AGENT_KEY": key_text(config.key) if config.key else "",
                    "FARM_LOG_LEVEL": config.settings.log_level,
                    "FARM_LOG_FORMAT": config.settings.log_format,
                },
            )
        threading.Thread(target=self._read, name="broker client", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def publish(self, what: str, envelope: dict[str, object]) -> int:
        """Request to publish `heartbeats` or `reports`; return the request's number."""
        return self._give({"publish": what, "envelope": envelope})

    def ping(self) -> int:
        """Request an answer that proves it is alive; return the request's number."""
        return self._give({"ping": True})

    def acknowledge(self, line: int) -> None:
        """Tell it that a command was received."""
        self._send({"ack": line})

    def kill(self) -> None:
        """End it and wait; its `BrokerClientGone` follows."""
        self._is_killed = True
        self._process.kill()
        self._process.wait(timeout=10)

    def _give(self, order: dict[str, object]) -> int:
        self._order += 1
        self._send({"order": self._order, **order})
        return self._order

    def _send(self, line: dict[str, object]) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        try:
            self._connection.sendall(data)
        except OSError as error:
            # Half a line may be on its way, so this broker client cannot be spoken to any more.
            logger.warning(
                "broker client does not listen: %s", error, extra={"broker_client": self.number}
            )
            self._process.kill()

    def _read(self) -> None:
        try:
            with self._connection.makefile("rb") as lines:
                for text in lines:
                    self._pass_on(text, received_s=time.monotonic())
        except (OSError, ValueError, KeyError) as error:
            # A line torn by its death, or nonsense: the next broker client starts afresh.
            level = logging.DEBUG if self._is_killed else logging.WARNING
            logger.log(
                level, "broker client was cut off: %r", error, extra={"broker_client": self.number}
            )
        self._process.kill()
        self._process.wait()
        self._connection.close()
        self._post(BrokerClientGone(broker_client=self.number))

    def _pass_on(self, text: bytes, *, received_s: float) -> None:
        line = json.loads(text)
        if "ready" in line:
            self._post(BrokerClientReady(broker_client=self.number))
        elif "command" in line:
            self._post(
                CommandArrived(
                    broker_client=self.number,
                    line=line["line"],
                    name=line["command"],
                    envelope=line["envelope"],
                    received_s=received_s,
                )
            )
        else:
            self._post(
                OrderDone(broker_client=self.number, order=line["done"], error=line["error"])
            )

"""The agent's side of its courier: start it, talk to it, kill it."""

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

from farm.errors import InvalidSpec
from farm.messages.agent_keys import key_text
from worker_agent.config import AgentConfig
from worker_agent.supervisor.events import (
    CommandArrived,
    CourierGone,
    CourierReady,
    OrderDone,
    Post,
)

logger = logging.getLogger(__name__)

# A courier that does not read its socket for this long is stuck. What it had read meanwhile
# counts anew once, so the agent itself is held up for twice as long at most.
_SEND_TIMEOUT_S = 2


class CourierProcess:
    """One life of the courier. What it says arrives as events with its number.

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
        # Where the agent itself was told not to look for modules, its courier must not either.
        flags = ["-P"] if sys.flags.safe_path else []
        command = [sys.executable, *flags, "-m", "worker_agent.broker.courier"]
        command += ["--socket", str(other.fileno())]
        command += ["--agent-id", config.agent_id, "--parent", str(os.getpid())]
        with other:
            self._process = subprocess.Popen(
                command + (["--purge"] if purge else []),
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                # Ctrl-C in a terminal is for the agent, which stops its courier last.
                process_group=0,
                env={
                    **os.environ,
                    "FARM_BROKER_URL": config.settings.broker_url,
                    "AGENT_KEY": key_text(config.key) if config.key else "",
                    "FARM_LOG_LEVEL": config.settings.log_level,
                    "FARM_LOG_FORMAT": config.settings.log_format,
                },
            )
        threading.Thread(target=self._read, name="courier", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def publish(self, what: str, envelope: dict[str, object]) -> int:
        """Order to publish `heartbeats` or `reports`; return the order's number."""
        return self._give({"publish": what, "envelope": envelope})

    def ping(self) -> int:
        """Order a sign of life; return the order's number."""
        return self._give({"ping": True})

    def acknowledge(self, line: int) -> None:
        """Tell it that a command was taken."""
        self._send({"ack": line})

    def kill(self) -> None:
        """End it and wait; its `CourierGone` follows."""
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
            # Half a line may be on its way, so this courier cannot be spoken to any more.
            logger.warning("courier does not listen: %s", error, extra={"courier": self.number})
            self._process.kill()

    def _read(self) -> None:
        try:
            with self._connection.makefile("rb") as lines:
                for text in lines:
                    self._pass_on(text, received_s=time.monotonic())
        except (OSError, ValueError, KeyError, InvalidSpec) as error:
            # A line torn by its death, or nonsense: the next courier starts afresh.
            level = logging.DEBUG if self._is_killed else logging.WARNING
            logger.log(level, "courier was cut off: %r", error, extra={"courier": self.number})
        self._process.kill()
        self._process.wait()
        self._connection.close()
        self._post(CourierGone(courier=self.number))

    def _pass_on(self, text: bytes, *, received_s: float) -> None:
        line = json.loads(text)
        if "ready" in line:
            self._post(CourierReady(courier=self.number))
        elif "command" in line:
            self._post(
                CommandArrived(
                    courier=self.number,
                    line=line["line"],
                    name=line["command"],
                    envelope=line["envelope"],
                    received_s=received_s,
                )
            )
        else:
            self._post(OrderDone(courier=self.number, order=line["done"], error=line["error"]))

"""`python -m benchmarks.fleet`: runs simulated agents in one process until its input ends.

Once a second it writes a line of JSON to its standard output: what its agents have noted since the
line before, and how much they hold back.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import json
import os
import random
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.fleet.agent import Noted, SimulatedAgent
from benchmarks.fleet.broker import CommandQueues
from benchmarks.fleet.outbox import Outbox
from farm.configuration.spec import TENSORFLOW
from farm.messages.agents import AgentFacts, Hardware

_LINE_EVERY_S = 1.0
_HARDWARE = Hardware(
    cpu_model="simulated",
    core_count=2,
    memory_bytes=8 * 2**30,
    kernel="6.1.0",
    tensorflow_version="2.21.0",
    python_version="3.11.7",
    benchfarm_version="0.1.0",
)


class Fleet:
    """Agents of one process, each acting when it is due or told to."""

    def __init__(self, broker_url: str, agents: Sequence[SimulatedAgent], noted: Noted) -> None:
        self._agents = {agent.agent_id: agent for agent in agents}
        self._queues = CommandQueues(broker_url, list(self._agents))
        self._outbox = Outbox(broker_url)
        self._noted = noted
        self._due: list[tuple[float, str]] = []
        self._planned: dict[str, float] = {}
        self._unsent_count = 0

    def run(self, stopping: threading.Event) -> None:
        """Serve until told to stop."""
        now = time.monotonic()
        for agent_id in self._agents:
            self._plan(agent_id, now=now)
        line_s = now + _LINE_EVERY_S
        with self._queues as queues, self._outbox:
            while not stopping.is_set():
                now = time.monotonic()
                next_s = min(self._due[0][0] if self._due else line_s, line_s)
                for agent_id, name, envelope, at_s in queues.arrived(within_s=next_s - now):
                    self._agents[agent_id].obey(name, envelope, now=at_s)
                    self._act(agent_id)
                self._act_on_time()
                self._outbox.flush()
                if time.monotonic() >= line_s:
                    self._tell()
                    line_s = time.monotonic() + _LINE_EVERY_S

    def _act_on_time(self) -> None:
        """Let everybody act who is due, but hear commands again soon."""
        until = time.monotonic()
        while self._due and self._due[0][0] <= until:
            due_s, agent_id = heapq.heappop(self._due)
            if self._planned[agent_id] == due_s:
                self._act(agent_id)

    def _act(self, agent_id: str) -> None:
        now = time.monotonic()
        for what, envelope in self._agents[agent_id].act(now=now):
            if not self._outbox.put(what, envelope):
                self._unsent_count += 1  # it will be due again
        self._plan(agent_id, now=now)

    def _plan(self, agent_id: str, *, now: float) -> None:
        due_s = self._agents[agent_id].due_s(now=now)
        self._planned[agent_id] = due_s
        if due_s < float("inf"):
            heapq.heappush(self._due, (due_s, agent_id))

    def _tell(self) -> None:
        spools = [agent.spool for agent in self._agents.values()]
        line: dict[str, Any] = {
            "at_s": time.time(),
            "cpu_s": time.process_time(),
            "unsent_count": self._unsent_count,
            "unconfirmed_count": sum(s.last_number - s.confirmed for s in spools),
            "unconfirmed_bytes": sum(s.unconfirmed_bytes for s in spools),
            **asdict(self._noted),
        }
        print(json.dumps(line, separators=(",", ":")), flush=True)
        fresh = Noted()
        for name in Noted.__dataclass_fields__:
            setattr(self._noted, name, getattr(fresh, name))


def main() -> None:
    """Run simulated agents until the process is terminated."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--broker-url", required=True)
    parser.add_argument("--first", type=int, default=0, help="number of its first agent")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--lease-s", type=float, default=20.0)
    parser.add_argument(
        "--role", action="append", default=[], metavar="NAME:COUNT", help="label of the first ones"
    )
    given = parser.parse_args()
    noted, rng, now = Noted(), random.Random(given.first), time.monotonic()
    roles = [name for role in given.role for name in [role.split(":")[0]] * int(role.split(":")[1])]
    agents = [
        SimulatedAgent(
            f"sim-{number:05d}",
            facts=_facts(number, role=roles[i] if i < len(roles) else "bulk"),
            noted=noted,
            rng=random.Random(rng.random()),
            now=now,
            lease_s=given.lease_s,
        )
        for i, number in enumerate(range(given.first, given.first + given.count))
    ]
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)
    stopping = threading.Event()
    threading.Thread(target=_wait_for_end, args=(stopping,), daemon=True).start()
    Fleet(given.broker_url, agents, noted).run(stopping)


def _facts(number: int, *, role: str) -> AgentFacts:
    return AgentFacts(
        machine_id=f"machine-{number}",
        address="127.0.0.1",
        interface="lo",
        first_port=20000,
        last_port=20099,
        cpus=(0, 1),
        labels={"role": role},
        capabilities=(TENSORFLOW,),
        hardware=_HARDWARE,
    )


def _wait_for_end(stopping: threading.Event) -> None:
    os.read(sys.stdin.fileno(), 1)
    stopping.set()


if __name__ == "__main__":
    main()

"""A whole farm tells a receiver, away at first, of a sweep that ends and of a killed agent."""

from __future__ import annotations

import socket
from pathlib import Path

from farm.store.engine import reading
from farm.store.notifications import list_deliveries
from tests.e2e.live_farm import live_farm, wait_until
from tests.integration.notifications.receiver import Receiver


def test_a_farm_tells_of_a_sweep_that_ends_and_of_an_agent_that_was_killed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    server = {
        "FARM_NOTIFY_URLS": f"http://127.0.0.1:{port}/hook?key=s3cret",
        "FARM_NOTIFY_ALLOW": "127.0.0.1",
        "FARM_LOG_LEVEL": "DEBUG",
    }
    with live_farm(tmp_path, agent_count=2, server=server) as farm:
        sweep_id = farm.submit()
        farm.wait_for_end(sweep_id)

        def has_failed() -> bool:
            with reading(farm.engine) as session:
                return any(one.attempt_count for one in list_deliveries(session, limit=10))

        wait_until(has_failed, "somebody tried to tell of the sweep")
        farm.kill("agent-1")
        with Receiver(port).serving() as receiver:
            wait_until(lambda: len(receiver.received) >= 2, "both messages arrived")
            kinds = {message["type"]: message["data"] for message in receiver.messages}
    assert kinds["sweep.finished"]["sweep_id"] == sweep_id
    assert kinds["agent.lost"]["agent_id"] == "agent-1"
    assert "s3cret" not in (tmp_path / "logs" / "scheduler.log").read_text()

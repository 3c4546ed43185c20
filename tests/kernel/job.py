"""A farm of two agents on two hosts, and one sweep: `job.py HOME FAR`, on the near host.

FAR is the other host's name. Prints the measurements as JSON. The trainer is a fake; everything
else is real.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import sys
import time
from pathlib import Path

from sqlalchemy import select

from farm.embedded.farm import EmbeddedFarm
from farm.embedded.redis import free_port
from farm.embedded.signals import StopSignals
from farm.embedded.sites import LocalAgent
from farm.gang.lifecycle import FINAL_JOB_STATES
from farm.settings.server import load_settings
from farm.store.engine import make_engine, reading, writing
from farm.store.result_tables import MeasurementRow
from farm.store.tables import JobRow
from farm.submission import plan, submit

ROOT = Path(__file__).parents[2]
CASE = {
    "model": "small_cnn",
    "dataset": "digits",
    "strategy": "mwms_ring",
    "world_size": 2,
    "global_batch_size": 32,
    "steps": 20,
    "one_way_delay_ms": 20,
    "bandwidth_mbit_per_s": 10,
    "emulator": "tc_netem",
}
LIMIT_S = 400.0
# An emulated processor takes minutes to start a farm.
PATIENCE_S = 500.0


def main() -> None:
    home, far = Path(sys.argv[1]), sys.argv[2]
    trainer = f"{sys.executable} {ROOT / 'tests/fakes/trainer.py'}"
    os.environ.update(AGENT_TRAINER=trainer, PYTHONPATH=str(ROOT), AGENT_HEARTBEAT_S="2")
    settings = load_settings(
        {
            "FARM_HOME": str(home),
            "FARM_WEB_PORT": str(free_port()),
            "FARM_LEASE_S": "90",
            "FARM_PREPARE_TIMEOUT_S": str(PATIENCE_S),
            "FARM_START_TIMEOUT_S": str(PATIENCE_S),
        }
    )
    sites = [
        LocalAgent(
            agent_id=f"host-{number}",
            settings={
                "AGENT_ADVERTISE_ADDRESS": f"10.99.0.{1 + number}",
                "AGENT_INTERFACE": "eth0",
                "AGENT_CPUS": "0",
                "AGENT_SHARES_CORES": "true",  # the guest has one
                "AGENT_STATE_DIR": str(home / "agents" / str(number)),
                "FARM_LEASE_S": "90",
            },
            prefix=prefix,
        )
        for number, prefix in enumerate([(), (shutil.which("ip") or "ip", "netns", "exec", far)])
    ]
    with (
        StopSignals() as signals,
        EmbeddedFarm(
            settings,
            sites=sites,
            broker_host="10.99.0.1",
            signals=signals,
            report=say,
            ready_limit_s=PATIENCE_S,
        ) as running,
    ):
        engine = make_engine(running.settings.database_url)
        with writing(engine) as session:
            submit(session, plan({"name": "guest", "case": [CASE]}), now=dt.datetime.now(dt.UTC))
        deadline = time.monotonic() + LIMIT_S
        is_over = False
        while not is_over and time.monotonic() < deadline:
            running.check_processes()
            time.sleep(1)
            with reading(engine) as session:
                states = list(session.scalars(select(JobRow.state)))
            is_over = all(state in FINAL_JOB_STATES for state in states)
        say(f"{states}")
        if not all(state.value == "succeeded" for state in states):
            say(running.log_tails())
        with reading(engine) as session:
            rows = list(session.scalars(select(MeasurementRow)))
        found = [
            {name: getattr(row, name) for name in ("status", "network", "rtt_s", "loaded_rtt_s")}
            | {"bytes_per_s": row.measured_bandwidth_bytes_per_s, "details": row.details}
            for row in rows
        ]
        engine.dispose()
    print(json.dumps(found), flush=True)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

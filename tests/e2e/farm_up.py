"""A farm as `farm up` starts it, for the length of a block."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.live_farm import wait_until
from tests.e2e.start.test_demo import FARM, environment


@contextmanager
def farm_up(home: Path, *, agent_count: int, **settings: str) -> Iterator[dict[str, str]]:
    """Yield the environment in which commands find it. A busy machine does not void attempts."""
    environ = {**environment(home), "FARM_NOISE_POLICY": "flag", **settings}
    with (home / "output.txt").open("wb") as output:
        up = subprocess.Popen(
            [*FARM, "up", "--agents", str(agent_count)],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(
            lambda: (home / "endpoints.json").exists() or up.poll() is not None,
            "the farm is up",
            within_s=300,
        )
        yield environ
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(timeout=300)


def submit_and_wait(sweep: Path, environ: dict[str, str]) -> str:
    """Submit a sweep file and wait for its end; return what was printed."""
    done = subprocess.run(
        # Agents of a busy machine may take longer to come than the minute that users wait for them.
        [*FARM, "submit", str(sweep), "--wait", "--patience", "600"],
        env=environ,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    return output

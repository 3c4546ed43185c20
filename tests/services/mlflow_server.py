"""A real MLflow tracking server for tests, on an SQLite file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx

from farm.embedded.redis import free_port
from tests.fakes.server import wait_until
from tests.services.orphans import end_with_this_process

_QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}


class MlflowServer:
    """A server that its owner starts and kills; what was stored is there at its next start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        end_with_this_process()
        command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
        command += ["--host", "127.0.0.1", "--port", str(self._port)]
        command += ["--backend-store-uri", f"sqlite:///{self._folder}/mlflow.db"]
        command += ["--default-artifact-root", str(self._folder / "artifacts")]
        with (self._folder / "mlflow.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | _QUIET,
            )
        wait_until(self._answers, "MLflow answers")

    def _answers(self) -> bool | None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError((self._folder / "mlflow.log").read_text())
        try:
            return httpx.get(f"{self.uri}/health").is_success or None
        except httpx.TransportError:
            return None

    def kill(self) -> None:
        """Kill it with its workers."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

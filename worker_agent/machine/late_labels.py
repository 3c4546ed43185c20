"""Labels that the cloud's metadata service did not give when the agent began, asked for again.

A VM's first boot may be quicker than its network or than that service; without the instance type
its measurements would have no price until somebody started the agent anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from worker_agent.machine.cloud import cloud_labels

# A service that was not there for 20 minutes is switched off, as it may be.
_PAUSES_S = (5.0, 15.0, 60.0, 240.0, 900.0)
_NEEDED = "instance_type"


class LateLabels:
    """`told` is what was told so far, which another thread asks for once `start` was called."""

    def __init__(
        self,
        cloud: str | None,
        *,
        known: Mapping[str, str],
        ask: Callable[[str], dict[str, str]] = cloud_labels,
        pauses_s: Sequence[float] = _PAUSES_S,
    ) -> None:
        self.told: Mapping[str, str] = {}
        self._ask, self._pauses_s = ask, pauses_s
        self._cloud = None if _NEEDED in known else cloud

    def start(self) -> threading.Thread | None:
        """Ask until the instance type is known; None where there is nothing to ask for."""
        if self._cloud is None:
            return None
        thread = threading.Thread(
            target=self._keep_asking, args=(self._cloud,), name="cloud labels", daemon=True
        )
        thread.start()
        return thread

    def _keep_asking(self, cloud: str) -> None:
        never = threading.Event()
        for pause_s in self._pauses_s:
            never.wait(pause_s)
            self.told = {**self.told, **self._ask(cloud)}
            if _NEEDED in self.told:
                return

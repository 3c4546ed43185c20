"""The network emulators. To add one: write its file, and name it here, best first."""

from __future__ import annotations

import logging

from farm.core.spec import NetworkProfile
from farm.errors import EmulationFailed
from worker_agent.emulators.contracts import NetworkEmulator
from worker_agent.emulators.untouched import Untouched

logger = logging.getLogger(__name__)

EMULATORS: tuple[NetworkEmulator, ...] = (Untouched(),)


def find_emulator(profile: NetworkProfile | None) -> NetworkEmulator:
    """Return the first that serves the profile here; None asks for the untouched network.

    Raises:
        EmulationFailed: none can; the message has each one's reason.
    """
    wanted = profile or NetworkProfile()
    reasons = []
    for emulator in EMULATORS:
        if not emulator.serves(wanted):
            reasons.append(f"{emulator.name}: cannot do {wanted}")
            continue
        missing = emulator.probe()
        if missing is None:
            return emulator
        reasons.append(f"{emulator.name}: {missing}")
    raise EmulationFailed("no network emulator serves this profile; " + "; ".join(reasons))


def capabilities() -> tuple[str, ...]:
    """Return what the emulators that work here let the agent claim."""
    return tuple(e.capability for e in EMULATORS if e.capability and e.probe() is None)


def clear_emulators(*, interface: str) -> None:
    """Undo what an earlier life of this agent may have applied; what fails is logged."""
    for emulator in EMULATORS:
        try:
            if emulator.probe() is None:
                emulator.clear(interface=interface)
        except EmulationFailed:
            logger.exception("%s may still shape %s", emulator.name, interface)

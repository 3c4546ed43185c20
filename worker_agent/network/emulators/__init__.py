"""The network emulators, best first. To add one, write its file and add its line here."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from farm.configuration.spec import EXACT_EMULATION, NetworkProfile
from farm.errors import EmulationFailed
from worker_agent.network.emulators.contracts import NetworkEmulator, Site
from worker_agent.network.emulators.tc_netem import TcNetem
from worker_agent.network.emulators.tcp_proxy import TcpProxy
from worker_agent.network.emulators.untouched import Untouched
from worker_agent.network.emulators.vde_link import VdeLink

EMULATORS: tuple[Callable[[Site], NetworkEmulator], ...] = (Untouched, VdeLink, TcNetem, TcpProxy)


def create_emulators(site: Site) -> tuple[NetworkEmulator, ...]:
    """Return one emulator of each kind, best first."""
    return tuple(create(site) for create in EMULATORS)


def find_emulator(
    profile: NetworkProfile | None, site: Site, *, wanted: str | None = None
) -> NetworkEmulator:
    """Return the first that can emulate the profile here; None means the untouched network.

    `wanted` names the emulator that a job requires. Without it, only exact emulators are used, so
    nobody gets an approximation without requesting it.

    Raises:
        EmulationFailed: none can; the message has each one's reason.
    """
    profile = profile or NetworkProfile()
    if profile.is_untouched:
        return Untouched(site)
    reasons = []
    for emulator in create_emulators(site):
        if (wanted or EXACT_EMULATION) not in emulator.capabilities:
            continue
        if not emulator.serves(profile):
            reasons.append(f"{emulator.name}: cannot do {profile}")
            continue
        missing = emulator.probe()
        if missing is None:
            return emulator
        reasons.append(f"{emulator.name}: {missing}")
    raise EmulationFailed("no network emulator serves this profile; " + "; ".join(reasons))


def capabilities(site: Site) -> tuple[str, ...]:
    """Return the capabilities that the working emulators give this agent."""
    able = (e for e in create_emulators(site) if e.capabilities and not e.probe())
    # Two of them may be exact.
    return tuple(dict.fromkeys(itertools.chain.from_iterable(e.capabilities for e in able)))

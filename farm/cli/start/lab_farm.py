"""A farm on the hosts of a lab, for every command that measures over real delays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from farm.cli.start.up import to_stderr
from farm.embedded.farm import EmbeddedFarm
from farm.embedded.signals import StopSignals
from farm.embedded.sites import ANY_SCRIPT, AgentSite, gpu_share, share_cores
from farm.lab.lab import Lab
from farm.settings.server import Settings


@contextmanager
def lab_farm(loaded: Settings, signals: StopSignals, *, hosts: int) -> Iterator[EmbeddedFarm]:
    """Make a lab and run a farm in it, an agent on each host; remove both on leaving.

    Raises:
        FarmError: no root, a program is missing, or the system refuses.
    """
    with Lab(hosts=hosts) as lab:
        sites = lab_sites(lab, home=loaded.home.absolute())
        to_stderr(f"starting a farm with {hosts} hosts in {loaded.home}")
        with EmbeddedFarm(
            loaded,
            sites=sites,
            broker_host=lab.server_address,
            signals=signals,
            report=to_stderr,
        ) as farm:
            yield farm


def lab_sites(lab: Lab, *, home: Path) -> list[AgentSite]:
    """Return the place of each host's agent; more hosts than cores share them, and say so."""
    cores = sorted(os.sched_getaffinity(0))
    count = len(lab.hosts)
    is_shared = count > len(cores)
    if is_shared:
        to_stderr(
            f"{count} hosts share {len(cores)} cores: gangs of more than {len(cores)} hosts are "
            "slower here than on machines of their own, at any delay"
        )
        # One core each as long as there are any, so that small gangs share none.
        shares: list[tuple[int, ...]] = [(cores[number % len(cores)],) for number in range(count)]
    else:
        shares = share_cores(cores, agents=count)
    return [
        AgentSite(
            agent_id=host.name,
            settings={
                "AGENT_ADVERTISE_ADDRESS": host.address,
                "AGENT_INTERFACE": host.interface,
                "AGENT_CPUS": ",".join(map(str, cpus)),
                "AGENT_GPUS": gpu_share(number, count=count),
                "AGENT_SHARES_CORES": "true" if is_shared else "false",
                "AGENT_STATE_DIR": str(home / "agents" / host.name),
                **ANY_SCRIPT,
            },
            prefix=host.command(()),
        )
        for number, (host, cpus) in enumerate(zip(lab.hosts, shares, strict=True))
    ]

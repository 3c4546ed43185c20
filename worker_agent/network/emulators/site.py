"""The facts about its machine that a network emulator receives."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What an emulator may know of the machine that it works on.

    It is written down before anything is applied, so that another process can undo it.
    """

    state_dir: str
    interface: str
    cpus: tuple[int, ...]
    spared_ports: tuple[int, ...]  # TCP ports whose traffic is never shaped, such as the broker's

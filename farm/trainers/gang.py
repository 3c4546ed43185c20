"""The interface from an engine to the other ranks, and its form for a single rank."""

from __future__ import annotations

from typing import Protocol


class Gang(Protocol):
    """The way to the other ranks."""

    def wait(self, name: str, *, timeout_s: float) -> None: ...

    def leave(self) -> None: ...


class Alone:
    """The gang of one rank: nobody to wait for."""

    def wait(self, name: str, *, timeout_s: float) -> None:
        del name, timeout_s

    def leave(self) -> None:
        return

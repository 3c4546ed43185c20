"""Bytes in both directions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteCount:
    """What was received and what was sent, from whoever counted it."""

    rx_bytes: int
    tx_bytes: int

    def plus(self, other: ByteCount) -> ByteCount:
        """Return the sum of both, direction by direction."""
        return ByteCount(
            rx_bytes=self.rx_bytes + other.rx_bytes, tx_bytes=self.tx_bytes + other.tx_bytes
        )

"""Bytes in both directions, and how the kernel counts them for one TCP connection. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass

# struct tcp_info of linux/tcp.h. Offsets never change; new fields are added at the end.
_BYTES_ACKED = struct.Struct("<120xQ")
_BYTES_RECEIVED = struct.Struct("<128xQ")
_NOTSENT_BYTES = struct.Struct("<144xI")  # since Linux 4.6
_SENT_AND_RETRANSMITTED = struct.Struct("<200xQQ")  # since Linux 4.19
TCP_INFO_BYTES = _SENT_AND_RETRANSMITTED.size
_FLAGS_ACKED = 2  # SYN and FIN count as one acknowledged byte each


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteCount:
    """Numbers of bytes received and sent."""

    rx_bytes: int
    tx_bytes: int

    def plus(self, other: ByteCount) -> ByteCount:
        """Return the sum of both, direction by direction."""
        return ByteCount(
            rx_bytes=self.rx_bytes + other.rx_bytes, tx_bytes=self.tx_bytes + other.tx_bytes
        )

    def minus(self, other: ByteCount) -> ByteCount:
        """Return the growth since an earlier count."""
        return ByteCount(
            rx_bytes=self.rx_bytes - other.rx_bytes, tx_bytes=self.tx_bytes - other.tx_bytes
        )


def tcp_byte_count(tcp_info: bytes) -> ByteCount | None:
    """Return the payload of a connection from its tcp_info; None if the kernel lacks a counter.

    Sent is everything that the process has handed to the kernel: what was sent, once, and what
    still waits in the queue. Acknowledged bytes would leave out what is under way.
    """
    if len(tcp_info) < TCP_INFO_BYTES:
        return None
    (acked,) = _BYTES_ACKED.unpack_from(tcp_info)
    (received,) = _BYTES_RECEIVED.unpack_from(tcp_info)
    (waiting,) = _NOTSENT_BYTES.unpack_from(tcp_info)
    sent, retransmitted = _SENT_AND_RETRANSMITTED.unpack_from(tcp_info)
    handed = sent - retransmitted + waiting
    if handed + _FLAGS_ACKED < acked:
        return None  # a kernel that leaves the newer counters at 0
    return ByteCount(rx_bytes=received, tx_bytes=handed)

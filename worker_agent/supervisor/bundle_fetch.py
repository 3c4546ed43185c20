"""Brings a bundle that a job needs from the server, before its rank begins. Pure.

Each heartbeat says which piece is wanted, and its answer brings it: so one piece at a time waits in
the broker, and a lost one is asked for again. The order to begin is kept meanwhile.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from farm.configuration.bundle import MAX_BYTES
from farm.messages.agents import WantedPiece
from farm.messages.commands import BundlePiece, StartRank


class BundleRefused(Exception):
    """Why a bundle cannot be had, in words for the job."""


class BundleFetch:
    """`waiting`: the order whose bundle is on its way; None: nothing is wanted."""

    def __init__(self) -> None:
        self.waiting: StartRank | None = None
        self._bundle = ""
        self._pieces: list[bytes] = []

    def begin(self, command: StartRank, bundle: str) -> None:
        """Want a bundle, by the first digits of its sha256, for the sake of an order."""
        if bundle != self._bundle:
            self._pieces.clear()
        self.waiting, self._bundle = command, bundle

    def end(self) -> None:
        """Want nothing any more."""
        self.waiting, self._bundle = None, ""
        self._pieces.clear()

    @property
    def wanted(self) -> WantedPiece | None:
        """Return what a heartbeat says."""
        if self.waiting is None:
            return None
        return WantedPiece(bundle=self._bundle, number=len(self._pieces))

    def take(self, piece: BundlePiece) -> bytes | None:
        """Take a piece; return the whole archive once it is here. Other pieces are passed over.

        Raises:
            BundleRefused: the server does not have it, or what came is not what was asked for.
        """
        if self.waiting is None or piece.bundle != self._bundle:
            return None
        if piece.piece_count == 0:
            raise BundleRefused(f"the server has no bundle {self._bundle}")
        if piece.number != len(self._pieces):
            return None
        try:
            self._pieces.append(base64.b64decode(piece.content, validate=True))
        except (binascii.Error, ValueError):
            raise BundleRefused(f"bundle {self._bundle}: a piece is not in base64") from None
        if sum(map(len, self._pieces)) > MAX_BYTES:
            raise BundleRefused(f"bundle {self._bundle} is longer than {MAX_BYTES} bytes")
        if len(self._pieces) < piece.piece_count:
            return None
        archive = b"".join(self._pieces)
        sha256 = hashlib.sha256(archive).hexdigest()
        if sha256 != piece.sha256 or not sha256.startswith(self._bundle):
            raise BundleRefused(f"bundle {self._bundle}: what came has another sha256, {sha256}")
        return archive

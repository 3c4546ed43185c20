"""An authority of a test's own, and what it has certified, as files for servers and clients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True)
class Certificate:
    file: Path
    key: Path


class Authority:
    """Issues certificates into a folder; `file` is what its clients trust."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._authority = trustme.CA()
        self.file = folder / "authority.pem"
        self._authority.cert_pem.write_to_path(self.file)

    def issue(self, name: str, *identities: str) -> Certificate:
        """Certify a host of these names and addresses, or a client; `name` is the files'."""
        issued = self._authority.issue_cert(*(identities or (f"{name}.test",)))
        made = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        for blob in issued.cert_chain_pems:
            blob.write_to_path(made.file, append=True)
        issued.private_key_pem.write_to_path(made.key)
        made.key.chmod(0o600)
        return made

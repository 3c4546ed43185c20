"""Bundles of users' scripts: fetched from the server, kept on disk, and copied for each rank.

The agent writes a bundle's files into a temporary folder. The trainer copies them into another
folder, which its script may change. A trainer that is killed cannot remove its folder, so the agent
removes it, as the user who owns it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import os
import stat
import subprocess
import tempfile
from pathlib import Path

from farm.configuration.bundle import MAX_SCRIPT_BUNDLE_BYTES, ScriptBundle, read_archive
from farm.errors import InvalidSpec
from farm.messages.agents import WantedPiece
from farm.messages.commands import BundlePiece, StartRank
from farm.processes.private_files import make_private_folder
from worker_agent.trainer_process.user import TrainerUser

logger = logging.getLogger(__name__)

_MOST_BYTES = 200 * 10**6  # of all archives; the ones that were used least lately go first
_SUFFIX, _PARTIAL = ".zip", ".part"
_REMOVAL_LIMIT_S = 60.0
_REMOVED_TOGETHER = 500  # folders a command
_NAMED = 5


class BundleRefused(Exception):
    """Why a bundle cannot be had, in words for the job."""


class BundleFetch:
    """Brings the bundle that a job needs from the server, before its rank begins.

    Each heartbeat says which piece is wanted, and its answer brings it: so one piece at a time
    waits in the broker, and a lost one is asked for again. The order to begin is kept meanwhile.

    `waiting`: the order whose bundle is on its way; None: nothing is wanted.
    """

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
        if sum(map(len, self._pieces)) > MAX_SCRIPT_BUNDLE_BYTES:
            raise BundleRefused(
                f"bundle {self._bundle} is longer than {MAX_SCRIPT_BUNDLE_BYTES} bytes"
            )
        if len(self._pieces) < piece.piece_count:
            return None
        archive = b"".join(self._pieces)
        sha256 = hashlib.sha256(archive).hexdigest()
        if sha256 != piece.sha256 or not sha256.startswith(self._bundle):
            raise BundleRefused(f"bundle {self._bundle}: what came has another sha256, {sha256}")
        return archive


class BundleFolder:
    """Archives in one private folder, named by their sha256. `folder` need not be there yet."""

    def __init__(self, folder: Path, *, most_bytes: int = _MOST_BYTES) -> None:
        self._folder = folder
        self._most_bytes = most_bytes

    def has(self, digits: str) -> bool:
        """Whether the bundle whose sha256 begins so is here, unchanged."""
        try:
            return self._whole(digits) is not None
        except OSError:
            return False

    def put(self, archive: bytes) -> None:
        """Keep an archive. Raises OSError."""
        make_private_folder(self._folder)
        for left in self._folder.glob(f"*{_PARTIAL}"):  # by an agent that was killed
            left.unlink()
        path = self._folder / f"{hashlib.sha256(archive).hexdigest()}{_SUFFIX}"
        partial = path.with_suffix(_PARTIAL)
        try:
            partial.write_bytes(archive)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        self._forget_old(path)

    def write(self, digits: str, folder: Path, *, group: int | None = None) -> None:
        """Write a bundle's files into an empty folder.

        `group`: of the user that trainers run as, who can read them and nothing more.

        Raises:
            InvalidSpec: it is not here, or what is here is no bundle.
            OSError: it cannot be written.
        """
        for path, content in self._read(digits).files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        if group is not None:
            _let_read(folder, group)

    def _read(self, digits: str) -> ScriptBundle:
        found = self._whole(digits)
        if found is None:
            raise InvalidSpec("bundle", digits, "one that this agent has fetched, unchanged")
        path, archive = found
        os.utime(path)  # it was used
        return read_archive(archive)

    def _whole(self, digits: str) -> tuple[Path, bytes] | None:
        """Return an archive and where it is; None: it is not here, or damaged, and goes."""
        path = self._find(digits)
        if path is None:
            return None
        archive = path.read_bytes()
        if hashlib.sha256(archive).hexdigest() != path.stem:
            path.unlink(missing_ok=True)
            return None
        return path, archive

    def _find(self, digits: str) -> Path | None:
        if not digits.isalnum():
            return None
        found = self._folder.glob(f"{digits}*{_SUFFIX}")
        return next((path for path in found if path.is_file()), None)

    def _forget_old(self, newest: Path) -> None:
        held = sorted(self._folder.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime)
        total = sum(path.stat().st_size for path in held)
        for path in held:
            if total <= self._most_bytes:
                return
            if path != newest:
                total -= path.stat().st_size
                path.unlink()


def _let_read(folder: Path, group: int) -> None:
    try:
        os.chown(folder, -1, group)
    except PermissionError:
        # An agent that is not root gives nothing to a group. The system has a unit's temporary
        # files to itself (PrivateTmp); elsewhere others can read the files, and not change them.
        folder.chmod(0o755)
    else:
        folder.chmod(0o750)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def folder_prefix(state_dir: Path) -> Path:
    """Return what the paths of an agent's folders begin with: those of no other agent do."""
    own = hashlib.sha256(str(state_dir.resolve()).encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"benchfarm-{own}-"


def remove_folders(state_dir: Path, user: TrainerUser | None) -> None:
    """Remove every folder of the agent's ranks, of which no process may be left.

    `user`: as whom trainers run; None: as the agent. What cannot be removed is logged.
    """
    prefix = folder_prefix(state_dir)
    for owner in (user, None) if user is not None else (None,):
        uid = os.getuid() if owner is None else owner.uid
        found = sorted(prefix.parent.glob(f"{prefix.name}*"))
        # A script may have made more of them than one command line has room for.
        for begin in range(0, len(found), _REMOVED_TOGETHER):
            some = found[begin : begin + _REMOVED_TOGETHER]
            # A script may have taken from itself the right to change its folders. Those of others
            # are left alone: `chmod` follows a link that is named.
            if own := [str(path) for path in some if _is_folder_of(path, uid)]:
                _run(["chmod", "-R", "u+rwX", "--", *own], owner)
            _run(["rm", "-rf", "--", *map(str, some)], owner)
    if left := sorted(prefix.parent.glob(f"{prefix.name}*")):
        names = ", ".join(map(str, left[:_NAMED]))
        logger.warning("%d folders of scripts cannot be removed, such as %s", len(left), names)


def _is_folder_of(path: Path, uid: int) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == uid


def _run(command: list[str], user: TrainerUser | None) -> None:
    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            timeout=_REMOVAL_LIMIT_S,
            check=False,
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else user.groups,
        )
    except (OSError, subprocess.SubprocessError) as error:
        logger.warning("folders of scripts were not removed: %s", error)

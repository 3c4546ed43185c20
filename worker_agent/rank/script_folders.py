"""Temporary folders of the ranks that run scripts, and their removal.

The agent writes a bundle's files into one, and the trainer copies them into another that its script
may change. A trainer that is killed removes nothing, so the agent does, as the user who owns it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import subprocess
import tempfile
from pathlib import Path

from worker_agent.trainer_process.user import TrainerUser

logger = logging.getLogger(__name__)

_LIMIT_S = 60.0
_TOGETHER = 500  # a command
_NAMED = 5


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
        for begin in range(0, len(found), _TOGETHER):
            some = found[begin : begin + _TOGETHER]
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
            timeout=_LIMIT_S,
            check=False,
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else user.groups,
        )
    except (OSError, subprocess.SubprocessError) as error:
        logger.warning("folders of scripts were not removed: %s", error)

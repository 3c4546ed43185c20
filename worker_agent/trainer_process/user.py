"""The user account of trainers, which cannot read the agent's files and memory."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from farm.errors import InvalidSpec
from farm.processes import private_files
from worker_agent.trainer_process import privilege

_SETTING = "AGENT_TRAINER_USER"
_LIMIT_S = 30.0
_umask_of_trainers = -1  # of this process


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerUser:
    """`groups`: all that this user is in, as a GPU's devices may ask for."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    def environment(self, environment: dict[str, str]) -> dict[str, str]:
        """Return the environment as this user's own."""
        return {**environment, "HOME": self.home, "USER": self.name, "LOGNAME": self.name}


def find_user(name: str, *, program: Sequence[str]) -> TrainerUser:
    """Return who has that name, if this process may start trainers as him.

    `program`: what he has to be able to run.

    Raises:
        InvalidSpec: there is no such user, or this agent cannot, or he cannot.
    """
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise InvalidSpec(_SETTING, name, "a user of this machine") from None
    if entry.pw_uid in (0, os.geteuid()):
        raise InvalidSpec(_SETTING, name, "neither root nor the user that the agent runs as")
    if missing := privilege.missing_for_another_user():
        raise InvalidSpec(_SETTING, name, f"an agent with {', '.join(missing)}, as root has them")
    user = TrainerUser(
        name=name,
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        groups=tuple(os.getgrouplist(name, entry.pw_gid)),
        home=entry.pw_dir if Path(entry.pw_dir).is_dir() else "/",
    )
    _check(user, program)
    return user


def _check(user: TrainerUser, program: Sequence[str]) -> None:
    """See whether he can run the program, and where what he runs begins."""
    try:
        done = subprocess.run(
            program,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            cwd="/",
            user=user.uid,
            group=user.gid,
            extra_groups=user.groups,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        expected = f"a user who may run {program[0]} ({error})"
        raise InvalidSpec(_SETTING, user.name, expected) from None
    if done.returncode != 0:
        error_lines = done.stderr.strip().splitlines()
        raise InvalidSpec(
            _SETTING,
            user.name,
            f"a user who may run {program[0]} ({error_lines[-1] if error_lines else 'fails'})",
        )


def start_as(
    user: TrainerUser | None,
    command: Sequence[str],
    *,
    stdin: IO[bytes] | int,
    stdout: IO[bytes] | int,
    stderr: IO[bytes] | int,
    environment: dict[str, str],
    folder: Path,
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own; None: as the agent's own user, in `folder`.

    What it writes is its own affair, so it has the umask that the agent was started with.

    Raises OSError.
    """
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=environment if user is None else user.environment(environment),
        # The agent's directory is closed to another user.
        cwd=folder if user is None else "/",
        start_new_session=True,
        user=None if user is None else user.uid,
        group=None if user is None else user.gid,
        extra_groups=None if user is None else user.groups,
        umask=_umask_of_trainers,
    )


def keep_files_private() -> None:
    """Let nobody but this agent's user read what it writes from now on."""
    global _umask_of_trainers
    _umask_of_trainers = private_files.keep_files_private()


def close_to_others(state_dir: Path) -> None:
    """Let nobody but this agent's user into its directory. Raises InvalidSpec."""
    try:
        private_files.make_private_folder(state_dir)
        state_dir.chmod(0o700)
    except OSError as error:
        raise InvalidSpec(
            "AGENT_STATE_DIR", str(state_dir), f"a folder of the agent's own ({error})"
        ) from None

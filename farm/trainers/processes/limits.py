"""Lowers the resource limits of a trainer, which cannot raise them again."""

from __future__ import annotations

import ctypes
import logging
import resource

from farm.messages.trainer_lines import TrainerLimits

logger = logging.getLogger(__name__)

_PR_SET_NO_NEW_PRIVS = 38


def limit(limits: TrainerLimits) -> None:
    """Hold this process, and all that it starts, within the limits.

    A limit that is lower already stays. A program that would give it another user's rights
    (set-user-ID) does not do so any more.
    """
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_DATA: limits.memory_bytes,
        resource.RLIMIT_NPROC: limits.process_count,
        resource.RLIMIT_NOFILE: limits.open_file_count,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_CPU: limits.cpu_s,
    }
    for kind, value in wanted.items():
        if value is None:
            continue
        _, hard = resource.getrlimit(kind)
        lowered = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(kind, (lowered, lowered))
        except (OSError, ValueError) as error:
            logger.warning("limit %d stays as it was: %s", kind, error)

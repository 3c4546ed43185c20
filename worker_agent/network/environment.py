"""The environment variables that the agent's own helper processes receive."""

from __future__ import annotations

import os

# To find this interpreter's modules, and to write the text that the agent would. The rest stays
# behind: the broker's URL carries a password.
_KEPT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "HOME", "LANG", "LC_ALL", "TZ")


def plain_environment() -> dict[str, str]:
    """Return the environment for a process that needs no setting."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ}

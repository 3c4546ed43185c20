"""A real agent, except that it speaks the version of messages that its first argument says."""

from __future__ import annotations

import sys

import farm.core.messages


def main() -> int:
    farm.core.messages.WIRE_VERSION = int(sys.argv[1])  # before anybody has imported it by value
    from worker_agent.__main__ import main as run

    return run([])


if __name__ == "__main__":
    sys.exit(main())

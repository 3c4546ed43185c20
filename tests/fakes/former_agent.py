"""A real agent, except that it speaks the last version of messages before the first release."""

from __future__ import annotations

import sys

import farm.messages.envelope

FORMER_WIRE_VERSION = 7


def main() -> int:
    farm.messages.envelope.WIRE_VERSION = FORMER_WIRE_VERSION  # before others import it by value
    from worker_agent.__main__ import main as run

    return run([])


if __name__ == "__main__":
    sys.exit(main())

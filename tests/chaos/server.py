"""A process of the farm's server, with the bug in it that CHAOS_PLANT names, if any."""

from __future__ import annotations

import os
import sys

from farm.cli.main import main
from tests.chaos import planted

if __name__ == "__main__":
    planted.plant(os.environ.get("CHAOS_PLANT"))
    sys.exit(main(["run", *sys.argv[1:]]))

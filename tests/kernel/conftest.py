"""These tests run in the guest of `make kernel`: its kernel has netem, and its clock is its own."""

from __future__ import annotations

import os

if "KERNEL_GUEST" not in os.environ:
    collect_ignore_glob = ["test_*.py"]

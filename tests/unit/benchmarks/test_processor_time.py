"""Processor time: that of children that have ended counts."""

from __future__ import annotations

import subprocess
import sys

import psutil

from benchmarks.processor_time import processor_s, tree_processor_s

_BURN = "import time\nwhile time.process_time() < 0.2: pass"


def test_a_child_that_has_ended_and_was_waited_for_counts() -> None:
    own = psutil.Process()
    alone_s, tree_s = processor_s([own]), tree_processor_s(own)
    subprocess.run([sys.executable, "-I", "-S", "-c", _BURN], check=True)
    assert processor_s([own]) - alone_s >= 0.18
    assert tree_processor_s(own) - tree_s >= 0.18

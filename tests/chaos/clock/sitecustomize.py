"""A wrong clock for whatever Python starts with this folder on its path.

CHAOS_CLOCK_FILE holds eight bytes, the seconds by which `time.time()` is wrong, and may change at
any moment. The machine's own clock is everybody's, and stays as it is.
"""

import mmap
import os
import struct
import time
from pathlib import Path

_file = Path(os.environ.get("CHAOS_CLOCK_FILE", ""))
if _file.is_file():
    with _file.open("rb") as _opened:
        _offset = mmap.mmap(_opened.fileno(), 8, prot=mmap.PROT_READ)
    _right_time = time.time

    def _wrong_time() -> float:
        return _right_time() + float(struct.unpack("<d", _offset[:8])[0])

    time.time = _wrong_time

"""A wrong clock for whatever Python starts with this folder on its path.

CHAOS_CLOCK_FILE holds eight bytes, the seconds by which `time.time()` and `datetime.now()` are
wrong, and may change at any moment. The machine's own clock is everybody's, and stays as it is.
"""

import ctypes
import datetime
import gc
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

    def _wrong_by_s() -> float:
        return float(struct.unpack("<d", _offset[:8])[0])

    def _wrong_time() -> float:
        return _right_time() + _wrong_by_s()

    time.time = _wrong_time

    # The class itself is changed, or what others make of it would be of another class.
    [_members] = gc.get_referents(datetime.datetime.__dict__)
    _right_now = _members["now"]

    def _wrong_now(
        cls: type[datetime.datetime], tz: datetime.tzinfo | None = None
    ) -> datetime.datetime:
        right: datetime.datetime = _right_now.__get__(None, cls)(tz)
        return right + datetime.timedelta(seconds=_wrong_by_s())

    _members["now"] = classmethod(_wrong_now)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime.datetime))

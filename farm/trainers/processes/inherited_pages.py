"""Give a forked process memory of its own, as one that had imported everything itself.

A fork shares its parent's memory until either writes to it, and then the kernel copies page by
page: in the middle of measured steps, each copy wherever memory happens to be free. Done at once
and before anything is measured, the steps of a forked trainer are as long as those of one that was
started anew.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Iterator
from pathlib import Path

_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of linux/mman.h; kernels before 5.14 do not know it
# Of an entry of /proc/PID/pagemap, see the kernel's Documentation/admin-guide/mm/pagemap.rst.
_ENTRY_BYTES = 8
_IS_PRESENT = 1 << 63
_IS_OF_A_FILE = 1 << 61
# Address space that was only reserved, as some libraries do by the terabyte, is not searched.
_LARGEST_MAPPING_BYTES = 8 << 30


def own_inherited_pages() -> int:
    """Copy what is shared with the parent by copy-on-write; return how many bytes that was.

    A kernel that cannot do it, or says nothing of its pages, leaves them shared: 0, or what was
    copied until then. Nothing else is different then but the moment of the copies.
    """
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    copied_bytes = 0
    try:
        for begin, end in list(_inherited_ranges()):
            if madvise(begin, end - begin, _POPULATE_WRITE) != 0:
                break
            copied_bytes += end - begin
    except OSError:  # no /proc, or one that is closed to us
        pass
    return copied_bytes


def _inherited_ranges() -> Iterator[tuple[int, int]]:
    """Yield begin and end of every run of pages that may be written and hold data already."""
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    pagemap = os.open("/proc/self/pagemap", os.O_RDONLY)
    try:
        for begin, end in _writable_mappings():
            entries = array("Q")
            count = (end - begin) // page_bytes
            offset = begin // page_bytes * _ENTRY_BYTES
            entries.frombytes(os.pread(pagemap, count * _ENTRY_BYTES, offset))
            run = begin
            for index, entry in enumerate(entries):
                at = begin + index * page_bytes
                if entry & (_IS_PRESENT | _IS_OF_A_FILE) != _IS_PRESENT:
                    if at > run:
                        yield run, at
                    run = at + page_bytes
            last = begin + len(entries) * page_bytes
            if last > run:
                yield run, last
    finally:
        os.close(pagemap)


def _writable_mappings() -> Iterator[tuple[int, int]]:
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, permissions, *_ = line.split(maxsplit=2)
        begin, end = (int(address, 16) for address in addresses.split("-"))
        if permissions == "rw-p" and end - begin <= _LARGEST_MAPPING_BYTES:
            yield begin, end

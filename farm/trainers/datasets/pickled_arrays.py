"""What stands in for NumPy while a pickle of arrays is read.

A pickle is a program, and NumPy's own classes do not withstand it: a forged state of `dtype`
makes an array of bytes one of objects, and its bytes pointers. So nothing of NumPy is within its
reach; what it says of an array is written down here, checked, and made into one.
"""

from __future__ import annotations

import pickle

import numpy as np
from numpy.typing import NDArray


class PickledType:
    """In the place of `numpy.dtype`, of which images need one."""

    def __init__(self, name: object, *_: object) -> None:
        if name not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"expected an array of bytes, got one of {name!r}")

    def __setstate__(self, state: object) -> None:
        """Pass over the state, which for bytes says nothing."""


class PickledArray:
    """In the place of `numpy.ndarray`, whose state brings the content."""

    def __init__(self, *_: object) -> None:
        self.content: NDArray[np.uint8] = np.zeros(0, np.uint8)

    def __setstate__(self, state: object) -> None:
        match state:
            case (int(), tuple(shape), PickledType(), bool() | int() as is_fortran, bytes(data)):
                flat = np.frombuffer(data, np.uint8)
                self.content = flat.reshape(shape, order="F" if is_fortran else "C")
            case _:
                raise pickle.UnpicklingError("expected the state of an array of bytes")


def bytes_of(value: object) -> NDArray[np.uint8]:
    """Return what a pickled array held. Raises ValueError: it is none."""
    match value:
        case PickledArray(content=content):
            return content
    raise ValueError(f"expected an array of bytes, got a {type(value).__name__}")


def _encode(text: object, encoding: object) -> bytes:
    """In the place of `_codecs.encode`, by which Python 3 writes bytes in an old pickle."""
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"expected a text in latin1, got {encoding!r}")
    return text.encode("latin1")


STAND_INS: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): PickledArray,
    ("numpy", "ndarray"): PickledArray,
    ("numpy", "dtype"): PickledType,
    ("_codecs", "encode"): _encode,
}

"""Numbers of distinct rows, to look thousands of rows up at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Found = tuple[NDArray[np.int64], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class Numbering:
    """Rows are numbered one column after the other, so that what is looked up is always one number.

    `levels`: of each column its values, ascending. `codes`: with each column added, the number so
    far times the count of its levels, plus the position of its value.
    """

    levels: tuple[NDArray[np.float64], ...]
    codes: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(cls, rows: NDArray[np.float64]) -> Numbering:
        """Number the distinct ones of (n, n_columns) from 0."""
        import numpy as np

        levels, codes = [], []
        numbers = np.zeros(len(rows), dtype=np.int64)
        for values in rows.T:
            own_levels, at = np.unique(values, return_inverse=True)
            own_codes, numbers = np.unique(numbers * len(own_levels) + at, return_inverse=True)
            levels.append(own_levels)
            codes.append(own_codes)
        return cls(tuple(levels), tuple(codes))

    def numbers(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the number of each row, (n,), and -1 of what is none of them."""
        import numpy as np

        numbers = np.zeros(len(rows), dtype=np.int64)
        are_known = np.ones(len(rows), dtype=np.bool_)
        for values, levels, codes in zip(rows.T, self.levels, self.codes, strict=True):
            if not len(levels):
                return np.full(len(rows), -1)
            at, are_levels = _find(levels, values)
            numbers, are_codes = _find(codes, numbers * len(levels) + at)
            are_known &= are_levels & are_codes
        return np.where(are_known, numbers, -1)


def _find(
    ascending: NDArray[np.float64] | NDArray[np.int64],
    values: NDArray[np.float64] | NDArray[np.int64],
) -> Found:
    """Return a position for each value and whether it is there."""
    import numpy as np

    at = np.minimum(ascending.searchsorted(values), len(ascending) - 1)
    return at, ascending[at] == values

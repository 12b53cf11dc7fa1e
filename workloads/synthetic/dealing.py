"""Rows emitted per row: the integer part of the selectivity, and one more for some records.

A multiplicative hash of the record and the component selects the records with one more row, so that the answer depends
only on the records, for any number of executors.
"""

from collections.abc import Callable
from typing import Any
from zlib import crc32

import msgspec

_FACTOR = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_HIGH = 32


class Dealing(msgspec.Struct, frozen=True):
    """Selectivity of a component as integers: `copies` for all records, one more for hashes below `bar`."""

    copies: int
    bar: int
    salt: int

    def of(self, record: int) -> int:
        """Return the number of rows for one row of `record`."""
        return self.copies + ((((record ^ self.salt) * _FACTOR) & _MASK) >> _HIGH < self.bar)

    def of_all(self, records: Any) -> Any:
        """Return the numbers of rows for a NumPy array of uint64."""
        import numpy as np

        hashed = (records ^ np.uint64(self.salt)) * np.uint64(_FACTOR)
        return self.copies + (hashed >> np.uint64(_HIGH) < np.uint64(self.bar)).astype(np.int64)

    @property
    def counter(self) -> Callable[[int], int] | None:
        """Return `of`, or None if it is 1 for every record."""
        return None if (self.copies, self.bar) == (1, 0) else self.of


def dealing(component: str, selectivity: float) -> Dealing:
    """Return the selectivity of `component`, `selectivity` rows per row on average."""
    copies = int(selectivity)
    bar = round((selectivity - copies) * (1 << _HIGH))
    return Dealing(copies, bar, crc32(component.encode()) * _FACTOR & _MASK)

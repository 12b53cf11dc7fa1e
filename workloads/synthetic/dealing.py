"""How many rows a component makes of one: the whole part of its selectivity, and one more for some records.

Which records get one more is decided by a multiplicative hash of the record and the component, so that the answer
follows from the records alone, on any number of executors.
"""

from collections.abc import Callable
from typing import Any
from zlib import crc32

import msgspec

_FACTOR = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_HIGH = 32


class Dealing(msgspec.Struct, frozen=True):
    """A component's selectivity as whole numbers: `copies` for all records, one more for hashes below `bar`."""

    copies: int
    bar: int
    salt: int

    def of(self, record: int) -> int:
        """Return rows that come of one row of `record`."""
        return self.copies + ((((record ^ self.salt) * _FACTOR) & _MASK) >> _HIGH < self.bar)

    def of_all(self, records: Any) -> Any:
        """Return the same for a NumPy array of uint64."""
        import numpy as np

        hashed = (records ^ np.uint64(self.salt)) * np.uint64(_FACTOR)
        return self.copies + (hashed >> np.uint64(_HIGH) < np.uint64(self.bar)).astype(np.int64)

    @property
    def counter(self) -> Callable[[int], int] | None:
        """`of`, or None where it is 1 for every record."""
        return None if (self.copies, self.bar) == (1, 0) else self.of


def dealing(component: str, selectivity: float) -> Dealing:
    """Return how `component` deals with records when it makes `selectivity` rows of one on average."""
    copies = int(selectivity)
    bar = round((selectivity - copies) * (1 << _HIGH))
    return Dealing(copies, bar, crc32(component.encode()) * _FACTOR & _MASK)

"""Digest of a multiset of rows, independent of the order of rows and of their distribution over executors.

The digest is the number of rows and the sum, modulo 2**128, of a 128-bit hash (BLAKE2b) of each row's codec bytes, so
that digests of parts add up to that of the whole. Equal digests of different multisets are as unlikely as a collision
of the hash.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from workloads.key_groups import codec_bytes
from workloads.operators import Row

MODULUS = 1 << 128

MOST_COUNTED = 1 << 16
"""Distinct rows that a multiset counts before it begins to hash them."""


class Digest(NamedTuple):
    """Number of rows, and the sum of their hashes modulo 2**128."""

    rows: int
    total: int

    def __add__(self, other: object) -> "Digest":
        if not isinstance(other, Digest):
            return NotImplemented
        return Digest(self.rows + other.rows, (self.total + other.total) % MODULUS)

    @property
    def row(self) -> tuple[int, str]:
        """As a row of an answer, see `SCHEMA`."""
        return self.rows, f"{self.total:032x}"


SCHEMA: Mapping[str, str] = {"tuples": "int", "digest": "str"}
"""Field -> type of `Digest.row`: the sum is written as 32 hexadecimal digits."""

EMPTY = Digest(0, 0)


def digest_of(counted: Mapping[Row, int]) -> Digest:
    """Return the digest of a multiset with the given count of each row."""
    total = 0
    for row, times in counted.items():
        total += times * int.from_bytes(blake2b(codec_bytes(row), digest_size=16).digest(), "big")
    return Digest(sum(counted.values()), total % MODULUS)


def merged_digest(rows: Iterable[Row]) -> Digest:
    """Return the digest of the whole from the answer rows of its parts.

    >>> merged_digest([(2, "0" * 31 + "5"), (1, "f" * 32)]).row
    (3, '00000000000000000000000000000004')
    """
    whole = EMPTY
    for tuples, digest in rows:
        whole += Digest(tuples, int(digest, 16))
    return whole


def added(one: tuple[int, str], other: tuple[int, str]) -> tuple[int, str]:
    """Return the digest of two parts together, as rows; merges `KeyedState` of digests."""
    return merged_digest([one, other]).row


class RowMultiset:
    """Multiset of rows, kept as a digest.

    Equal rows are counted and hashed together, so a row costs a fraction of a hash. When as many distinct rows are
    counted as may be, they are set aside, and hashed little by little while others come.
    """

    def __init__(self, digests: Iterable[Row] = ()) -> None:
        """Start with the rows that have these digests, rows as those of `Digest.row`."""
        self._hashed = merged_digest(digests)
        self._counted: Counter[Row] = Counter()
        self._aside: Counter[Row] = Counter()

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows; twice `MOST_COUNTED` distinct ones at most, and those of one call, are kept in memory."""
        before = len(self._counted)
        self._counted.update(rows)
        if self._aside:
            # Twice as many as are new, so that none is left when the next ones are set aside.
            self._hash_aside(2 * (len(self._counted) - before))
        if len(self._counted) > MOST_COUNTED:
            self._hash_aside(len(self._aside))
            self._counted, self._aside = self._aside, self._counted

    def add_counted(self, counted: Mapping[Row, int]) -> None:
        """Add distinct rows, each as often as its count says."""
        # `Counter.update` adds the counts of a mapping.
        self.add(counted)

    @property
    def digest(self) -> Digest:
        """Return the digest of all rows so far."""
        self._hash_aside(len(self._aside))
        self._hashed += digest_of(self._counted)
        self._counted.clear()
        return self._hashed

    def _hash_aside(self, most: int) -> None:
        """Hash up to `most` of the rows that are set aside."""
        part = dict([self._aside.popitem() for _ in range(min(most, len(self._aside)))])
        self._hashed += digest_of(part)

"""The state of an executor at a barrier, and its encoding as bytes.

offset  size  field
0       4     "MLRS"
4       1     version of this layout
5       8     position   records emitted by a spout executor; 0 for a bolt
13      8     next tick  number of the next tick that a spout executor will emit
21      8     emitted    rows that a bolt executor has emitted since the sources' start; 0 for a spout
29      8     processed  rows that it has processed since then
37      8     length     of the following bytes, to detect a truncated copy
45            the result of the operator's `snapshot`
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from agents.protocol import Worked
from inventory.errors import RunError

_HEAD = Struct("<4sBqqqqq")
_MAGIC, _VERSION = b"MLRS", 2


class Snapshot(NamedTuple):
    """The state of an executor."""

    operator: bytes
    position: int = 0
    next_tick: int = 0
    worked: Worked = Worked()

    def pieces(self) -> Sequence[bytes]:
        """Encode as pieces to be written one after the other, so that a large state is not copied."""
        emitted, processed = self.worked
        head = _HEAD.pack(_MAGIC, _VERSION, self.position, self.next_tick, emitted, processed, len(self.operator))
        return head, self.operator

    @classmethod
    def read(cls, stored: bytes) -> "Snapshot":
        """Decode the bytes of `pieces`.

        Raises:
            RunError: these are other bytes, or they are truncated.
        """
        if len(stored) < _HEAD.size or stored[:5] != _MAGIC + bytes([_VERSION]):
            raise RunError(f"no snapshot of version {_VERSION}: {len(stored)} bytes that begin with {stored[:8]!r}")
        _, _, position, next_tick, emitted, processed, length = _HEAD.unpack_from(stored)
        if len(stored) != _HEAD.size + length:
            raise RunError(f"a snapshot of {len(stored)} bytes that had {_HEAD.size + length}")
        return cls(stored[_HEAD.size :], position, next_tick, Worked(emitted, processed))

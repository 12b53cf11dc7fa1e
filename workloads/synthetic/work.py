"""Busy work of a given number of microseconds: CPU, not sleep.

One microsecond is what the controller's CPU does in that time, measured when the input is prepared. Every node
does the same work for a row, however fast it is: a slower node takes longer, which is what a testbed is for.
"""

import time
from itertools import repeat
from pathlib import Path
from zlib import crc32

import msgspec
from msgspec import Struct

_BLOCK = bytes(range(256)) * 2
_ROUNDS = 7
_ROUND_S = 0.02


class Calibration(Struct, frozen=True):
    """Number of loop turns per microsecond of CPU time."""

    turns_per_us: float


def work(turns: int) -> int:
    """Keep the CPU busy; the unused result prevents the loop from being optimised away."""
    checksum = 0
    for _ in repeat(None, turns):
        checksum = crc32(_BLOCK, checksum)
    return checksum


def calibrate() -> Calibration:
    """Measure this CPU for a sixth of a second. Return the fastest, least disturbed of several rounds."""
    turns, best = 1_000, 0.0
    for _ in range(_ROUNDS):
        done, begun = 0, time.thread_time()
        while (taken := time.thread_time() - begun) < _ROUND_S:
            work(turns)
            done += turns
        best = max(best, done / taken / 1e6)
    return Calibration(best)


def read_calibration(path: Path) -> Calibration:
    """Return the measurement made when the input was prepared."""
    return msgspec.json.decode(path.read_bytes(), type=Calibration)

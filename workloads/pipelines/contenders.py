"""Trips on which no listing depends are left out where they are read.

A listing has the ten routes with the most trips in a window. For all windows that end in the same short piece of time,
trips that are in each of them give a route a count that it has at least, and trips in any of them one that it has at
most. A route that has at most less than the tenth one has at least is listed in none of them. Trips all of whose
windows are such ones may go: what is left of their route only counts less, and a route that is not listed stays so.
"""

import numpy as np

from workloads.recordings.fields import Mask, Values

ROUNDS = (2, 6)
"""Pieces of time in a window: few first, which is quick, and more for the trips that are then left."""

_MOST_PIECES = 1 << 22


def contenders(times: Values, routes: Values, window_s: int, listed: int) -> Mask:
    """Which trips may count for a listing, at any time at all.

    Args:
        times: of the trips, in seconds, never falling. Of the first and the last second some trips may be missing, and
            all those outside; windows that reach there keep all of their trips.
        routes: of the trips, whole numbers below 2^40.
        window_s: a listing at T is of the trips in (T - window_s, T]; a multiple of all `ROUNDS`.
        listed: how many routes a listing has.
    """
    kept = np.arange(len(times))
    for pieces in ROUNDS:
        kept = kept[_round(times[kept], routes[kept], window_s, pieces, listed)]
    found = np.zeros(len(times), np.bool_)
    found[kept] = True
    return found


def _round(times: Values, routes: Values, window_s: int, pieces: int, listed: int) -> Mask:
    """The same, by pieces of time of `window_s / pieces` seconds.

    Piece p has the trips in (p - 1, p] lengths. Windows that end in [p, p + 1) lengths have all trips of the pieces
    p - pieces + 2 .. p, and none outside of p - pieces + 1 .. p + 1.
    """
    if not len(times):
        return np.zeros(0, np.bool_)
    length = window_s // pieces
    piece = -(-times // length)
    piece -= piece[0] - pieces
    many = int(piece[-1]) + pieces + 1
    if many > min(len(times), _MOST_PIECES):
        # Next to no trips, and keys might be too large.
        return np.ones(len(times), np.bool_)
    keys, place, counts = np.unique(routes * many + piece, return_inverse=True, return_counts=True)
    here = keys % many
    before = np.concatenate(([0], np.cumsum(counts)))

    def trips(first: Values, last: Values) -> Values:
        """Of the same route in some pieces."""
        behind = np.searchsorted(keys, keys + (last - here), side="right")
        found: Values = before[behind] - before[np.searchsorted(keys, keys + (first - here))]
        return found

    least = trips(here - pieces + 2, here)
    falling = np.lexsort((-least, here))
    bounds = np.searchsorted(here[falling], np.arange(many + 1))
    needed = np.zeros(many + pieces, np.int64)
    # Of the pieces with the first and the last trips, some may be missing.
    for whole in range(2 * pieces, int(piece[-1]) - 1):
        if bounds[whole] + listed <= bounds[whole + 1]:
            needed[whole] = least[falling[bounds[whole] + listed - 1]]
    kept = np.zeros(len(keys), np.bool_)
    for at in (here + ahead for ahead in range(-1, pieces)):
        kept |= trips(at - pieces + 1, at + 1) >= needed[at]
    mask: Mask = kept[place]
    return mask

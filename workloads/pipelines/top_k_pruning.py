"""Trips on which no listing depends are left out where they are read.

A listing has the ten routes with the most trips in a window. For all windows that end in the same short piece of time,
trips that are in each of them give a route a count that it has at least, and trips in any of them one that it has at
most. A route that has at most less than the tenth one has at least is listed in none of them. Trips all of whose
windows are such ones may go: what is left of their route only counts less, and a route that is not listed stays so.
"""

import numpy as np

from workloads.recordings.fields import Mask, Values

ROUNDS = (2, 10)
"""Pieces of time in a window: few first, which is quick, and more for the trips that are then left."""

_MOST_PIECES = 1 << 22
_FEW = 8
"""With fewer trips per piece nothing is left out."""

_MANY = 63
"""So many trips are told from fewer, and not from more."""


def contenders(times: Values, routes: Values, window_s: int, listed: int) -> Mask:
    """Return which trips may count for a listing, at any time at all.

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
    """Return the same, by pieces of time of `window_s / pieces` seconds.

    Piece p has the trips in (p - 1, p] lengths. Windows that end in [p, p + 1) lengths have all trips of the pieces
    p - pieces + 2 .. p, and none outside of p - pieces + 1 .. p + 1.
    """
    if not len(times):
        return np.zeros(0, np.bool_)
    length = window_s // pieces
    piece = -(-times // length)
    piece -= piece[0] - pieces
    many = int(piece[-1]) + pieces + 1
    if many > min(len(times) // _FEW, _MOST_PIECES):
        # Tables would be larger than the trips are, and keys too large.
        return np.ones(len(times), np.bool_)
    keys, place, counts = np.unique(routes * many + piece, return_inverse=True, return_counts=True)
    here = keys % many
    trips = _Trips(keys, counts, pieces)
    # A route counts for a window, which is known by the piece that it ends behind, at its last piece with trips there.
    having = np.zeros((many + pieces) * (_MANY + 1), np.int64)
    for ahead in range(pieces - 1):
        last = trips.gap > ahead
        least = np.minimum(trips.among(ahead - pieces + 2, 0)[last], _MANY)
        having += np.bincount((here[last] + ahead) * (_MANY + 1) + least, minlength=len(having))
    at_least = having.reshape(-1, _MANY + 1)[:, ::-1].cumsum(axis=1)[:, ::-1]
    needed = np.maximum((at_least >= listed).sum(axis=1) - 1, 0)
    # Of the pieces with the first and the last trips, some may be missing.
    needed[: 2 * pieces] = needed[int(piece[-1]) - 1 :] = 0
    kept = np.zeros(len(keys), np.bool_)
    for ahead in range(-1, pieces):
        kept |= trips.among(ahead - pieces + 1, ahead + 1) >= needed[here + ahead]
    mask: Mask = kept[place]
    return mask


class _Trips:
    """How many trips the same route has in pieces around each of its own.

    Attributes:
        gap: how many pieces later the route has trips again; more than there are: it has not.
    """

    def __init__(self, keys: Values, counts: Values, reach: int) -> None:
        """Count them.

        Args:
            keys: a whole number per route and piece with trips, rising; those of a route's pieces follow one another,
                and those of two routes are more than `reach` apart.
            counts: trips of each.
            reach: how many pieces away trips are asked for.
        """
        padded = np.append(keys, np.iinfo(np.int64).max)
        self.gap = np.diff(padded)
        before = np.concatenate(([0], np.cumsum(counts)))
        # A step further, there is one key more or none: much quicker than to search for it.
        at = np.arange(1, len(padded))
        self._until = [before[at]]
        for pieces in range(1, reach + 1):
            at = at + (padded[at] == keys + pieces)
            self._until.append(before[at])
        at = np.arange(len(keys))
        self._since = [before[at]]
        for pieces in range(1, reach + 1):
            at = at - (padded[at - 1] == keys - pieces)
            self._since.append(before[at])

    def among(self, first: int, last: int) -> Values:
        """Return trips in the pieces from `first` (0 or less) to `last` (0 or more) behind each."""
        found: Values = self._until[last] - self._since[-first]
        return found

"""State that is copied while its operator works, as a move copies it: all keys, those changed since, and the rest.

If all of it is by key, the two operators share the keys then, and the copy gets the others from the first operator.
"""

from random import Random
from typing import Any

from workloads.operator_state import OperatorState
from workloads.operators import Operator

MOST_KEYS = 40
"""Most keys that are copied at once, so that a copy takes several pieces."""

FINISHED = 0.2
"""Probability that a copy is finished instead of continued."""


GIVEN = 0.3
"""Part of the keys that the copy gets from the first operator."""


class StateCopy:
    """A copy that is under way; rows may come between any two calls.

    Attributes:
        target: the operator that gets the state.
    """

    def __init__(self, source: Operator, target: Operator, random: Random) -> None:
        """Begin to copy the state of `source`."""
        self._source, self.target, self._random = OperatorState(source), target, random
        self._copy = OperatorState(target)
        self._changed: set[Any] = set()
        self._source.track(self._changed)
        self._left = self._source.all_keys()

    def proceed(self) -> bool:
        """Copy some state, or the rest of it; return whether that was the rest."""
        if self._random.random() < FINISHED:
            self._source.track(None)
            self._copy.put(self._source.part(self._changed.union(self._left), with_own=True))
            if self._source.is_by_key and not self._source.merges:
                self._share()
            self._copy.loaded()
            return True
        if not self._left:
            self._left = list(self._changed)
            self._changed.clear()
        count = self._random.randint(1, MOST_KEYS)
        keys, self._left = self._left[:count], self._left[count:]
        self._copy.put(self._source.part(keys))
        return False

    def _share(self) -> None:
        given = {key for key in self._copy.all_keys() if self._random.random() < GIVEN}
        self._copy.drop(given)
        self._source.drop([key for key in self._source.all_keys() if key not in given])
        self._copy.absorb(self._source)

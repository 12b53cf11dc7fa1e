"""State that is copied while its operator works, as a move copies it: all keys, those changed since, and the rest.

If the operator is `Divisible`, the two share the keys then, and the copy gets the others from the first operator.
"""

from random import Random
from typing import Any

from workloads.key_groups import key_group
from workloads.operators import Divisible, Incremental, Operator

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
        """Begin to copy the state of `source`.

        Raises:
            TypeError: an operator does not offer it.
        """
        self._source, self.target, self._random = _as_incremental(source), target, random
        self._changed: set[Any] = set()
        self._source.track_changes(self._changed)
        self._left = list(self._source.state_keys())

    def proceed(self) -> bool:
        """Copy some state, or the rest of it; return whether that was the rest.

        Raises:
            TypeError: the state is not bytes.
        """
        if self._random.random() < FINISHED:
            self._source.track_changes(None)
            self._copy(list(self._changed.union(self._left)))
            if isinstance(self._source, Divisible) and isinstance(self.target, Divisible):
                self._share(self._source, self.target)
            return True
        if not self._left:
            self._left = list(self._changed)
            self._changed.clear()
        count = self._random.randint(1, MOST_KEYS)
        keys, self._left = self._left[:count], self._left[count:]
        self._copy(keys)
        return False

    def _share(self, source: Divisible, target: Divisible) -> None:
        given = {key for key in target.state_keys() if self._random.random() < GIVEN}
        for key in given:
            key_group(source.key_of(key))
        target.release_keys(given)
        source.release_keys([key for key in source.state_keys() if key not in given])
        target.absorb(source)

    def _copy(self, keys: list[Any]) -> None:
        state: object = self._source.snapshot_keys(keys)
        if not isinstance(state, bytes):
            raise TypeError(f"snapshot_keys() returns {type(state).__name__}, not bytes")
        _as_incremental(self.target).restore_keys(state)


def can_be_copied(operator: Operator) -> bool:
    """Return whether the operator offers its state for a copy."""
    return isinstance(operator, Incremental)


def _as_incremental(operator: Operator) -> Incremental:
    if not isinstance(operator, Incremental):
        raise TypeError("only some of its operators have state_keys() and track_changes()")
    return operator

"""Copies of state ahead of a barrier: of an executor that moves, and of keys that get other owners.

Pre-copy, as live migration of virtual machines does it (Clark et al. 2005): the first round copies all keys, every
further round those that have changed since the one before began. Rounds end when one was small, or not half as large as
the one before. At the barrier only the keys that have not been copied since their last change follow.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from agents.worker.executors.executor import guarded
from agents.worker.wire import frame
from workloads.key_groups import groups_of
from workloads.operator_state import OperatorState, foreign

PIECE_BYTES = 64 * 1024
"""Intended size of a piece: rows of other executors wait a millisecond for it; of 256 KiB, p99 was eight times that."""

SMALL_ROUND_BYTES = 1_000_000
"""After a smaller round the executor moves: what has changed meanwhile is smaller still."""

FIRST_KEYS = 64

SORTED_KEYS = 4096
"""Most keys whose groups are determined for a piece: a few milliseconds."""


class TakenOver(NamedTuple):
    """State that an executor has taken over at a barrier.

    Attributes:
        source: executor that it continues; empty: itself.
        cut_ns: end of the work of that one, on the clock of its node.
        cpu_ns: CPU time of taking, packing and restoring the state so far, copies included.
        nbytes: size of all that was sent, copies included.
    """

    source: str
    cut_ns: int
    cpu_ns: int
    nbytes: int


class LeavingState:
    """A copy, in the old worker, of keys of an executor for those that own them next: for itself, if it moves.

    The groups of keys are determined little by little, because that takes as long as copying them. Of an operator that
    keeps its keyed state in another form, everything waits for the barrier.

    Attributes:
        stays: whether some keys stay, so that the operator is kept.
        copied: keys that leave, some of them repeatedly.
    """

    def __init__(self, state: OperatorState, receivers: int | Mapping[int, int | None], fields: int = 0) -> None:
        """Begin a copy.

        Args:
            state: of the executor's operator.
            receivers: the executor that gets all keys, by number; or the one for each of the executor's groups, where
                None means that they stay.
            fields: number of fields of the key by which the executor gets rows, if groups count.
        """
        self._state, self._fields, self._receivers = state, fields, receivers
        self.cpu_ns = 0
        numbers = {receivers} if isinstance(receivers, int) else set(receivers.values())
        self.stays = None in numbers
        self._waiting: dict[int, set[Any]] = {receiver: set() for receiver in numbers if receiver is not None}
        self._sizes = dict.fromkeys(self._waiting, FIRST_KEYS)
        self.copied: list[Any] = []
        self._changed: set[Any] = set()
        self._unsorted: list[Any] = []
        # An executor that only gets keys need not look at its own.
        if self._waiting and state.can_be_copied:
            state.track(self._changed)
            self._unsorted = state.all_keys()

    def has(self, receiver: int) -> bool:
        """Return whether some keys go to this executor."""
        return receiver in self._waiting

    def piece(self, receiver: int) -> tuple[bytes, bool]:
        """Return some state, perhaps without keys, and whether it is the last of a round; then a new one begins."""
        waiting, size = self._waiting[receiver], self._sizes[receiver]
        if not waiting and not self._unsorted:
            self._unsorted = list(self._changed)
            self._changed.clear()
        if len(waiting) < size:
            self._sort(self._unsorted[-SORTED_KEYS:])
            del self._unsorted[-SORTED_KEYS:]
        keys = [waiting.pop() for _ in range(min(size, len(waiting)))]
        state = self._state.part(keys)
        if len(keys) == size:
            self._sizes[receiver] = next_size(size, len(state))
        return state, not waiting and not self._unsorted

    def end(self) -> None:
        """End the copy."""
        if self._state.can_be_copied:
            self._state.track(None)

    def rests(self) -> Mapping[int, bytes]:
        """Return, by receiver, all state that has not been copied to it since it changed, and end the copy.

        That of no key is part of it if the executor moves.
        """
        self.end()
        if self._state.is_arranged:
            # Also of an executor that only gets keys: it takes over all of its tables then.
            self._unsorted = self._state.all_keys()
        self._sort(self._changed.union(self._unsorted))
        moves = isinstance(self._receivers, int)
        return {receiver: self._state.part(list(keys), moves) for receiver, keys in self._waiting.items()}

    def release(self) -> None:
        """Delete the state that has left, after `rests`."""
        self._state.drop(self.copied)

    def _sort(self, keys: Collection[Any]) -> None:
        if isinstance(self._receivers, int):
            self._waiting[self._receivers].update(keys)
            self.copied += keys
            return
        for key, group in zip(keys, groups_of(keys, self._fields), strict=True):
            if group not in self._receivers:
                raise foreign(key)
            receiver = self._receivers[group]
            if receiver is not None:
                self._waiting[receiver].add(key)
                self.copied.append(key)


class ArrivingState:
    """A copy in the new worker, from one executor.

    Attributes:
        state: of an operator that has been opened: what has been copied so far.
        predicted_ns: time that the rest will take at the barrier; None before the copy ends.
    """

    def __init__(self, name: str, state: OperatorState, source: int, began_ns: int) -> None:
        """Begin at `began_ns` to copy state for executor `name` from worker `source`."""
        self.name, self.state, self.source = name, state, source
        self.nbytes = self.cpu_ns = 0
        self.predicted_ns: int | None = None
        self._piece = bytearray()
        self._round, self._began_ns = 0, began_ns
        self._last_round: tuple[int, int] | None = None

    def take(self, received: frame.Frame) -> bool:
        """Take a COPY frame; return whether a piece is complete."""
        self._piece += received.payload
        if not received.flags & frame.LAST:
            return False
        self.restore(bytes(self._piece))
        self._piece.clear()
        return True

    def restore(self, piece: bytes) -> None:
        """Restore a piece."""
        with guarded(self.name, self.state.operator):
            self.state.put(piece)
        self.nbytes += len(piece)
        self._round += len(piece)

    def ends_copy(self, now_ns: int) -> bool:
        """Return whether no further round is worthwhile after the one that has just ended.

        If not, predict the time of the rest. What a round copies has changed during the one before; state changes and
        is copied at the same rates afterwards. Only one round: at most all of it has changed.
        """
        done, took_ns, before = self._round, now_ns - self._began_ns, self._last_round
        self._last_round, self._round, self._began_ns = (done, took_ns), 0, now_ns
        if done >= SMALL_ROUND_BYTES and (before is None or 2 * done <= before[0]):
            return False
        self.predicted_ns = took_ns if before is None else took_ns**2 // max(1, before[1])
        return True


def next_size(keys: int, nbytes: int) -> int:
    """Return the number of keys for the next piece, after one of so many keys and bytes."""
    return max(1, 2 * keys if nbytes < PIECE_BYTES // 2 else keys * PIECE_BYTES // nbytes)

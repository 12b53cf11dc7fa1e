"""What all executors have in common: an operator, a router, and what their turns cost."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agents.worker.channels.groupings import Router
from agents.worker.channels.markers import Barrier
from agents.worker.executors.snapshot import Snapshot
from inventory.errors import MillraceError, RunError
from inventory.plugins import raised_at
from workloads.operators import Operator
from workloads.topology import Executor


class OperatorError(RunError):
    """An operator has failed; the message names its executor and the line of its code."""


class Meter:
    """Totals since the start; whoever reports takes differences.

    Attributes:
        emitted, processed: rows; what is only done again after a recovery is in neither.
        replayed: rows that were emitted again.
        busy_ns: CPU time of the thread inside the operator and its routing.
        blocked_ns: time with work but without credit.
        late_ns: how late the last record of a spout left against its schedule; None when there is none.
        due: rows that a spout's schedule wanted so far; None when there is none.
    """

    def __init__(self) -> None:
        self.emitted = self.processed = self.replayed = 0
        self.busy_ns = self.blocked_ns = 0
        self.late_ns: int | None = None
        self.due: int | None = None
        self._blocked_since: int | None = None

    def blocked(self, now_ns: int) -> None:
        """There is work but no credit, now."""
        if self._blocked_since is not None:
            self.blocked_ns += now_ns - self._blocked_since
        self._blocked_since = now_ns

    def free(self, now_ns: int) -> None:
        """There is credit, or no work, now."""
        if self._blocked_since is not None:
            self.blocked_ns += now_ns - self._blocked_since
            self._blocked_since = None


class RunningExecutor(ABC):
    """What the loop sees of any executor.

    Attributes:
        number: of the executor, its position in the topology.
        live: whether it may work; one that moves here waits for its state.
        ending: whether it will never emit again.
        ahead_ns: what this node's monotonic clock shows more than the controller's, which stamps are in.
    """

    ahead_ns = 0

    def __init__(self, number: int, executor: Executor, operator: Operator, router: Router) -> None:
        self.number, self.executor = number, executor
        self.operator = operator
        self.router = router
        self.meter = Meter()
        self.live = True
        self.ending = False
        self.on_barrier: Callable[[RunningExecutor, int], None] = _unexpected

    @property
    def drained(self) -> bool:
        """Whether it will never emit again and all it emitted has left."""
        return self.ending and self.router.ended

    @abstractmethod
    def turn(self, now_ns: int) -> bool:
        """Do one batch of work if there is any; return whether there was."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """All that decides what it will emit."""

    @abstractmethod
    def restore(self, snapshot: Snapshot) -> None:
        """Continue from there; called before the first turn."""

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Turn whatever the operator raises into an error that names it, an attempt to exit included.

        A worker that ended without a reason would be started again, only to end again.
        """
        try:
            yield
        except BaseException as fault:
            raise self._fault(fault) from fault

    def operator_state(self) -> bytes:
        """Return what the operator's `snapshot` gives.

        Raises:
            OperatorError: it raised, or returned anything but bytes.
        """
        with self.guarded():
            state: object = self.operator.snapshot()
        if not isinstance(state, bytes):
            kind = type(self.operator)
            raise OperatorError(
                f"{self.executor.name}: snapshot() of {kind.__name__} returned {type(state).__name__}, expected bytes "
                f"({_place_of(kind)})"
            )
        return state

    def pass_barrier(self, number: int) -> None:
        """Forward a barrier, and let the worker do what it is for."""
        self.router.mark(Barrier(number))
        self.on_barrier(self, number)

    def _fault(self, fault: BaseException) -> OperatorError:
        if isinstance(fault, OperatorError):
            return fault
        if isinstance(fault, MillraceError):
            return OperatorError(f"{self.executor.name}: {fault}")
        place = raised_at(fault, type(self.operator))
        return OperatorError(f"{self.executor.name} failed: {type(fault).__name__}: {fault} ({place})")


def replays(before: int, rows: int, seen: int) -> int:
    """How many of `rows` are replays, when there have been `before` rows, and `seen` before the recovery.

    >>> replays(90, 20, 100), replays(100, 20, 100)
    (10, 0)
    """
    return min(rows, max(0, seen - before))


def _place_of(kind: type[Operator]) -> str:
    """File and line of an operator's `snapshot`; the file of its module when that is no plain function."""
    code = getattr(kind.snapshot, "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    return str(getattr(sys.modules.get(kind.__module__), "__file__", kind.__module__))


def _unexpected(running: RunningExecutor, number: int) -> None:
    raise RunError(f"{running.executor.name} met barrier {number}, which nobody has prepared")

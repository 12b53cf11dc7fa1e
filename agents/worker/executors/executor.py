"""The common part of bolt and spout executors: an operator, a router, and metrics."""

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
    """Failure of an operator; the message contains its executor and the line of its code."""


class Meter:
    """Totals since the start, from which reports compute differences.

    Attributes:
        emitted, processed: rows, without replays after a recovery.
        replayed: rows that were emitted again.
        busy_ns: CPU time of the thread inside the operator and its routing.
        blocked_ns: time with work but without credit.
        late_ns: delay of a spout's last record against its schedule; None without a schedule.
        due: rows that a spout's schedule requires so far; None without a schedule.
    """

    def __init__(self) -> None:
        self.emitted = self.processed = self.replayed = 0
        self.busy_ns = self.blocked_ns = 0
        self.late_ns: int | None = None
        self.due: int | None = None
        self._blocked_since: int | None = None

    def blocked(self, now_ns: int) -> None:
        """Note that there is work but no credit at `now_ns`."""
        if self._blocked_since is not None:
            self.blocked_ns += now_ns - self._blocked_since
        self._blocked_since = now_ns

    def free(self, now_ns: int) -> None:
        """Note that there is credit, or no work, at `now_ns`."""
        if self._blocked_since is not None:
            self.blocked_ns += now_ns - self._blocked_since
            self._blocked_since = None


class RunningExecutor(ABC):
    """A bolt or spout executor, as the event loop runs it.

    Attributes:
        number: of the executor, its position in the topology.
        live: whether it may work; an executor that moves here waits for its state.
        ending: whether it will never emit again.
        ahead_ns: this node's monotonic clock minus the controller's, which stamps refer to.
    """

    ahead_ns = 0

    def __init__(self, number: int, executor: Executor, operator: Operator, router: Router) -> None:
        self.number, self.executor = number, executor
        self.operator = operator
        self.router = router
        self.meter = Meter()
        self.live = True
        self.ending = False
        self.on_barrier: Callable[[RunningExecutor, int], None] = _unprepared_barrier

    @property
    def drained(self) -> bool:
        """Whether it will never emit again and all emitted rows have been sent."""
        return self.ending and self.router.ended

    @abstractmethod
    def turn(self, now_ns: int) -> bool:
        """Process one batch if there is any; return whether there was."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return the complete state, which determines all later output."""

    @abstractmethod
    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot; called before the first turn."""

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Convert every exception of the operator, `SystemExit` included, to an `OperatorError`.

        A worker that exited without a reason would be restarted, only to exit again.
        """
        try:
            yield
        except BaseException as fault:
            raise self._fault(fault) from fault

    def operator_state(self) -> bytes:
        """Return the result of the operator's `snapshot`.

        Raises:
            OperatorError: `snapshot` raised, or returned something other than bytes.
        """
        with self.guarded():
            state: object = self.operator.snapshot()
        if not isinstance(state, bytes):
            kind = type(self.operator)
            raise OperatorError(
                f"{self.executor.name}: snapshot() of {kind.__name__} returned {type(state).__name__}, expected bytes "
                f"({_source_location(kind)})"
            )
        return state

    def pass_barrier(self, number: int) -> None:
        """Forward a barrier, and let the worker store or move the executor."""
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
    """Return how many of `rows` are replays, given `before` rows so far and `seen` rows before the recovery.

    >>> replays(90, 20, 100), replays(100, 20, 100)
    (10, 0)
    """
    return min(rows, max(0, seen - before))


def _source_location(kind: type[Operator]) -> str:
    """Return file and line of an operator's `snapshot`; the file of its module if it is no plain function."""
    code = getattr(kind.snapshot, "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    return str(getattr(sys.modules.get(kind.__module__), "__file__", kind.__module__))


def _unprepared_barrier(running: RunningExecutor, number: int) -> None:
    raise RunError(f"{running.executor.name} met barrier {number}, which has not been prepared")

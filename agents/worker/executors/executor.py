"""The common part of bolt and spout executors: an operator, a router, metrics, latencies, and a snapshot of its state.

Of the records, some are chosen to carry their intended time; their latencies are counted in a histogram.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from struct import Struct
from typing import NamedTuple

from agents.protocol import Worked
from agents.worker.channels.channel import Barrier
from agents.worker.channels.groupings import Router
from agents.worker.wire.frame import Stamps
from inventory.errors import MillraceError, RunError
from inventory.plugins import raised_at
from workloads.operator_state import OperatorState
from workloads.operators import Operator
from workloads.topology import Executor

SAMPLES_PER_S = 100
"""Most samples per second and source executor."""

FIRST_STRIDE = 64
"""Records per sample before the rate is known."""

_MASK = (1 << 64) - 1

_HEAD = Struct("<4sBqqqqq")
_MAGIC, _VERSION = b"MLRS", 2


def mix(value: int) -> int:
    """Return a 64-bit hash of a counter: SplitMix64's finaliser (Steele, Lea, Flood 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


class LatencySampler:
    """Chooses one record in every block of `stride` records; a hash of seed and block determines which.

    Each record of a block is equally likely, independent of operators, batches and timing. So the sample is unbiased,
    and every run with the same seed and stride samples the same records.
    """

    def __init__(self, seed: int, peak_per_s: float | None = None, least_stride: int = 1) -> None:
        """Create a sampler.

        Args:
            seed: for the hash.
            peak_per_s: highest rate. With it the stride is fixed, so that slow periods have no higher weight; None: it
                is unknown, and the stride follows the rate (`adapt`).
            least_stride: below which the stride does not follow the rate.
        """
        self._seed = seed & _MASK
        self._least_stride = least_stride
        self._fixed = peak_per_s is not None
        self._stride = self._next_stride = FIRST_STRIDE if peak_per_s is None else _stride(peak_per_s)
        self._block = 0
        self._chosen = self._choose()

    def _choose(self) -> int:
        return self._block + mix(self._seed ^ self._block) % self._stride

    def sampled(self, first: int, count: int) -> list[int]:
        """Return the sampled record numbers in [first, first + count); ranges of successive calls have no gaps."""
        chosen = []
        while self._chosen < first + count:
            chosen.append(self._chosen)
            self._block += self._stride
            self._stride = self._next_stride
            self._chosen = self._choose()
        return chosen

    def skip(self, first: int) -> None:
        """Continue at record `first`, after a restore."""
        self._block = first
        self._chosen = self._choose()

    def adapt(self, records_per_s: float) -> None:
        """Set the size of later blocks so that samples do not exceed `SAMPLES_PER_S`."""
        if not self._fixed:
            self._next_stride = max(self._least_stride, _stride(records_per_s))


def _stride(records_per_s: float) -> int:
    return max(1, -(-int(records_per_s) // SAMPLES_PER_S))


_SUB_BUCKET_BITS = 8


def bucket(value_ns: int) -> int:
    """Return the highest value in ns in the same histogram bucket as `value_ns`.

    The layout is that of HdrHistogram with two significant digits: exact below 256, then 128 buckets per power of two,
    so that the relative error is at most 1/128.
    """
    if value_ns <= 0:
        return 0
    shift = max(0, value_ns.bit_length() - _SUB_BUCKET_BITS)
    return (((value_ns >> shift) + 1) << shift) - 1


class Histogram:
    """Counts per bucket; histograms merge by adding the counts of equal buckets."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def record(self, value_ns: int, count: int = 1) -> None:
        """Add `count` observations of `value_ns`."""
        self.counts[bucket(value_ns)] += count

    def record_all(self, now_ns: int, stamps: Stamps) -> None:
        """Add the latency up to `now_ns` of every stamp; neighbours usually have the same stamp."""
        times = [stamp for _, stamp in stamps]
        if times and times.count(times[0]) == len(times):
            # Rows of a tick, thousands at once.
            self.record(now_ns - times[0], len(times))
            return
        for stamp, count in Counter(times).items():
            self.record(now_ns - stamp, count)

    def take(self) -> list[tuple[int, int]]:
        """Return (bucket, count) recorded since the last call, sorted by bucket."""
        taken = sorted(self.counts.items())
        self.counts.clear()
        return taken


def percentile(counts: list[tuple[int, int]], fraction: float) -> int | None:
    """Return the smallest bucket up to which at least `fraction` (0..1) of all observations lie; None without any."""
    total = sum(count for _, count in counts)
    if not total:
        return None
    seen = 0
    for value, count in counts:
        seen += count
        if seen >= fraction * total:
            return value
    return counts[-1][0]


class Snapshot(NamedTuple):
    """The state of an executor at a barrier, and its encoding as bytes.

    offset  size  field
    0       4     "MLRS"
    4       1     version of this layout
    5       8     position   records emitted by a spout executor; 0 for a bolt
    13      8     next tick  number of the next tick that a spout executor will emit
    21      8     emitted    rows that the executor has emitted since the sources' start
    29      8     processed  rows that a bolt executor has processed since then; 0 for a spout
    37      8     length     of the following bytes, to detect a truncated copy
    45            the state of the operator (`workloads.keyed_state`)
    """

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


class OperatorError(RunError):
    """Failure of an operator; the message contains its executor and the line of its code."""


class ExecutorMeter:
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
        state: of the operator.
        live: whether it may work; an executor that moves here waits for its state.
        ending: whether it will never emit again.
        ahead_ns: this node's monotonic clock minus the controller's, which stamps refer to.
    """

    ahead_ns = 0

    def __init__(self, number: int, executor: Executor, operator: Operator, router: Router) -> None:
        self.number, self.executor = number, executor
        self.operator = operator
        self.state = OperatorState(operator)
        self.router = router
        self.meter = ExecutorMeter()
        self.live = True
        self.ending = False
        self.on_barrier: Callable[[RunningExecutor, int], None] = _unprepared_barrier

    @property
    def drained(self) -> bool:
        """True if it will never emit again and all emitted rows have been sent."""
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

    def guarded(self) -> AbstractContextManager[None]:
        """Convert exceptions of the operator, see `guarded`."""
        return guarded(self.executor.name, self.operator)

    def operator_state(self) -> bytes:
        """Return all state of the operator.

        Raises:
            OperatorError: `snapshot` raised, or returned something other than bytes, or a value cannot be encoded.
        """
        with self.guarded():
            return self.state.snapshot()

    def pass_barrier(self, number: int) -> None:
        """Forward a barrier, and let the worker store or move the executor."""
        self.router.mark(Barrier(number))
        self.on_barrier(self, number)


@contextmanager
def guarded(name: str, operator: Operator) -> Iterator[None]:
    """Convert every exception of the operator of executor `name`, `SystemExit` included, to an `OperatorError`.

    A worker that exited without a reason would be restarted, only to exit again.
    """
    try:
        yield
    except BaseException as fault:
        raise operator_error(name, operator, fault) from fault


def operator_error(name: str, operator: Operator, fault: BaseException) -> OperatorError:
    """Return the error for an exception of the operator of executor `name`."""
    if isinstance(fault, OperatorError):
        return fault
    if isinstance(fault, MillraceError):
        return OperatorError(f"{name}: {fault}")
    return OperatorError(f"{name} failed: {type(fault).__name__}: {fault} ({raised_at(fault, type(operator))})")


def replays(before: int, rows: int, seen: int) -> int:
    """Return how many of `rows` are replays, given `before` rows so far and `seen` rows before the recovery.

    >>> replays(90, 20, 100), replays(100, 20, 100)
    (10, 0)
    """
    return min(rows, max(0, seen - before))


def _unprepared_barrier(running: RunningExecutor, number: int) -> None:
    raise RunError(f"{running.executor.name} met barrier {number}, which has not been prepared")

"""Clock of one spout executor: due times and stream times of its own records.

Rates refer to all sources together: record j of spout executor i of n is due when record j * n + i of the rate is.
Recordings refer to each executor's own records. Both are converted to times of the executor's own records.
"""

from fractions import Fraction

from inventory.errors import InputError, RunError
from inventory.times import NS
from workloads.operators import STEP_NS, Spout, own_records
from workloads.rates import Constant, Rate, Replay
from workloads.schedules import Schedule
from workloads.workload import Workload

UNBOUNDED = 1 << 63
"""Number of records due at rate `max`: more than any input has."""


class SourceClock:
    """Times of one spout executor's own records, numbered from 0.

    Elapsed and due times are nanoseconds after source start, stream times are nanoseconds of stream time.
    """

    def __init__(
        self,
        share: tuple[int, int],
        stream: Schedule,
        intended: Schedule | None,
        speedup: Fraction | None,
        origin_ns: int = 0,
    ) -> None:
        """Create a clock.

        Args:
            share: index of the executor, and number of executors.
            stream: stream times.
            intended: due times; None when all records are due at once.
            speedup: stream time per intended time, if they are proportional.
            origin_ns: stream time at source start, if they are proportional.
        """
        self._index, self._of = share
        self._stream = stream
        self._intended = intended
        self._speedup = speedup
        self._origin_ns = origin_ns

    def own_records(self, records: int) -> int:
        """Return how many of the first records of the whole input are the executor's own."""
        return own_records(records, self._index, self._of)

    def records_until(self, position: int) -> int:
        """Return the number of records of the whole input up to the last one before an own position."""
        return (position - 1) * self._of + self._index + 1 if position else 0

    def due_ns(self, record: int) -> int | None:
        """Return the due time of `record`; None at rate `max`, and after the last record of a replay."""
        try:
            return None if self._intended is None else self._intended.due_ns(record)
        except IndexError:
            return None

    def due_count(self, elapsed_ns: int) -> int:
        """Return the number of records due by `elapsed_ns`; `UNBOUNDED` at rate `max`."""
        return UNBOUNDED if self._intended is None else self._intended.due_count(elapsed_ns)

    def stream_ns(self, record: int) -> int | None:
        """Return the stream time of `record`; None after the last record of a recording."""
        try:
            return self._stream.due_ns(record)
        except IndexError:
            return None

    def stream_count(self, time_ns: int) -> int:
        """Return the number of records before the stream time `time_ns`."""
        return self._stream.due_count(time_ns - 1)

    def tick_due_ns(self, time_ns: int) -> int | None:
        """Return when a tick at the stream time `time_ns` is due: never before the records that precede it.

        None at rate `max`: the tick is due when these have been emitted.
        """
        if self._intended is None:
            return None
        if self._speedup is not None:
            return _later(time_ns - self._origin_ns, self._speedup)
        before = self.stream_count(time_ns)
        return self._intended.due_ns(before - 1) if before else 0


class _Share:
    """One executor's records of a schedule of the whole input."""

    def __init__(self, whole: Schedule, index: int, of: int) -> None:
        self._whole, self._index, self._of = whole, index, of

    def due_ns(self, record: int) -> int:
        return self._whole.due_ns(record * self._of + self._index)

    def due_count(self, elapsed_ns: int) -> int:
        return own_records(self._whole.due_count(elapsed_ns), self._index, self._of)


class _Replayed:
    """A recording played `speedup` times as fast, from `origin_ns` of stream time on."""

    def __init__(self, times: Schedule, speedup: Fraction, origin_ns: int) -> None:
        self._times, self._speedup, self._origin_ns = times, speedup, origin_ns

    def due_ns(self, record: int) -> int:
        return _later(self._times.due_ns(record) - self._origin_ns, self._speedup)

    def due_count(self, elapsed_ns: int) -> int:
        played = elapsed_ns * self._speedup.numerator // self._speedup.denominator
        count = self._times.due_count(self._origin_ns + played)
        try:
            self._times.due_ns(count)
        except IndexError:
            # The caller detects the end of the recording at the next record.
            return count + 1
        return count


def _later(time_ns: int, speedup: Fraction) -> int:
    """Return the first whole nanosecond not before time_ns / speedup."""
    return -(-time_ns * speedup.denominator // speedup.numerator)


def source_clock(rate: Rate, spout: Spout, index: int, of: int, seed: int) -> SourceClock:
    """Return the clock of executor `index` of `of`.

    Args:
        rate: of all executors together.
        spout: the executor's, opened.
        index: of the executor among all spout executors of the topology.
        of: number of these executors.
        seed: seed of the rate, the same for all of them.

    Raises:
        RunError: the spout has no recorded times although it declares them, or the rate replays them.
    """
    times = spout.times if spout.recorded else None
    if times is None and (spout.recorded or isinstance(rate, Replay)):
        raise RunError(f"{type(spout).__name__} gives no recorded times (Spout.times)")
    if isinstance(rate, Replay) and times is not None:
        speedup = Fraction(rate.speedup)
        replayed = _Replayed(times, speedup, spout.origin_ns)
        return SourceClock((index, of), times, replayed, speedup, spout.origin_ns)
    schedule = rate.schedule(seed)
    intended = None if schedule is None else _Share(schedule, index, of)
    if times is not None:
        return SourceClock((index, of), times, intended, None)
    if intended is not None:
        return SourceClock((index, of), intended, intended, Fraction(1))
    return SourceClock((index, of), _Share(Constant(NS / STEP_NS).schedule(), index, of), None, None)


def check_rate(rate: Rate, workload: Workload) -> None:
    """Check that every spout of `workload` supports `rate`.

    Raises:
        InputError: the rate replays recorded times, and a spout has none.
    """
    if not isinstance(rate, Replay):
        return
    for component in workload.topology().components:
        if component.kind == "spout" and not getattr(workload.operator(component.id), "recorded", False):
            raise InputError(
                f"'replay' needs records with times of their own, and those of {workload.name}'s spout "
                f"{component.id!r} have none; 'constant' or 'poisson' would do"
            )

"""The operator interface of spouts and bolts.

Operators get batches of rows, their own index and their parameters; never nodes, sockets or clocks. A row is a tuple
whose fields follow the stream's declared schema. An operator emits a mapping from stream names to rows; `{}` emits
nothing.

State is explicit: `snapshot` returns all of it, and `restore` restores it. Nothing else may influence what an operator
emits. This makes recovery and migration exact. State that can be divided among another number of executors is `Keyed`
or `Merging`, and a source that can go to any record is `Seekable`; state that can be copied while the operator works is
`Incremental`.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from workloads.schedules import Schedule
from workloads.topology import DEFAULT_STREAM

Row = tuple[Any, ...]
Emitted = Mapping[str, Sequence[Row]]
NOTHING: Emitted = {}
Combine = Callable[[Sequence[Row]], Sequence[Row]]

STEP_NS = 1_000_000
"""Stream time between records of the whole input at rate `max`."""


@dataclass(frozen=True)
class Batch:
    """Rows of one stream of one component, in the order in which one of its executors emitted them."""

    source: str
    stream: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class Context:
    """Context of an executor, given to `open`.

    Attributes:
        component: id of its component.
        index: its index among the component's executors, 0-based.
        parallelism: number of executors of the component.
        params: the workload's parameters, all defaults filled in.
        seed: seed of the run; every random choice derives from it.
        inputs: prepared input files by name, local to the node and verified by checksum.
    """

    component: str
    index: int
    parallelism: int
    params: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    inputs: Mapping[str, str] = field(default_factory=dict)


class Operator:
    """Common base of spouts and bolts."""

    def open(self, context: Context) -> None:
        """Prepare for work; called once, before anything else."""

    def close(self) -> None:
        """Release what `open` acquired; called once, also after a failure."""

    def snapshot(self) -> bytes:
        """Return all state as bytes; an operator without state returns `b""`."""
        return b""

    def restore(self, state: bytes) -> None:
        """Continue from the result of `snapshot`; called after `open`, before any batch."""


class Spout(Operator):
    """A source of rows.

    Record i of the whole input belongs to spout executor i mod n, so that the reference answer is a function
    of the executors' positions alone.

    A spout whose records have their own times (a recording) sets `recorded` and provides `times`. Stream time is these
    times, else the intended times of the rate; at rate `max` it is the record's number times `STEP_NS`. Every `tick_ns`
    of stream time the runtime sends a tick after the records before it, and one more after the last record of all.
    """

    recorded: ClassVar[bool] = False
    """True for records with times of their own."""

    tick_ns: int = 0
    """Stream time between ticks, known before `open`, the same for all spouts of a topology; 0 is no ticks."""

    origin_ns: int = 0
    """Once open: stream time of the first record of the whole input, the same for all executors.

    A replay begins there, and the first tick is the first one after it. Recorded times far from 0 need it.
    """

    times: Schedule | None = None
    """Once open, when `recorded`: stream times of this executor's own records, by their number in its share, rising.

    `due_ns` raises IndexError for numbers after the last record. The runtime calls it only for its position and later
    ones; `due_count` may be called for times far ahead of it, when the source is late.
    """

    def next_batch(self, limit: int) -> Sequence[Row]:
        """Return the next rows of the default stream, at most `limit`; an empty result ends the input.

        Must not block, sleep or read a clock: the runtime decides when a row is due.
        """
        raise NotImplementedError("a spout implements next_batch")


def own_records(records: int, index: int, of: int) -> int:
    """Return how many of the first `records` records of the whole input belong to executor `index` of `of`.

    >>> [own_records(8, index, 3) for index in range(3)]
    [3, 3, 2]
    """
    return max(0, (records - index + of - 1) // of)


class Bolt(Operator):
    """Processes batches; a bolt without outputs is a sink and gives an answer at the end.

    The answer is a table of rows. A sink of several tables overrides `tables`.
    """

    answer_table: ClassVar[str] = ""
    """Name of the answer's table; empty if the bolt is not a sink."""

    answer_schema: ClassVar[Mapping[str, str]] = {}
    """Field -> type (int, float, str, bytes, bool) of the answer's rows, in order."""

    def process(self, batch: Batch) -> Emitted:
        """Handle one batch; called from one thread only, must not keep a reference to the batch."""
        raise NotImplementedError("a bolt implements process")

    def on_tick(self, time_ns: int) -> Emitted:
        """Handle a tick: every row before `time_ns` of stream time has been processed, and no later one."""
        return NOTHING

    def tables(self) -> "Iterable[Bolt]":
        """Return the bolts that provide the answer, one per table: the bolt itself if it has an `answer_table`."""
        return (self,) if self.answer_table else ()

    def settled(self) -> Iterable[Row]:
        """Return final rows of a sink's answer, each once; the operator then drops them.

        Called at checkpoints, so that an answer that grows with the input is not part of every snapshot.
        """
        return ()

    def answer(self) -> Iterable[Row]:
        """Return a sink's part of the final answer except the `settled` rows, after the topology has drained."""
        return ()


@runtime_checkable
class Combining(Protocol):
    """A bolt with `combine`: rows with equal keys are merged before a fields grouping distributes them."""

    def combine(self, rows: Sequence[Row], /) -> Sequence[Row]:
        """Merge rows of one stream from one batch, at the sender; return rows of the same schema.

        Called on an operator that was never opened, so it cannot use state. The bolt must reach the same state with the
        merged rows, in any order, as with the original rows. Sampled rows are not merged, so that each keeps its time.
        """
        ...


@runtime_checkable
class Keyed(Protocol):
    """A bolt whose state belongs to the keys of its fields grouping, and can be divided by key groups.

    A checkpoint of its component can be restored with another number of executors. Both methods are called between
    batches; a bolt offers them besides `snapshot` and `restore`, which are quicker for the state as a whole.
    """

    def snapshot_groups(self, groups: Collection[int] | None = None, /) -> tuple[bytes, Mapping[int, bytes]]:
        """Return the common state, and the state of each of `groups` that has any; of all groups with None.

        The common state belongs to no key, such as the number of ticks in a window that is not full yet. It is the same
        in all executors of the component at a barrier.
        """
        ...

    def restore_groups(self, common: bytes, groups: Mapping[int, bytes], /) -> None:
        """Add parts of results of `snapshot_groups` to the state.

        Called after `open`, instead of `restore`: once or several times, each time with other groups and with the same
        common state.
        """
        ...


@runtime_checkable
class Seekable(Protocol):
    """A spout that can begin anywhere in its share of the records, so that another number of executors can go on.

    All executors have then emitted exactly the first records of the whole input, and the share of each has changed:
    record i belongs to executor i mod n, with another n. Times of recorded records must not fall over the whole input.
    """

    def seek(self, position: int, /) -> None:
        """Continue with record number `position` of the own share, 0-based.

        Called after `open`, instead of `restore`, before any batch; at most with the number of records in the share.
        """
        ...


@runtime_checkable
class Merging(Protocol):
    """A bolt whose state does not depend on which of its executors got which row, such as a total."""

    def merge(self, states: Sequence[bytes], /) -> None:
        """Add results of `snapshot` of other executors to the state; called after `open` or `restore`."""
        ...


@runtime_checkable
class Incremental(Protocol):
    """A bolt whose state can be copied while it works, key by key, so that a move pauses it for the changed keys only.

    Keys are any hashable values, such as those of a dict that is the state. Methods are called between batches; a bolt
    offers them besides `snapshot` and `restore`, which are quicker for the state as a whole.
    """

    def state_keys(self) -> Iterable[Hashable]:
        """Return the keys of all state.

        They are listed at once, which takes 10 ms or more for a million. An iterator (`iter`, a generator) is consumed
        while the bolt works instead: it may lack keys that come later, which are tracked, but if it fails with
        `RuntimeError` because the state has changed, keys are listed at once.
        """
        ...

    def track_changes(self, changed: set[Any] | None, /) -> None:
        """Add to `changed` from now on every key whose state is created, changed or deleted; None: to nothing.

        The caller may empty the set.
        """
        ...

    def snapshot_keys(self, keys: Collection[Any], /) -> bytes:
        """Return the state of these keys, and that it is deleted for those that have none any more.

        State that belongs to no key is part of every result.
        """
        ...

    def restore_keys(self, state: bytes, /) -> None:
        """Replace the state of some keys by a result of `snapshot_keys`.

        Called after `open`, instead of `restore`, with many results in their order; the last one of a key counts.
        """
        ...


@runtime_checkable
class Divisible(Keyed, Incremental, Protocol):
    """A `Keyed` and `Incremental` bolt whose executors go on with their operators when their number changes.

    They give away the keys that others own from then on, and get those that they own. `open` is not called again, so
    `Context.parallelism` is the former one. `snapshot_groups` of no groups, for the common state, is called at the
    barrier and must be quick. `restore_keys` is also called on an operator that works, with keys that it does not have.
    """

    def key_of(self, key: Any, /) -> tuple[Any, ...]:
        """Return the key of the fields grouping, a tuple, that a key of the state belongs to."""
        ...

    def release_keys(self, keys: Collection[Any], /) -> None:
        """Delete the state of these keys, which others have now; some may have been deleted before."""
        ...

    def absorb(self, other: Any, /) -> None:
        """Add the state of another operator of the component, which has other keys and is then closed."""
        ...


class TupleBolt(Bolt):
    """A bolt that handles rows one by one, and emits on the default stream only.

    It costs one Python call per tuple; a bolt that overrides `process` pays one per batch.
    """

    def take(self, *fields: Any) -> Iterable[Row]:
        """Handle one row, given as its fields; return the resulting rows."""
        raise NotImplementedError("a tuple bolt implements take")

    def process(self, batch: Batch) -> Emitted:
        """Handle the rows in order."""
        take = self.take
        return {DEFAULT_STREAM: [row for fields in batch.rows for row in take(*fields)]}


def per_tuple(function: Callable[..., Iterable[Row]]) -> type[Bolt]:
    """Convert a function from one row's fields to rows of the default stream to a stateless bolt, see `TupleBolt`.

    >>> @per_tuple
    ... def split(line):
    ...     return [(word,) for word in line.split()]
    >>> split().process(Batch("lines", "default", [("to be",), ("or",)]))
    {'default': [('to',), ('be',), ('or',)]}
    """

    class PerTuple(TupleBolt):
        __doc__ = function.__doc__
        take = staticmethod(function)

    PerTuple.__name__ = PerTuple.__qualname__ = function.__name__
    PerTuple.__module__ = function.__module__
    return PerTuple

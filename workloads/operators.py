"""The operator interface of spouts and bolts.

Operators get batches of rows, their own index and their parameters; never nodes, sockets or clocks. A row is a tuple
whose fields follow the stream's declared schema. An operator emits a mapping from stream names to rows; `{}` emits
nothing.

State is explicit: state by key is declared (`workloads.keyed_state`), `snapshot` returns all other state, and `restore`
restores it. Nothing else may influence what an operator emits. This makes recovery and migration exact. A source that
can go to any record is `Seekable`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
        """Return all state that is not `KeyedState`; an operator without any returns `b""`."""
        return b""

    def restore(self, state: bytes) -> None:
        """Continue from the result of `snapshot`; called after `open`, before any batch."""

    def store_state(self) -> None:
        """Copy into the tables of `KeyedState` what the operator keeps in another form, such as arrays.

        Called between batches, before the runtime reads the tables, which are empty then and are emptied afterwards.
        """

    def load_state(self) -> None:
        """Take over what is in the tables of `KeyedState`: called between batches, after the runtime has changed them.

        What the operator had in another form is replaced. Without `store_state`, the tables stay as they are.
        """


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

    stream_ns: int = 0
    """Stream time of the last tick, set by the runtime before `on_tick`; with `KeyedState`, also after a restore."""

    def process(self, batch: Batch) -> Emitted:
        """Handle one batch; called from one thread only, must not keep a reference to the batch."""
        raise NotImplementedError("a bolt implements process")

    def on_tick(self, time_ns: int) -> Emitted:
        """Handle a tick: every row before `time_ns` of stream time has been processed, and no later one."""
        return NOTHING

    def on_end(self) -> Emitted:
        """Handle the end of the input: no row and no tick follows. Return rows like `process`.

        The runtime also calls it when the sources are stopped, and again in a recovery that begins from a checkpoint
        behind it: what has been emitted must be removed from the state.
        """
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

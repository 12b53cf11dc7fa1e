"""The operator interface: what a spout or a bolt implements, and all it may know.

Operators see batches of rows, their own index and their parameters; never nodes, sockets or clocks.
A row is a tuple whose fields follow the stream's declared schema. What an operator emits maps a stream's
name to rows; `{}` emits nothing.

State is explicit: `snapshot` returns all of it, `restore` brings it back, and between the two nothing
else may influence what an operator emits. That is what makes recovery and migration exact.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from workloads.rates import Schedule
from workloads.topology import DEFAULT_STREAM

Row = tuple[Any, ...]
Emitted = Mapping[str, Sequence[Row]]
NOTHING: Emitted = {}
Combine = Callable[[Sequence[Row]], Sequence[Row]]

STEP_NS = 1_000_000
"""Stream time from one record of the whole input to the next at rate `max`."""


@dataclass(frozen=True)
class Batch:
    """Rows of one stream of one component, in the order in which one of its executors emitted them."""

    source: str
    stream: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class Context:
    """What an executor is told when it opens.

    Attributes:
        component: its component's id.
        index: its index among the component's executors, 0-based.
        parallelism: how many executors the component has.
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
    """What spouts and bolts have in common."""

    def open(self, context: Context) -> None:
        """Get ready; called once, before anything else."""

    def close(self) -> None:
        """Release what `open` took; called once, also after a failure."""

    def snapshot(self) -> bytes:
        """Return all state as bytes; an operator without state returns `b""`."""
        return b""

    def restore(self, state: bytes) -> None:
        """Continue from what `snapshot` returned; called after `open`, before any batch."""


class Spout(Operator):
    """A source of rows.

    Record i of the whole input belongs to spout executor i mod n, so that the reference answer is a function
    of the executors' positions alone.

    A spout whose records have times of their own (a recording) says so by `recorded`, and gives them by `times`. Stream
    time is those times, or else the intended times of the rate; at rate `max` it is the record's number times
    `STEP_NS`. Every `tick_ns` of stream time the runtime sends a tick behind the records before it, and one more
    behind the last record of all.
    """

    recorded: ClassVar[bool] = False
    """Whether its records have times of their own."""

    tick_ns: int = 0
    """Stream time between ticks, known before `open`, the same for all spouts of a topology; 0 is no ticks."""

    origin_ns: int = 0
    """Once open: stream time of the first record of the whole input, the same for all executors.

    A replay begins there, and the first tick is the first one behind it. Recorded times far from 0 need it.
    """

    times: Schedule | None = None
    """Once open, when `recorded`: stream times of this executor's own records, by their number in its share, rising.

    `due_ns` of a number behind the last record raises IndexError. The runtime asks for times at its position and later
    ones only; `due_count` may be asked for a moment far ahead of it, when the source is late.
    """

    def next_batch(self, limit: int) -> Sequence[Row]:
        """Return the next rows of the default stream, at most `limit`; an empty result ends the input.

        Must not block, sleep or look at a clock: the runtime decides when a row is due.
        """
        raise NotImplementedError("a spout implements next_batch")


class Bolt(Operator):
    """Turns batches into batches; without outputs it is a sink and gives an answer at the end.

    The answer is a table of rows. A sink of several tables overrides `tables`.
    """

    answer_table: ClassVar[str] = ""
    """Name of the answer's table; empty where the bolt is no sink."""

    answer_schema: ClassVar[Mapping[str, str]] = {}
    """Field -> type (int, float, str, bytes, bool) of the answer's rows, in order."""

    def process(self, batch: Batch) -> Emitted:
        """Handle one batch; called from one thread only, must not keep a reference to the batch."""
        raise NotImplementedError("a bolt implements process")

    def on_tick(self, time_ns: int) -> Emitted:
        """Handle a tick: every row before `time_ns` of stream time has been processed, none from then on."""
        return NOTHING

    def tables(self) -> "Iterable[Bolt]":
        """Return bolts that are asked for the answer, each for one table: itself where it has an `answer_table`."""
        return (self,) if self.answer_table else ()

    def settled(self) -> Iterable[Row]:
        """Return rows of a sink's answer that nothing can change any more, each given once and then forgotten.

        Asked for at checkpoints, so that an answer that grows with the input is not part of every snapshot.
        """
        return ()

    def answer(self) -> Iterable[Row]:
        """Return a sink's part of the final answer beyond what was `settled`, after the topology has drained."""
        return ()


@runtime_checkable
class Combining(Protocol):
    """A bolt that offers `combine` has rows with equal keys merged before a fields grouping deals them."""

    def combine(self, rows: Sequence[Row], /) -> Sequence[Row]:
        """Merge rows of one stream that one batch gave, where they are emitted; return rows of the same schema.

        Called on an operator that was never opened, so it cannot use state. The bolt must come to the same state with
        what this returns, in any order, as with the rows themselves. Sampled rows go past it: each keeps its time.
        """
        ...


class TupleBolt(Bolt):
    """A bolt that takes rows one by one, and emits on the default stream only.

    It costs one Python call per tuple; a bolt that overrides `process` pays one per batch.
    """

    def take(self, *fields: Any) -> Iterable[Row]:
        """Handle one row, given as its fields; return the rows that come of it."""
        raise NotImplementedError("a tuple bolt implements take")

    def process(self, batch: Batch) -> Emitted:
        """Take the rows in order."""
        take = self.take
        return {DEFAULT_STREAM: [row for fields in batch.rows for row in take(*fields)]}


def per_tuple(function: Callable[..., Iterable[Row]]) -> type[Bolt]:
    """Turn a function from one row's fields to rows of the default stream into a stateless bolt, see `TupleBolt`.

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

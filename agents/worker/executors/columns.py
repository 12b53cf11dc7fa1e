"""Executors of column operators, and the conversion of rows where operators of both interfaces meet."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from agents.worker.channels.channel import Delivery, Incoming, Tick, Ticks
from agents.worker.channels.groupings import Router, undeclared
from agents.worker.channels.input_gate import InputGate, batch_parts
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.executor import FIRST_STRIDE, LatencySampler
from agents.worker.executors.spout import SpoutExecutor
from agents.worker.wire.frame import Stamps
from inventory.errors import RunError
from workloads import columns as column_operators
from workloads.columns import ColumnBatch, ColumnBolt, Columns, ColumnsEmitted, ColumnSpout, Derived
from workloads.operators import Combine, Emitted, Row
from workloads.source_clock import SourceClock
from workloads.topology import DEFAULT_STREAM, Executor

if TYPE_CHECKING:
    import pyarrow as pa

Schema = Mapping[str, str]
Schemas = Mapping[Any, Schema]


class ColumnBoltExecutor(BoltExecutor):
    """An executor of a column bolt.

    A batch with sampled rows is processed whole if the operator's results are `Derived`.
    """

    def __init__(
        self,
        number: int,
        executor: Executor,
        bolt: ColumnBolt,
        router: Router,
        inputs: InputGate,
        received: Schemas,
        emitted: Schemas,
    ) -> None:
        """Create the executor; `received` are the schemas by source and stream, `emitted` those by stream."""
        super().__init__(number, executor, bolt, router, inputs)
        self._column_bolt = bolt
        self._received, self._emitted = received, emitted
        self._rows_below = _rows_below(bolt, ColumnBolt)
        self._inside: Sequence[tuple[int, Tick]] = ()
        self._has_ticks = type(bolt).process_ticks is not ColumnBolt.process_ticks

    @property
    def _takes_ticks(self) -> bool:
        return (self._has_ticks or self._column_bolt.skips_ticks) and self.router.takes_ticks

    def _process(self, delivery: Delivery) -> None:
        if isinstance(delivery.mark, Ticks):
            self._process_with_ticks(delivery, delivery.mark)
            return
        channel, rows, stamps, nbytes, _ = delivery
        if len(rows) < self._rows_below:
            rows = rows.to_rows() if isinstance(rows, Columns) else rows
        else:
            rows = self._as_columns(channel, rows)
        super()._process(Delivery(channel, rows, stamps, nbytes))

    def _process_with_ticks(self, delivery: Delivery, ticks: Ticks) -> None:
        """Process a batch with ticks inside as what is before the last of them, and what is behind."""
        before, _, *behind = batch_parts(delivery, Ticks(ticks.places[-1:]))
        if self._has_ticks:
            self._process_ticks(before, ticks.places)
        else:
            self._inside = ticks.places
            self._process(before)
            self._inside = ()
            if any(self._at_tick(ticks.places[-1][1].time_ns).values()):
                raise RunError(f"{self.executor.name}: a bolt with `skips_ticks` emitted rows at a tick")
        for part in behind:
            self._process(part)
        self.router.flush()

    def _process_ticks(self, delivery: Delivery, places: Sequence[tuple[int, Tick]]) -> None:
        channel, rows, _, nbytes, _ = delivery
        batch = self._batch(channel.source, channel.stream, self._as_columns(channel, rows))
        results = self._column_bolt.process_ticks(batch, [(row, tick.time_ns) for row, tick in places])
        self.bolt.stream_ns = places[-1][1].time_ns
        for (_, tick), emitted in zip(places, results, strict=True):
            self._emit_at_tick(self._checked(emitted), tick.due_ns)
            self.router.mark_inside(tick)
        self._count(0, len(rows))
        channel.consumed(len(rows), nbytes)

    def _as_columns(self, channel: Incoming, rows: Sequence[Row]) -> Columns:
        if isinstance(rows, Columns):
            return rows
        where = f"{self.executor.name}, stream {channel.stream!r} of {channel.source}"
        return Columns.of_rows(self._received[channel.source, channel.stream], rows, where)

    def _emit(self, emitted: Emitted, stamps: Mapping[str, Stamps] = MappingProxyType({})) -> int:
        if not self._inside:
            return super()._emit(emitted, stamps)
        if any(len(rows) != self._inside[-1][0] for rows in emitted.values()):
            raise RunError(f"{self.executor.name}: a bolt with `skips_ticks` emits one row for each")
        return self.router.emit_with_ticks(emitted, stamps, self._inside)

    def _apply(self, source: str, stream: str, rows: Sequence[Row]) -> Emitted:
        if not isinstance(rows, Columns):
            return super()._apply(source, stream, rows)
        return self._processed(self._batch(source, stream, rows))[0]

    def _batch(self, source: str, stream: str, rows: Columns) -> ColumnBatch:
        return ColumnBatch(source, stream, rows.batch() if self._column_bolt.dictionaries else rows.plain())

    def _at_tick(self, time_ns: int) -> Emitted:
        return self._checked(super()._at_tick(time_ns))

    def _at_end(self) -> Emitted:
        return self._checked(super()._at_end())

    def _checked(self, emitted: ColumnsEmitted) -> Emitted:
        return {name: self._columns(name, part) for name, part in emitted.items()}

    def _processed(self, batch: ColumnBatch) -> tuple[Emitted, ColumnsEmitted]:
        """Let the operator process a batch; return what it emitted as rows or checked columns, and as it is."""
        from workloads.arrays import dictionaries_of

        known = dictionaries_of(batch.columns) if self._column_bolt.dictionaries else ()
        processed = self._column_bolt.process_columns(batch)
        return {name: self._columns(name, part, known) for name, part in processed.items()}, processed

    def _columns(
        self, stream: str, part: "pa.RecordBatch | Derived | Sequence[Row]", known: "Sequence[pa.Array]" = ()
    ) -> Sequence[Row]:
        if isinstance(part, list | tuple):
            return part
        schema = self._emitted.get(stream)
        if schema is None:
            raise undeclared(self.executor.name, stream, self._emitted)
        batch = part.columns if isinstance(part, Derived) else part
        return emitted_columns(schema, batch, f"{self.executor.name}, stream {stream!r}:", known)

    def _process_sampled(self, delivery: Delivery) -> int:
        rows, channel = delivery.rows, delivery.channel
        if not isinstance(rows, Columns) or not self._column_bolt.derives:
            return super()._process_sampled(delivery)
        stamps: dict[str, Stamps] = {}
        emitted, processed = self._processed(self._batch(channel.source, channel.stream, rows))
        for stream, part in processed.items():
            if not isinstance(part, Derived):
                raise RunError(f"{self.executor.name}, stream {stream!r}: a bolt with `derives` emits `Derived` only")
            who = f"{self.executor.name}, stream {stream!r}:"
            stamps[stream] = list(inherited(delivery.stamps, part, len(rows), who))
        return self._emit(emitted, stamps)


class ColumnSpoutExecutor(SpoutExecutor):
    """An executor of a column spout; a turn emits `TURNS` times as many rows at most."""

    TURNS = 4
    LEAST_STRIDE = FIRST_STRIDE
    """Smallest stride of its sampler.

    A sampled row can cost a bolt as much as a batch. In a worker that gets little CPU time, records leave slowly, and
    if each of them were sampled therefore, sampling alone would take all of that time.
    """

    def __init__(
        self,
        number: int,
        executor: Executor,
        spout: ColumnSpout,
        router: Router,
        clock: SourceClock,
        sampler: LatencySampler,
        schema: Schema,
    ) -> None:
        """See `SpoutExecutor`; `schema` is that of the default stream."""
        super().__init__(number, executor, spout, router, clock, sampler)
        self._column_spout, self._schema = spout, schema
        self._rows_below = _rows_below(spout, ColumnSpout)
        self._marks_inside = self._gave_columns = False

    def turn(self, now_ns: int) -> bool:
        """See `RunningExecutor.turn`; ticks that are due are sent inside batches of columns, instead of ending them."""
        if not self.router.takes_ticks:
            return super().turn(now_ns)
        until, first_tick = self.position + self.MAX_ROWS * self.TURNS, self.next_tick
        worked, before = False, (-1, -1)
        self._marks_inside = True
        # A turn without a record or a tick sends a barrier.
        while self.position < until and before != (self.position, self.next_tick):
            before = self.position, self.next_tick
            if not super().turn(now_ns):
                break
            worked = True
            if not self._gave_columns:
                break
        self._marks_inside = False
        if self.next_tick != first_tick:
            self.router.flush()
        return worked

    def _mark(self, tick: Tick) -> None:
        if self._marks_inside:
            self.router.mark_inside(tick)
        else:
            super()._mark(tick)

    def _next_batch(self, limit: int) -> Sequence[Row]:
        self._gave_columns = limit >= self._rows_below
        if not self._gave_columns:
            return super()._next_batch(limit)
        batch = self._column_spout.next_columns(limit)
        return emitted_columns(self._schema, batch, f"{self.executor.name}, stream {DEFAULT_STREAM!r}:")


def _rows_below(operator: ColumnBolt | ColumnSpout, base: type) -> int:
    """Return how many rows a batch must have to be one of columns; 0 if the operator has no interface of rows."""
    method = "process" if base is ColumnBolt else "next_batch"
    has_rows = getattr(type(operator), method) is not getattr(base, method)
    return column_operators.rows_below(operator) if has_rows else 0


def emitted_columns(schema: Schema, batch: "pa.RecordBatch", who: str, known: "Sequence[pa.Array]" = ()) -> Columns:
    """Return a batch that an operator has emitted; `known` are the dictionaries of its input.

    Raises:
        RunError: it does not follow the schema; the message begins with `who`.
    """
    from workloads import arrays

    return Columns(schema, arrays.checked_batch(batch, arrays.stream_schema(schema), who, known))


def inherited(stamps: Stamps, derived: Derived, count: int, who: str) -> Iterator[tuple[int, int]]:
    """Yield the stamps of derived rows, given those of the `count` rows from which they derive.

    Raises:
        RunError: the parents of the derived rows do not fit; the message begins with `who`.
    """
    import numpy as np

    number = derived.columns.num_rows
    if derived.parents is None:
        if number != count:
            raise RunError(f"{who} {number} rows derived from {count} without their parents")
        yield from stamps
        return
    parents = np.asarray(derived.parents())
    if len(parents) != number:
        raise RunError(f"{who} {len(parents)} parents of {number} derived rows")
    if number and (parents[0] < 0 or parents[-1] >= count or (parents[1:] < parents[:-1]).any()):
        raise RunError(f"{who} the parents of derived rows are not numbers of the batch's {count} rows, rising")
    for at, stamp in stamps:
        first, stop = np.searchsorted(parents, [at, at + 1])
        for row in range(int(first), int(stop)):
            yield row, stamp


def column_combine(operator: ColumnBolt, schema: Schema, who: str) -> Combine:
    """Return the combiner of a column bolt, for rows or columns of a stream with this schema."""
    below = _rows_below(operator, ColumnBolt)

    def combine(rows: Sequence[Row]) -> Sequence[Row]:
        if not rows:
            return rows
        if len(rows) < below:
            return operator.combine(list(rows))  # type: ignore[attr-defined,no-any-return]  # it is `Combining`
        given = rows if isinstance(rows, Columns) else Columns.of_rows(schema, rows, who)
        batch = given.batch() if operator.dictionaries else given.plain()
        return emitted_columns(schema, operator.combine_columns(batch), who)

    return combine

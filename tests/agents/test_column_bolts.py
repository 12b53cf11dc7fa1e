"""Column bolts: conversion from and to rows, stamps of derived rows, small batches, and refused columns."""

from collections import deque
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from exactly_once_oracle import COLUMN_MODES, as_columns
from executor_harness import CountingSpout, Downstream, EchoBolt, input_channel
from hypothesis import given
from hypothesis import strategies as st

from agents.worker.channels.channel import Tick
from agents.worker.channels.input_gate import InputGate
from agents.worker.executors.columns import ColumnBoltExecutor, ColumnSpoutExecutor
from agents.worker.executors.executor import FIRST_STRIDE, LatencySampler
from inventory.errors import RunError
from inventory.times import NS
from workloads.columns import ROWS_BELOW, ColumnBatch, ColumnBolt, Columns, ColumnsEmitted, Derived
from workloads.operators import Batch, Bolt, Emitted, Row
from workloads.rates import Max
from workloads.source_clock import source_clock
from workloads.topology import Executor

ME = Executor("b", 1)
SCHEMA = {"n": "int"}
RECEIVED, EMITTED = {("a", "default"): SCHEMA}, {"default": SCHEMA}


def executor(bolt: Bolt, downstream: Downstream, inputs: InputGate) -> ColumnBoltExecutor:
    assert isinstance(bolt, ColumnBolt)
    return ColumnBoltExecutor(0, ME, bolt, downstream.router, inputs, RECEIVED, EMITTED)


def process_batch(bolt: Bolt, rows: Sequence[Row], stamps: Sequence[tuple[int, int]] = ()) -> Downstream:
    """Let a bolt process one batch; return its downstream."""
    downstream, inputs = Downstream(), InputGate()
    input_channel(inputs).deliver(rows, stamps, 0)
    running = executor(bolt, downstream, inputs)
    assert running.turn(0)
    assert running.meter.processed == len(rows)
    return downstream


@pytest.mark.parametrize("way", COLUMN_MODES)
@given(count=st.integers(1, 30), sampled=st.sets(st.integers(0, 29)), copies=st.integers(0, 3), as_rows=st.booleans())
def test_rows_derived_from_a_stamped_row_inherit_its_stamp(
    way: str, count: int, sampled: set[int], copies: int, as_rows: bool
) -> None:
    rows = [(at,) for at in range(count)]
    stamps = [(at, 100 + at % 3) for at in sorted(sampled) if at < count]
    bolt = as_columns(EchoBolt(copies), EMITTED, way)
    assert isinstance(bolt, Bolt)
    downstream = process_batch(bolt, rows if as_rows else Columns.of_rows(SCHEMA, rows), stamps)
    stamp_of = dict(stamps)
    expected = [(row, stamp_of.get(row[0])) for row in rows * copies]
    assert sorted(downstream.stamped(), key=repr) == sorted(expected, key=repr)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.sets(st.integers(0, 29)))
def test_a_sampled_row_does_not_split_a_batch_if_the_bolt_returns_the_parents(
    numbers: list[int], sampled: set[int]
) -> None:
    batches: list[int] = []

    class Repeated(ColumnBolt):
        derives = True

        def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
            batches.append(batch.columns.num_rows)
            values = batch.columns.column(0).to_numpy()
            column = pa.array(np.repeat(values, values))
            columns = pa.RecordBatch.from_arrays([column], names=["n"])
            return {"default": Derived(columns, lambda: np.repeat(np.arange(len(values)), values))}

    stamps = [(at, 100 + at) for at in sorted(sampled) if at < len(numbers)]
    downstream = process_batch(Repeated(), Columns.of_rows(SCHEMA, [(n,) for n in numbers]), stamps)
    assert batches == [len(numbers)]
    stamp_of = dict(stamps)
    assert downstream.stamped() == [((n,), stamp_of.get(at)) for at, n in enumerate(numbers) for _ in range(n)]


@pytest.mark.parametrize("rows_below", [ROWS_BELOW, 3])
@pytest.mark.parametrize("beside", [-1, 0, 1])
@pytest.mark.parametrize("as_rows", [False, True])
def test_batches_below_the_limit_of_a_bolt_are_processed_as_rows(rows_below: int, beside: int, as_rows: bool) -> None:
    count = rows_below + beside
    rows = [(at,) for at in range(count)]
    bolt = as_columns(EchoBolt(), EMITTED, "either")
    assert type(bolt).rows_below == ROWS_BELOW  # type: ignore[attr-defined]
    type(bolt).rows_below = rows_below  # type: ignore[attr-defined]
    receiver = process_batch(bolt, rows if as_rows else Columns.of_rows(SCHEMA, rows))  # type: ignore[arg-type]
    receiver.outgoing.flush()
    ((_, arrived, *_),) = receiver.queue
    assert isinstance(arrived, Columns) == (beside >= 0)
    assert list(arrived) == rows


@pytest.mark.parametrize("parents", [[2, 0, 1], [0, 1], [0, 1, 3], [-1, 0, 1]])
def test_parents_that_do_not_fit_are_an_error_of_the_operator(parents: list[int]) -> None:
    class Wrong(ColumnBolt):
        derives = True

        def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
            return {"default": Derived(batch.columns, lambda: np.array(parents))}

    columns = Columns.of_rows(SCHEMA, [(at,) for at in range(3)])
    with pytest.raises(RunError, match=r"b\[1\].*stream 'default': .*parents"):
        process_batch(Wrong(), columns, [(0, 7), (2, 9)])
    # Without a sampled row, parents are not computed.
    assert len(process_batch(Wrong(), columns).stamped()) == 3


class Emitting(ColumnBolt):
    """Emits the given value."""

    def __init__(self, given: object, stream: str = "default") -> None:
        self.given, self.stream = given, stream

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        return {self.stream: self.given}  # type: ignore[dict-item]

    def on_tick(self, time_ns: int) -> Emitted:
        return {self.stream: self.given}  # type: ignore[dict-item]


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


@pytest.mark.parametrize(
    ("given_columns", "why"),
    [
        (batch(n=pa.array([1], pa.int32())), r"emitted columns \(n: int32\), expected \(n: int64\)"),
        (batch(m=pa.array([1])), r"emitted columns \(m: int64\), expected \(n: int64\)"),
        (batch(n=pa.array([1]), m=pa.array([1])), r"expected \(n: int64\)"),
        (batch(n=pa.array([1, None])), "emitted nulls in the column 'n'"),
        (pa.table({"n": [1]}), "emitted Table, expected a RecordBatch or a list of rows"),
    ],
)
def test_columns_that_do_not_follow_the_schema_are_an_error_of_the_operator(given_columns: object, why: str) -> None:
    with pytest.raises(RunError, match=r"b\[1\]: b\[1\], stream 'default': .*" + why):
        process_batch(Emitting(given_columns), [(1,)])


def test_columns_on_an_undeclared_stream_are_an_error() -> None:
    with pytest.raises(RunError, match="undeclared stream 'defualt'; did you mean 'default'"):
        process_batch(Emitting(batch(n=pa.array([1])), "defualt"), [(1,)])


def test_rows_and_dictionaries_of_an_operator_are_accepted_too() -> None:
    for given_columns in ([(1,), (2,)], batch(n=pa.array([1, 2]).dictionary_encode())):
        downstream = process_batch(Emitting(given_columns), [(1,)])
        downstream.outgoing.flush()
        assert downstream.arrived == [(1,), (2,)]


@pytest.mark.parametrize("way", ["passed on", "taken", "of its own", "with other indices"])
def test_only_a_dictionary_of_the_input_is_passed_on(way: str) -> None:
    schema = {"word": "str"}
    emitted: list[pa.Array] = []

    class Words(ColumnBolt):
        dictionaries = True

        def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
            column = batch.columns.column(0)
            if way == "taken":
                column = column.take(pa.array([3, 0, 1]))
            if way == "of its own":
                column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), ["a", "a", "b"])
            if way == "with other indices":
                column = pa.DictionaryArray.from_arrays(column.indices.cast(pa.int8()), column.dictionary)
            emitted.append(column)
            return {"default": pa.RecordBatch.from_arrays([column], names=["word"])}

    downstream, inputs = Downstream(), InputGate()
    batch = pa.RecordBatch.from_arrays([pa.array(["b", "a", "b", "a"]).dictionary_encode()], names=["word"])
    input_channel(inputs).deliver(Columns(schema, batch), (), 0)
    schemas = {("a", "default"): schema}, {"default": schema}
    assert ColumnBoltExecutor(0, ME, Words(), downstream.router, inputs, *schemas).turn(0)
    downstream.outgoing.flush()
    ((_, arrived, *_),) = downstream.queue
    assert isinstance(arrived, Columns)
    assert [word for (word,) in arrived] == emitted[0].to_pylist()
    assert isinstance(arrived.batch().column(0), pa.DictionaryArray) == (way in ("passed on", "taken"))


def test_columns_of_a_tick_have_its_due_time() -> None:
    downstream, inputs = Downstream(), InputGate()
    input_channel(inputs).deliver_mark(Tick(1, 500, 70))
    assert executor(Emitting(batch(n=pa.array([1, 2]))), downstream, inputs).turn(0)
    assert downstream.stamped()[:2] == [((1,), 70), ((2,), 70)]


def test_a_bolt_of_rows_gets_rows_from_a_column_bolt() -> None:
    from agents.worker.executors.bolt import BoltExecutor

    downstream, inputs, echo = Downstream(), InputGate(), EchoBolt()
    input_channel(inputs).deliver(Columns.of_rows(SCHEMA, [(1,), (2,)]), [(1, 5)], 0)
    running = BoltExecutor(0, ME, echo, downstream.router, inputs)
    assert running.turn(0)
    assert echo.batches == [[(1,)], [(2,)]]
    assert downstream.stamped() == [((1,), None), ((2,), 5)]


def test_an_int_that_fits_no_column_is_reported_with_executor_stream_and_column() -> None:
    bolt = as_columns(EchoBolt(), EMITTED, "columns")
    with pytest.raises(RunError, match=rf"b\[1\], stream 'default' of a, column 'n': {2**63} does not fit into int64"):
        process_batch(bolt, [(1,), (2**63,)])  # type: ignore[arg-type]


@pytest.mark.parametrize("way", COLUMN_MODES)
def test_a_column_spout_emits_its_records_once_in_order_with_their_stamps(way: str) -> None:
    downstream = Downstream()
    spout = as_columns(CountingSpout(300), EMITTED, way)
    clock = source_clock(Max(), spout, 0, 1, 0)  # type: ignore[arg-type]
    sampler = LatencySampler(0, least_stride=ColumnSpoutExecutor.LEAST_STRIDE)
    running = ColumnSpoutExecutor(0, Executor("s", 0), spout, downstream.router, clock, sampler, SCHEMA)  # type: ignore[arg-type]
    running.start(0)
    arrived: deque[Row] = deque()
    while not running.ending:
        running.turn(1)
        downstream.outgoing.flush()
        arrived += [row for entry in downstream.queue for row in entry.rows]
        assert all(isinstance(entry.rows, Columns) for entry in downstream.queue if entry.mark is None)
        downstream.queue.clear()
    assert list(arrived) == [(at,) for at in range(300)]
    assert running.position == 300


def test_a_column_spout_that_hardly_ever_runs_does_not_sample_every_record() -> None:
    downstream = Downstream()
    spout = as_columns(CountingSpout(), EMITTED, "columns")
    clock = source_clock(Max(), spout, 0, 1, 0)  # type: ignore[arg-type]
    sampler = LatencySampler(0, least_stride=ColumnSpoutExecutor.LEAST_STRIDE)
    running = ColumnSpoutExecutor(0, Executor("s", 0), spout, downstream.router, clock, sampler, SCHEMA)  # type: ignore[arg-type]
    running.start(0)
    for minutes in range(1, 9):
        assert running.turn(minutes * 60 * NS)
        downstream.outgoing.flush()
        rows, sampled = (
            sum(map(len, each)) for each in zip(*((e.rows, e.stamps) for e in downstream.queue), strict=True)
        )
        assert 0 < sampled <= rows // FIRST_STRIDE + 1
        downstream.consume()


def test_a_batch_of_a_stream_keeps_its_source() -> None:
    origins: list[tuple[str, str]] = []

    class Recording(ColumnBolt):
        def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
            origins.append((batch.source, batch.stream))
            return {}

        def process(self, batch: Batch) -> Emitted:
            origins.append((batch.source, batch.stream))
            return {}

    process_batch(Recording(), [(at,) for at in range(3)])
    process_batch(Recording(), [(at,) for at in range(100)])
    assert origins == [("a", "default")] * 2

"""A bolt's turn: one batch or one mark when there is input and credit, stamps inherited, and errors with names."""

import inspect
import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from executor_harness import Downstream, EchoBolt, input_channel
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol import Worked
from agents.worker.channels.channel import BATCH_ROWS, Barrier, End, Tick
from agents.worker.channels.groupings import Router
from agents.worker.channels.input_gate import InputGate
from agents.worker.executors.bolt import BoltExecutor, _pieces
from agents.worker.executors.columns import ColumnBoltExecutor
from agents.worker.executors.executor import RunningExecutor, Snapshot
from inventory.errors import RunError
from workloads.arrays import batch_of
from workloads.columns import ColumnBatch, ColumnBolt, ColumnsEmitted
from workloads.operators import NOTHING, Batch, Bolt, Emitted, Row, per_tuple
from workloads.topology import Executor

ME = Executor("b", 1)
HERE = re.escape(__file__)


def bolt_with(
    rows: Sequence[Row], stamps: Sequence[tuple[int, int]], downstream: Downstream, bolt: Bolt
) -> BoltExecutor:
    inputs = InputGate()
    input_channel(inputs).deliver(rows, stamps, 0)
    return BoltExecutor(0, ME, bolt, downstream.router, inputs)


@st.composite
def stamped_rows(draw: st.DrawFn) -> tuple[list[Row], list[tuple[int, int]]]:
    count = draw(st.integers(1, 30))
    stamped = sorted(draw(st.sets(st.integers(0, count - 1))))
    return [(at,) for at in range(count)], [(row, draw(st.integers(0, 3))) for row in stamped]


@given(stamped_rows())
def test_pieces_are_all_rows_in_order_cut_where_the_stamp_changes(given_rows: tuple) -> None:
    rows, stamps = given_rows
    pieces = list(_pieces(rows, stamps))
    assert [row for piece, _ in pieces for row in piece] == rows
    stamp_of = dict(stamps)
    assert [(stamp_of.get(row[0])) for row in rows] == [stamp for piece, stamp in pieces for _ in piece]
    assert all(len(piece) > 0 for piece, _ in pieces)
    assert all(a != b for (_, a), (_, b) in pairwise(pieces))


@given(stamped_rows(), st.integers(0, 3))
def test_rows_derived_from_a_stamped_row_inherit_its_stamp(given_rows: tuple, copies: int) -> None:
    rows, stamps = given_rows
    downstream = Downstream()
    running = bolt_with(rows, stamps, downstream, EchoBolt(copies))
    assert running.turn(0)
    stamp_of = dict(stamps)
    assert sorted(downstream.stamped(), key=repr) == sorted(((r, stamp_of.get(r[0])) for r in rows * copies), key=repr)
    assert (running.meter.processed, running.meter.emitted) == (len(rows), len(rows) * copies)


def test_without_credit_below_there_is_no_turn_and_the_time_counts_as_blocked() -> None:
    downstream = Downstream(window=10)
    running = bolt_with([(0,)], (), downstream, EchoBolt())
    downstream.outgoing.add([(at,) for at in range(BATCH_ROWS + 44)])
    assert downstream.outgoing.blocked
    for now in (100, 150, 400):
        assert not running.turn(now)
    assert running.meter.blocked_ns == 300
    assert running.meter.processed == 0
    while downstream.outgoing.blocked:
        downstream.consume()
    assert running.turn(1_000)
    assert running.meter.blocked_ns == 900
    assert not running.turn(5_000)
    assert running.meter.blocked_ns == 900


def test_no_input_is_not_blocked() -> None:
    downstream = Downstream(window=10)
    inputs = InputGate()
    input_channel(inputs)
    running = BoltExecutor(0, ME, EchoBolt(), downstream.router, inputs)
    downstream.outgoing.add([(at,) for at in range(BATCH_ROWS + 44)])
    for now in (0, 1_000):
        assert not running.turn(now)
    assert running.meter.blocked_ns == 0


def test_a_bolt_ends_after_the_last_of_its_inputs_and_so_does_its_output() -> None:
    downstream, inputs = Downstream(), InputGate()
    channels = [input_channel(inputs, source) for source in "xyz"]
    running = BoltExecutor(0, ME, EchoBolt(), downstream.router, inputs)
    for incoming in channels:
        assert not running.drained
        incoming.deliver([(1,)], (), 0)
        incoming.deliver_mark(End())
        while running.turn(0):
            pass
    assert running.drained
    assert downstream.arrived == [(1,), (1,), (1,), End()]


def test_a_bolt_without_inputs_has_ended_from_the_start() -> None:
    downstream = Downstream()
    running = BoltExecutor(0, ME, EchoBolt(), downstream.router, InputGate())
    assert running.ending
    assert running.drained
    assert downstream.arrived == [End()]
    assert running.latency is None


def test_a_tick_follows_the_rows_that_it_causes_which_are_stamped_with_its_due_time() -> None:
    downstream, inputs = Downstream(), InputGate()
    first, second = input_channel(inputs, "x"), input_channel(inputs, "y")
    running = BoltExecutor(0, ME, EchoBolt(), downstream.router, inputs)
    first.deliver([(1,)], (), 0)
    first.deliver_mark(Tick(1, 500, 70))
    first.deliver([(3,)], (), 0)
    while running.turn(0):
        pass
    assert downstream.marks == []
    second.deliver([(2,)], (), 0)
    second.deliver_mark(Tick(1, 500, 75))
    while running.turn(0):
        pass
    downstream.outgoing.flush()
    assert downstream.arrived == [(1,), (2,), ("tick", 500), Tick(1, 500, 75), (3,)]
    assert dict(downstream.stamped())["tick", 500] == 75
    assert running.meter.emitted == 4
    assert running.meter.processed == 3


def test_at_a_barrier_the_state_is_that_of_all_rows_before_it_and_of_none_behind() -> None:
    downstream, inputs = Downstream(), InputGate()
    first, second = input_channel(inputs, "x"), input_channel(inputs, "y")
    running = BoltExecutor(0, ME, EchoBolt(), downstream.router, inputs)
    stored: list[tuple[int, bytes]] = []

    def on_barrier(passing: RunningExecutor, number: int) -> None:
        # The barrier has been sent: rows emitted from here on are behind it downstream, too.
        assert downstream.marks == [Barrier(number)]
        stored.append((number, passing.snapshot().operator))

    running.on_barrier = on_barrier
    second.deliver([("early",)], (), 0)
    first.deliver([(1,)], (), 0)
    first.deliver_mark(Barrier(8))
    first.deliver([(2,)], (), 0)
    second.deliver([(3,)], (), 0)
    second.deliver_mark(Barrier(8))
    second.deliver([(4,)], (), 0)
    while running.turn(0):
        pass
    assert stored == [(8, b"[[('early',)], [(1,)], [(3,)]]")]
    downstream.outgoing.flush()
    assert downstream.arrived == [("early",), (1,), (3,), Barrier(8), (2,), (4,)]


def test_an_unprepared_barrier_is_an_error_that_names_the_executor() -> None:
    inputs = InputGate()
    incoming = input_channel(inputs)
    running = BoltExecutor(0, ME, EchoBolt(), Downstream().router, inputs)
    incoming.deliver_mark(Barrier(3))
    with pytest.raises(RunError, match=r"b\[1\] met barrier 3, which has not been prepared"):
        running.turn(0)


def test_a_bolt_that_waits_for_its_state_takes_nothing() -> None:
    downstream = Downstream()
    running = bolt_with([(0,)], (), downstream, EchoBolt())
    running.live = False
    assert not running.turn(0)
    assert running.queued == 1
    running.live = True
    assert running.turn(0)
    assert running.queued == 0


def test_a_mark_without_credit_stops_the_bolt_until_it_has_left() -> None:
    downstream, inputs = Downstream(window=1), InputGate()
    incoming = input_channel(inputs)
    running = BoltExecutor(0, ME, EchoBolt(), downstream.router, inputs)
    incoming.deliver([(1,), (2,)], (), 0)
    incoming.deliver_mark(Tick(1, 500, 70))
    incoming.deliver([(3,)], (), 0)
    assert running.turn(0)
    assert running.turn(0)
    # The row of the tick, and the tick, have not been sent.
    assert [running.turn(0) for _ in range(3)] == [False] * 3
    assert running.meter.processed == 2
    downstream.consume()
    downstream.consume()
    assert downstream.outgoing.blocked is False
    assert running.turn(0)


class Broken(EchoBolt):
    """Fails with the given exception."""

    def __init__(self, fault: Exception) -> None:
        super().__init__()
        self.fault = fault

    def process(self, batch: Batch) -> Emitted:
        raise self.fault

    def on_tick(self, time_ns: int) -> Emitted:
        raise self.fault


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (ZeroDivisionError("division by zero"), r"b\[1\] failed: ZeroDivisionError: division by zero \(.*\.py:\d+\)"),
        (RunError("the file is gone"), r"^b\[1\]: the file is gone$"),
    ],
)
def test_an_operators_failure_names_the_executor_and_the_line(fault: Exception, message: str) -> None:
    with pytest.raises(RunError, match=message):
        bolt_with([(1,)], (), Downstream(), Broken(fault)).turn(0)
    inputs = InputGate()
    input_channel(inputs).deliver_mark(Tick(1, 5, 5))
    with pytest.raises(RunError, match=message):
        BoltExecutor(0, ME, Broken(fault), Downstream().router, inputs).turn(0)


class FailsInALibrary(EchoBolt):
    """Fails inside a library call, in every method."""

    def process(self, batch: Batch) -> Emitted:
        return {"default": [json.loads("{")]}

    def snapshot(self) -> bytes:
        return bytes(json.loads("{"))

    def restore(self, state: bytes) -> None:
        json.loads("{")


@pytest.mark.parametrize(
    ("ask", "line"),
    [
        (lambda bolt: bolt.turn(0), "process"),
        (lambda bolt: bolt.snapshot(), "snapshot"),
        (lambda bolt: bolt.restore(Snapshot(b"")), "restore"),
    ],
)
def test_an_operator_that_fails_in_a_library_is_shown_by_its_own_line(
    ask: Callable[[BoltExecutor], object], line: str
) -> None:
    number = inspect.getsourcelines(getattr(FailsInALibrary, line))[1] + 1
    with pytest.raises(RunError, match=rf"^b\[1\] failed: JSONDecodeError: .* \({__file__}:{number}\)$"):
        ask(bolt_with([(1,)], (), Downstream(), FailsInALibrary()))


def test_a_function_of_one_row_that_fails_is_shown_by_its_own_line() -> None:
    @per_tuple
    def halved(number: int) -> list[tuple[float]]:
        return [(number / 0,)]

    with pytest.raises(RunError, match=rf"\({__file__}:{inspect.currentframe().f_lineno - 2}\)$"):  # type: ignore[union-attr]
        bolt_with([(1,)], (), Downstream(), halved()).turn(0)


def test_an_undeclared_stream_is_named_with_the_nearest_one() -> None:
    class Elsewhere(EchoBolt):
        def process(self, batch: Batch) -> Emitted:
            return {"defualt": batch.rows}

    with pytest.raises(RunError, match=r"b\[1\].*undeclared stream 'defualt'.*'default'"):
        bolt_with([(1,)], (), Downstream(), Elsewhere()).turn(0)


class Last(EchoBolt):
    def on_end(self) -> Emitted:
        return {"default": [("last", len(self.batches))]}


class LastColumns(ColumnBolt):
    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        return NOTHING

    def on_end(self) -> ColumnsEmitted:
        return {"default": batch_of({"n": "int"}, [(7,)])}


@pytest.mark.parametrize(("bolt", "rows"), [(Last(), [(0,), (1,), ("last", 1)]), (LastColumns(), [(7,)])])
def test_what_a_bolt_emits_at_the_end_of_its_input_precedes_the_end(bolt: Bolt, rows: list[Row]) -> None:
    inputs, downstream = InputGate(), Downstream()
    channel = input_channel(inputs)
    if isinstance(bolt, ColumnBolt):
        schemas: Any = {("a", "default"): {"n": "int"}}, {"default": {"n": "int"}}
        running: BoltExecutor = ColumnBoltExecutor(0, ME, bolt, downstream.router, inputs, *schemas)
    else:
        running = BoltExecutor(0, ME, bolt, downstream.router, inputs)
    channel.deliver([(0,), (1,)], (), 0)
    channel.deliver_mark(End())
    while running.turn(0):
        pass
    arrived = [(list(delivery.rows), delivery.mark) for delivery in downstream.queue]
    assert [row for some, _ in arrived for row in some] == rows
    assert [mark for _, mark in arrived if mark is not None] == [End()]
    assert arrived[-1][1] == End()
    assert (running.meter.emitted, running.ending) == (len(rows), True)


# --- state -----------------------------------------------------------------------------------------------------


class Sink(Bolt):
    """A sink that ignores its rows."""

    def process(self, batch: Batch) -> Emitted:
        return {}


class Returning(EchoBolt):
    """Returns the given state from `snapshot`, or raises it."""

    def __init__(self, state: object) -> None:
        super().__init__()
        self.state = state

    def snapshot(self) -> bytes:
        if isinstance(self.state, BaseException):
            raise self.state
        return self.state  # type: ignore[return-value]

    def restore(self, state: bytes) -> None:
        self.snapshot()


@pytest.mark.parametrize("state", [None, "state", bytearray(b"state"), memoryview(b"state"), [1], 0])
def test_a_state_that_is_no_bytes_is_refused_with_executor_operator_type_and_file(state: object) -> None:
    expected = rf"^b\[1\]: snapshot\(\) of Returning returned {type(state).__name__}, expected bytes \({HERE}:\d+\)$"
    with pytest.raises(RunError, match=expected):
        bolt_with([], [], Downstream(), Returning(state)).snapshot()


def test_a_snapshot_that_is_no_function_of_python_is_refused_with_the_file_of_its_module() -> None:
    class Partial(Bolt):
        snapshot = partial(str)  # type: ignore[assignment]

    with pytest.raises(RunError, match=rf"returned str, expected bytes \({HERE}\)$"):
        bolt_with([], [], Downstream(), Partial()).snapshot()


@pytest.mark.parametrize("fault", [ValueError("none"), SystemExit(3), GeneratorExit("x"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["snapshot", "restore"])
def test_whatever_snapshot_and_restore_raise_names_the_executor(fault: BaseException, step: str) -> None:
    running = bolt_with([], [], Downstream(), Returning(fault))
    with pytest.raises(RunError, match=rf"^b\[1\] failed: {type(fault).__name__}: .*\({HERE}:\d+\)$"):
        running.snapshot() if step == "snapshot" else running.restore(Snapshot(b""))


# --- recovery --------------------------------------------------------------------------------------------------


def test_replayed_work_of_a_restored_bolt_is_not_counted_and_its_totals_are_part_of_its_state() -> None:
    downstream = Downstream()
    inputs = InputGate()
    channel = input_channel(inputs)
    running = BoltExecutor(0, ME, EchoBolt(2), downstream.router, inputs)
    running.restore(Snapshot(b"", worked=Worked(emitted=200, processed=100)))
    running.seen = Worked(emitted=215, processed=107)
    for _ in range(3):
        channel.deliver([(0,), (1,), (2,)], [(0, 5)], 0)
        assert running.turn(0)
    assert (running.meter.processed, running.meter.emitted, running.meter.replayed) == (2, 3, 15)
    assert running.snapshot().worked == (218, 109)


def test_latencies_of_rows_that_reach_a_sink_again_are_not_recorded_again() -> None:
    inputs = InputGate()
    channel = input_channel(inputs)
    sink = BoltExecutor(0, ME, Sink(), Router("b[1]", {}, []), inputs)
    sink.seen = Worked(processed=4)
    for _ in range(3):
        channel.deliver([(1,), (2,)], [(1, 0)], 0)
        assert sink.turn(0)
    assert sink.latency is not None
    assert [count for _, count in sink.latency.take()] == [1]
    assert (sink.meter.processed, sink.worked.processed) == (2, 6)

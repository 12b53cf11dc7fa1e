"""Ticks inside batches: rows and markers arrive in the order in which they were sent, however they are taken."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import pytest
from executor_harness import Downstream, EchoBolt, input_channel
from hypothesis import given
from hypothesis import strategies as st

from agents.worker.channels.channel import (
    Barrier,
    ChannelId,
    CreditWindow,
    Delivery,
    End,
    Mark,
    Tick,
    Ticks,
)
from agents.worker.channels.ends import LocalIncoming, LocalOutgoing, local_channel
from agents.worker.channels.groupings import Fields, Global, Router
from agents.worker.channels.input_gate import InputGate, batch_parts
from agents.worker.channels.linger import FlushTimer
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.columns import ColumnBoltExecutor, ColumnSpoutExecutor
from agents.worker.executors.executor import LatencySampler
from inventory.errors import RunError
from workloads.arrays import batch_of
from workloads.columns import ColumnBatch, ColumnBolt, Columns, ColumnsEmitted, ColumnSpout, Derived
from workloads.key_groups import first_owners
from workloads.operators import NOTHING, STEP_NS, Batch, Bolt, Emitted, Row
from workloads.rates import Max
from workloads.source_clock import source_clock
from workloads.topology import Executor

ME = Executor("b", 1)
SCHEMA = {"n": "int"}
RECEIVED, EMITTED = {("a", "default"): SCHEMA}, {"default": SCHEMA}


def channel(inputs: InputGate, window: CreditWindow, timer: FlushTimer) -> tuple[LocalOutgoing, LocalIncoming]:
    both = local_channel(ChannelId(0, 1, 0), 0, ("a", "default"), inputs, window, timer, batches=2)
    inputs.join(both[1])
    return both


def taken(inputs: InputGate, with_ticks: bool) -> list[Any]:
    """Return the next rows, with their stamps, and markers of an input, and give credit."""
    entry = inputs.take(with_ticks)
    if not isinstance(entry, Delivery):
        return [] if entry is None else [entry]
    entry.channel.consumed(len(entry.rows), entry.nbytes)
    parts = batch_parts(entry, entry.mark) if isinstance(entry.mark, Ticks) else [entry]
    assert sum(part.nbytes for part in parts) == entry.nbytes
    found: list[Any] = []
    for part in parts:
        stamps = dict(part.stamps)
        found += [(row, stamps.get(at)) for at, row in enumerate(part.rows)] if part.mark is None else [part.mark]
    return found


@given(
    st.lists(st.sampled_from(["rows", "columns", "inside", "inside", "tick", "barrier", "flush", "take"]), max_size=40),
    st.integers(1, 30),
    st.randoms(use_true_random=False),
)
def test_rows_stamps_and_markers_arrive_in_order_with_any_credit(events: list[str], rows: int, random: Random) -> None:
    inputs, sent, arrived, number = InputGate(), [], [], 0
    outgoing, _ = channel(inputs, CreditWindow(rows, 1 << 20), FlushTimer())
    for event in [*events, *["flush", "take"] * 60]:
        if event in ("rows", "columns", "inside", "tick", "barrier") and outgoing.blocked:
            continue
        number += 1
        mark: Mark | None = None
        match event:
            case "rows" | "columns":
                some = [(random.randrange(99),) for _ in range(random.randint(1, 7))]
                stamps = [(at, number) for at in range(len(some)) if random.random() < 0.3]
                outgoing.add(some if event == "rows" else Columns.of_rows(SCHEMA, some), stamps)
                sent += [(row, dict(stamps).get(at)) for at, row in enumerate(some)]
            case "inside":
                outgoing.mark_inside(mark := Tick(number, number, 0))
            case "tick":
                outgoing.mark(mark := Tick(number, number, 0))
            case "barrier":
                outgoing.mark(mark := Barrier(number))
            case "flush":
                outgoing.flush()
            case "take":
                arrived += taken(inputs, random.random() < 0.5)
        sent += [mark] if mark else []
    assert arrived == sent


@given(st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=2, max_size=2), st.booleans(), st.integers(0, 2**32))
def test_with_several_channels_a_tick_waits_for_the_rows_before_it_on_all(
    gaps: list[list[int]], first: bool, seed: int
) -> None:
    inputs, timer, random = InputGate(), FlushTimer(), Random(seed)  # noqa: S311 - it must be repeatable
    senders = [channel(inputs, CreditWindow(1 << 20, 1 << 30), timer)[0] for _ in gaps]
    length = min(map(len, gaps))
    for number in range(length):
        for sender, counts in list(zip(senders, gaps, strict=True))[:: 1 if first else -1]:
            if counts[number]:
                sender.add([(number,)] * counts[number])
            sender.mark_inside(Tick(number + 1, number, 0))
            if random.random() < 0.3:
                sender.flush()
    for sender in senders:
        sender.flush()
    found: list[Any] = []
    while more := taken(inputs, True):
        found += more
    expected: list[Any] = []
    for number in range(length):
        expected += [((number,), None)] * sum(counts[number] for counts in gaps)
        expected.append(Tick(number + 1, number, 0))
    assert found == expected


class Doubled(ColumnBolt):
    """Doubles numbers, `times` times, and emits the same at each tick; records the ticks that it gets."""

    derives = True
    skips_ticks = True

    def __init__(self, at_tick: Emitted = NOTHING, times: int = 1) -> None:
        self.ticks: list[int] = []
        self._at_tick, self._times = at_tick, times

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        numbers = np.repeat(batch.columns.column(0).to_numpy() * 2, self._times)
        rows = [(number,) for number in numbers.tolist()]
        parents = np.repeat(np.arange(batch.columns.num_rows), self._times)
        return {"default": Derived(batch_of(SCHEMA, rows), None if self._times == 1 else lambda: parents)}

    def on_tick(self, time_ns: int) -> Emitted:
        self.ticks.append(time_ns)
        return self._at_tick


class Summed(ColumnBolt):
    """The sum so far at every tick."""

    derives = True

    def __init__(self) -> None:
        self.total, self.calls = 0, 0

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        self.total += int(batch.columns.column(0).to_numpy().sum())
        return NOTHING

    def on_tick(self, time_ns: int) -> Emitted:
        return {"default": [(self.total,)]}


class SummedAtOnce(Summed):
    """The same for several ticks at once."""

    def process_ticks(self, batch: ColumnBatch, ticks: Sequence[tuple[int, int]]) -> Sequence[Emitted]:
        self.calls += 1
        totals = self.total + np.cumsum(batch.columns.column(0).to_numpy())
        self.total = int(totals[-1])
        return [{"default": [(int(totals[row - 1]),)]} for row, _ in ticks]


def delivered(
    bolt: Bolt, routed: Callable[[list[Downstream]], Router], places: Sequence[int], rows: int
) -> list[Downstream]:
    """Deliver a batch with a tick after each of these numbers of rows to a bolt; return its receivers."""
    downstream, inputs = [Downstream(), Downstream()], InputGate()
    ticks = Ticks(tuple([(row, Tick(at + 1, 10 * at, 7)) for at, row in enumerate(places)]))
    given_rows = Columns.of_rows(SCHEMA, [(at,) for at in range(rows)])
    input_channel(inputs).deliver(given_rows, [(at, 5) for at in range(0, rows, 3)], 80, ticks)
    router = routed(downstream)
    if isinstance(bolt, ColumnBolt):
        running: BoltExecutor = ColumnBoltExecutor(0, ME, bolt, router, inputs, RECEIVED, EMITTED)
    else:
        running = BoltExecutor(0, ME, bolt, router, inputs)
    while running.turn(0):
        pass
    assert running.meter.processed == rows
    for each in downstream:
        each.outgoing.flush()
    return downstream


def to_both(downstream: list[Downstream]) -> Router:
    channels = [each.outgoing for each in downstream]
    return Router("b[1]", {"default": [Global(each) for each in channels]}, channels)


def by_key(downstream: list[Downstream]) -> Router:
    channels = [each.outgoing for each in downstream]
    return Router("b[1]", {"default": [Fields(channels, first_owners(2), (0,), 1)]}, channels)


def flat(downstream: Downstream) -> list[Any]:
    """Return the rows, with their stamps, and markers that have arrived."""
    found: list[Any] = []
    while downstream.queue:
        entry = downstream.queue.popleft()
        for part in batch_parts(entry, entry.mark) if isinstance(entry.mark, Ticks) else [entry]:
            stamps = dict(part.stamps)
            found += [(row, stamps.get(at)) for at, row in enumerate(part.rows)] if part.mark is None else [part.mark]
        downstream.incoming.consumed(len(entry.rows), entry.nbytes)
    return found


@pytest.mark.parametrize("routed", [to_both, by_key])
@pytest.mark.parametrize("places", [(1,), (4, 4, 6), (10,), (3, 10, 10)])
def test_a_bolt_that_skips_ticks_sends_them_at_the_rows_where_it_got_them(
    routed: Callable[[list[Downstream]], Router], places: tuple[int, ...]
) -> None:
    class OneByOne(Doubled):
        skips_ticks = False

    bolt = Doubled()
    found = delivered(bolt, routed, places, 10)
    expected = delivered(OneByOne(), routed, places, 10)
    assert [flat(each) for each in found] == [flat(each) for each in expected]
    assert bolt.ticks == [10 * (len(places) - 1)]


@pytest.mark.parametrize("places", [(1,), (4, 4, 6), (3, 10)])
def test_a_bolt_that_handles_several_ticks_at_once_emits_at_each_what_it_would_emit_alone(
    places: tuple[int, ...],
) -> None:
    bolt = SummedAtOnce()
    found, expected = delivered(bolt, to_both, places, 10), delivered(Summed(), to_both, places, 10)
    assert [flat(each) for each in found] == [flat(each) for each in expected]
    assert bolt.calls == 1
    assert bolt.total == 45


def test_a_bolt_of_rows_gets_ticks_one_by_one() -> None:
    events: list[Any] = []

    class RecordingBolt(Bolt):
        def process(self, batch: Batch) -> Emitted:
            events.append(len(batch.rows))
            return NOTHING

        def on_tick(self, time_ns: int) -> Emitted:
            events.append(f"tick {time_ns}")
            return NOTHING

    delivered(RecordingBolt(), to_both, (2, 2, 6), 7)
    # Sampled rows are processed apart.
    assert [event for event in events if isinstance(event, str)] == ["tick 0", "tick 10", "tick 20"]
    assert sum(event for event in events[: events.index("tick 0")]) == 2


def test_a_batch_with_ticks_is_one_turn_and_stays_one_batch_unless_credit_runs_out() -> None:
    for window, most in ((1 << 20, 1), (3, 10)):
        downstream, inputs = Downstream(window), InputGate()
        ticks = Ticks(((2, Tick(1, 1, 0)), (2, Tick(2, 2, 0)), (7, Tick(3, 3, 0))))
        input_channel(inputs).deliver([(at,) for at in range(10)], (), 0, ticks)
        running = BoltExecutor(0, ME, EchoBolt(), downstream.router, inputs)
        found: list[Any] = []
        turns = 0
        while running.inputs or downstream.queue or downstream.outgoing.pending:
            turns += running.turn(0)
            downstream.outgoing.flush()
            assert window == 3 or len(downstream.queue) == 1
            found += [entry if isinstance(entry, Tick) else entry[0] for entry in flat(downstream)]
        assert 1 <= turns <= most
        rows = [(at,) for at in range(10)]
        own = [[("tick", number), Tick(number, number, 0)] for number in (1, 2, 3)]
        assert found == [*rows[:2], *own[0], *own[1], *rows[2:7], *own[2], *rows[7:]]


@pytest.mark.parametrize(
    ("bolt", "said"),
    [(Doubled(times=2), "one row for each"), (Doubled(at_tick={"default": [(1,)]}), "emitted rows at a tick")],
)
def test_a_bolt_that_must_not_skip_ticks_is_an_error(bolt: Doubled, said: str) -> None:
    with pytest.raises(RunError, match=rf"b\[1\].*{said}"):
        delivered(bolt, to_both, (4,), 10)


def test_a_tick_that_has_passed_is_an_error_inside_a_batch_too() -> None:
    inputs = InputGate()
    rows: list[Row] = [(1,), (2,)]
    input_channel(inputs).deliver(rows, (), 0, Ticks(((1, Tick(2, 0, 0)), (2, Tick(2, 0, 0)))))
    with pytest.raises(RunError, match="tick 2 has passed"):
        inputs.take(with_ticks=True)


class Numbers(ColumnSpout):
    """Counts up to a limit, with a tick every few records."""

    def __init__(self, every: int, limit: int) -> None:
        self.tick_ns, self._next, self._limit = every * STEP_NS, 0, limit

    def next_columns(self, limit: int) -> Any:
        rows = [(at,) for at in range(self._next, min(self._limit, self._next + limit))]
        self._next += len(rows)
        return batch_of(SCHEMA, rows)


@given(st.integers(1, 9), st.integers(0, 60), st.integers(1, 20), st.integers(1, 40), st.booleans())
def test_a_source_sends_the_same_with_ticks_inside_batches_but_in_fewer_turns(
    every: int, limit: int, most: int, window: int, stopped: bool
) -> None:
    turns, arrived = [], []
    for inside in (True, False):
        downstream = Downstream(window)
        downstream.outgoing.takes_ticks = inside  # type: ignore[misc]
        spout = Numbers(every, limit)
        with mock.patch.object(ColumnSpoutExecutor, "MAX_ROWS", most):
            clock, sampler = source_clock(Max(), spout, 0, 1, 0), LatencySampler(0)
            running = ColumnSpoutExecutor(0, Executor("a", 0), spout, downstream.router, clock, sampler, SCHEMA)
            running.start(0)
            count, found = 0, []
            for at in range(1000):
                if stopped and at == 3:
                    running.stop(reached=limit // 2)
                count += running.turn(1)
                downstream.outgoing.flush()
                found += flat(downstream)
        assert found[-1] == End()
        turns.append(count)
        arrived.append([entry if isinstance(entry, End) else entry[:2] for entry in found])
    if not stopped:
        assert arrived[0] == arrived[1]
    assert turns[0] <= turns[1]

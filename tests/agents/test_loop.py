"""Event loop on a scripted clock: it sleeps exactly when there is nothing to do, and wakes for what is due.

The selector returns all sockets that are ready; if none is, it waits for its whole timeout.
"""

import selectors
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from delivery_oracle import SCHEMA, SIDE, DeliveryOracle
from scripted_run import run_spec

from agents.protocol import Message, Passed, Slot
from agents.worker.channels.linger import MAX_LINGER_NS, FlushTimer
from agents.worker.process import event_loop as loop_module
from agents.worker.process.event_loop import REPORT_NS, EventLoop, Selector
from agents.worker.process.state_store import StateStore
from agents.worker.process.worker import Worker
from agents.worker.task_graph.epoch import EpochTasks
from agents.worker.task_graph.registry import TaskRegistry
from agents.worker.wire import frame
from agents.worker.wire.frame import Codec
from agents.worker.wire.mesh import LinkError, PeerLink
from workloads.topology import Component, Input, Topology

HERE = Slot("n1", 0)


class Clock(selectors.SelectSelector):
    """Time that passes only while the loop sleeps in its selector."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = 5_000_000_000
        self.registry = TaskRegistry()
        self.slept: list[float] = []
        self.before_select: Callable[[], None] = lambda: None
        self.after_turns: Callable[[], None] = lambda: None

    def monotonic_ns(self) -> int:
        return self.now_ns

    def select(self, timeout: float | None = None) -> list:
        assert timeout is not None
        self.before_select()
        if timeout > 0:
            assert not any(bolt.queued for bolt in self.registry.bolts), "asleep over queued rows"
            self.slept.append(timeout)
        self.now_ns += round(timeout * 1e9)
        return super().select(0)


class Alone:
    """The network of a worker that has at most one link."""

    complete = True

    def __init__(self, link: PeerLink | None = None) -> None:
        self._link = link

    def wire(self, peer: int) -> PeerLink:
        assert self._link is not None, "nobody else"
        return self._link

    def connect(self, peers: set[int], places: Sequence[Slot], ports: Mapping[str, int]) -> None:
        assert len(peers) == (self._link is not None)


def tasks_of(
    topology: Topology,
    places: Sequence[Slot],
    records: int,
    clock: "Clock",
    flush_timer: FlushTimer,
    network: Alone,
    rate: Mapping[str, object] | None,
) -> EpochTasks:
    """Return the tasks of the worker at `HERE`."""
    clocks = SimpleNamespace(now_ns=clock.monotonic_ns, cpu_ns=lambda: 0)
    operator = DeliveryOracle(topology, records, places).operator
    spec = run_spec(topology, places, rate=rate)
    store = StateStore(Path("nowhere"), spec.run)
    tasks = EpochTasks(spec, HERE, operator, {}, flush_timer, network, store, clocks, lambda _: None)
    clock.registry = tasks.registry
    store.close()
    return tasks


def line(length: int) -> Topology:
    outputs = {"default": SCHEMA, SIDE: SCHEMA}
    bolts = [
        Component(f"b{at}", "bolt", outputs=outputs, inputs=(Input(f"b{at - 1}" if at else "s0"),))
        for at in range(length)
    ]
    return Topology("line", (Component("s0", "spout", outputs={"default": SCHEMA}), *bolts))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(loop_module, "time", SimpleNamespace(monotonic_ns=clock.monotonic_ns))
    return clock


def every(step_ns: int) -> Mapping[str, object]:
    """Return a rate of one record per `step_ns`."""
    return {"kind": "constant", "tuples_per_s": 1e9 / step_ns}


def looped(
    clock: Clock, topology: Topology, rate: Mapping[str, object] | None, records: int, linger_ns: int | None = None
) -> tuple[EventLoop, TaskRegistry, list[int]]:
    """A loop that runs the whole topology in one worker, and the times at which it reported."""
    reports: list[int] = []
    flush_timer = FlushTimer(linger_ns)
    tasks = tasks_of(topology, [HERE] * len(topology.executors), records, clock, flush_timer, Alone(), rate)
    no_link = "no link can break here"
    loop = EventLoop(
        clock, tasks, flush_timer, reports.append, lambda *_: pytest.fail(no_link), lambda: clock.after_turns()
    )
    return loop, tasks.registry, reports


def delays(clock: Clock, length: int, linger_ns: int | None) -> list[int]:
    """Return the time that each of ten records, due 50 ms apart, takes through a line of bolts."""
    loop, registry, _ = looped(clock, line(length), every(50_000_000), 1_000, linger_ns)
    start = clock.now_ns + 10_000_000
    registry.spouts[0].start(start)
    sink = registry.bolts[-1]
    arrivals: list[int] = []
    while len(arrivals) < 10:
        now = clock.now_ns
        loop.run_pass()
        arrivals += [now] * (sink.meter.processed - len(arrivals))
    return [at - start - record * 50_000_000 for record, at in enumerate(arrivals)]


@pytest.mark.parametrize("linger_ns", [300_000, MAX_LINGER_NS, 20_000_000])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_row_waits_on_every_hop_for_as_long_as_is_set_and_for_nothing_else(
    clock: Clock, length: int, linger_ns: int
) -> None:
    # The loop wakes sources a little later than due, so that records due close together leave together.
    most = length * linger_ns + linger_ns // loop_module._QUANTA
    found = delays(clock, length, linger_ns)
    assert all(length * linger_ns <= delay <= most + 1_000 for delay in found), found


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("linger_ns", [None, 0])
def test_an_idle_worker_passes_a_row_through_all_executors_at_once(
    clock: Clock, length: int, linger_ns: int | None
) -> None:
    found = delays(clock, length, linger_ns)
    assert all(0 <= delay <= 1_000 for delay in found), found


def test_nothing_is_polled_while_nothing_is_due(clock: Clock) -> None:
    loop, registry, _ = looped(clock, line(2), every(400_000_000), 3)
    registry.spouts[0].start(clock.now_ns)
    passes = 0
    while not all(running.drained for running in registry.executors):
        loop.run_pass()
        passes += 1
    assert registry.bolts[-1].meter.processed == 3
    # One pass per record, its end, and one pass for the report.
    assert passes <= 3 + 2
    assert max(clock.slept) > 0.3


def test_effects_of_the_last_turns_are_handled_before_the_loop_sleeps(clock: Clock) -> None:
    loop, registry, _ = looped(clock, line(2), None, 3)
    drained_at: list[int] = []
    clock.after_turns = lambda: drained_at.extend(
        [clock.now_ns] * all(running.drained for running in registry.executors)
    )
    registry.spouts[0].start(clock.now_ns)
    while not drained_at:
        began = clock.now_ns
        loop.run_pass()
    assert drained_at == [began]


def test_a_source_that_is_a_little_behind_waits_for_more_and_one_that_is_far_behind_does_not(clock: Clock) -> None:
    quantum = MAX_LINGER_NS // loop_module._QUANTA
    loop, registry, _ = looped(clock, line(1), every(quantum // 10), 100_000, MAX_LINGER_NS)
    spout = registry.spouts[0]
    spout.start(clock.now_ns)
    loop.run_pass()
    emitted = spout.meter.emitted
    for _ in range(20):
        loop.run_pass()
    # Ten records become due in a quantum; a pass for the sink comes in between.
    assert spout.meter.emitted - emitted >= 10 * 8
    clock.now_ns += 1_000 * quantum
    clock.slept.clear()
    while spout.meter.emitted < 9_000:
        loop.run_pass()
    assert not clock.slept


def test_sources_without_a_schedule_start_at_the_given_time(clock: Clock) -> None:
    loop, registry, _ = looped(clock, line(1), None, 10)
    start = clock.now_ns + 30_000_000
    registry.spouts[0].start(start)
    now = clock.now_ns
    while not registry.spouts[0].meter.emitted:
        now = clock.now_ns
        loop.run_pass()
    assert 0 <= now - start <= 1_000


def test_reports_come_once_a_second_also_after_a_long_turn(clock: Clock) -> None:
    loop, registry, reports = looped(clock, line(1), every(10_000_000), 10_000)
    start = clock.now_ns
    registry.spouts[0].start(start)
    while len(reports) < 3:
        loop.run_pass()
    # An operator that takes six seconds for a batch.
    clock.now_ns += 6 * REPORT_NS
    while len(reports) < 6:
        loop.run_pass()
    assert gaps(reports[:3], start) == [1, 1, 1]
    assert gaps(reports[3:], reports[2]) == [6, 1, 1]


def gaps(times: Sequence[int], before: int) -> list[int]:
    """Whole seconds between reports."""
    return [round((b - a) / REPORT_NS) for a, b in zip([before, *times], times, strict=False)]


# --- links ---------------------------------------------------------------------------------------------------------

THERE = Slot("n2", 0)


class Linked:
    """The loop of the worker with the bolt; the spout's worker is the far end of a socket."""

    def __init__(self, clock: Clock, first_bytes: bytes = b"") -> None:
        self.lost: list[LinkError] = []
        self.reported: list[int] = []
        self.clock = clock
        ours, self.far = socket.socketpair()
        ours.setblocking(False)
        self.link = PeerLink(1, 1)
        self.link.attach(ours, first_bytes)
        flush_timer = FlushTimer()
        self.tasks = tasks_of(line(1), [THERE, HERE], 100, clock, flush_timer, Alone(self.link), None)
        self.loop = EventLoop(
            clock, self.tasks, flush_timer, self.reported.append, lambda _, fault: self.lost.append(fault), bool
        )
        self.loop.add_link(self.link)

    @property
    def waits_to_write(self) -> bool:
        return bool(self.clock.get_key(self.link.sock).events & selectors.EVENT_WRITE)

    def close(self) -> None:
        self.link.close()
        self.far.close()


@pytest.fixture
def linked(clock: Clock) -> Iterator[Linked]:
    linked = Linked(clock)
    yield linked
    linked.close()


def test_a_worker_tells_its_peer_when_rows_begin_to_wait_in_it_and_when_they_wait_no_more(
    linked: Linked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def announced() -> list[int]:
        reader = frame.FrameReader(1)
        linked.far.setblocking(False)
        try:
            return [each.count for each in reader.feed(linked.far.recv(10_000)) if each.kind == frame.LINGER]
        except BlockingIOError:
            return []

    def be_busy() -> None:
        linked.clock.now_ns += 5_000_000

    for _ in range(20):
        linked.loop.run_pass()
    assert announced() == []
    linked.clock.before_select = be_busy
    # A pass does not sleep while there is work.
    with monkeypatch.context() as patch:
        patch.setattr(EpochTasks, "has_more_steps", True)
        for _ in range(50):
            linked.loop.run_pass()
    waits = announced()
    assert waits == sorted(waits)
    assert 1 < len(waits) < 20
    assert waits[-1] * 1_000 > MAX_LINGER_NS / loop_module._ANNOUNCED_AT
    linked.clock.before_select = lambda: None
    for _ in range(3):
        linked.loop.run_pass()
    assert announced() == [0]


def test_what_a_peer_announces_holds_for_rows_to_it(linked: Linked) -> None:
    linked.far.send(frame.linger(1, 700))
    linked.loop.run_pass()
    assert linked.loop._flush_timer.peers_ns == {1: 700_000}


def test_a_full_socket_wakes_the_loop_when_it_takes_more_and_not_otherwise(linked: Linked) -> None:
    linked.loop.run_pass()
    assert not linked.waits_to_write
    data = bytes(range(256)) * 20_000
    linked.link.write([data])
    linked.loop.run_pass()
    assert linked.link.backlog
    assert linked.waits_to_write
    got = b""
    while len(got) < len(data):
        got += linked.far.recv(1 << 20)
        linked.loop.run_pass()
    linked.loop.run_pass()
    assert got == data
    assert not linked.waits_to_write


def test_frames_that_came_with_the_handshake_are_taken_at_once(clock: Clock) -> None:
    row = Codec(SCHEMA).encode([(0, "s0", 0, 0, 0)])
    linked = Linked(clock, b"".join(frame.data(0, 1, 0, 1, 1, row)))
    assert clock.registry.bolts[0].queued == 1
    linked.close()


def test_a_link_that_breaks_is_lost_once_though_reading_and_writing_fail_together(linked: Linked) -> None:
    linked.link.write([bytes(5_000_000)])
    linked.loop.run_pass()
    assert linked.waits_to_write
    linked.clock.before_select = linked.far.close
    linked.loop.run_pass()
    linked.loop.run_pass()
    assert len(linked.lost) == 1
    assert "link to worker 1" in str(linked.lost[0])
    with pytest.raises(KeyError):
        linked.clock.get_key(linked.link.sock)


def test_a_halted_loop_gives_no_turns_and_sends_nothing_but_reads_so_that_it_can_sleep(linked: Linked) -> None:
    linked.loop.halted = True
    clock, sink = linked.clock, linked.tasks.registry.bolts[0]
    # It sleeps although rows are queued.
    clock.registry = TaskRegistry()
    linked.far.send(b"".join(frame.data(0, 1, 0, 1, 1, Codec(SCHEMA).encode([(0, "s0", 0, 0, 0)]))))
    linked.link.write([b"later"])
    for _ in range(30):
        linked.loop.run_pass()
    assert (sink.queued, sink.meter.processed) == (1, 0)
    assert linked.link.backlog
    assert sum(clock.slept) >= 2
    assert len(linked.reported) >= 2


@pytest.fixture
def readiness() -> Iterator[Selector]:
    with Selector() as found:
        yield found


@pytest.mark.parametrize("timeout", [0, 0.000_2, 5.0, None])
def test_all_ready_sockets_are_found_with_any_timeout(readiness: Selector, timeout: float | None) -> None:
    pairs = [socket.socketpair() for _ in range(40)]
    for at, (ours, theirs) in enumerate(pairs):
        readiness.register(ours, selectors.EVENT_READ, at)
        if at % 3 == 0:
            theirs.send(b"x")
    found = {key.data: mask for key, mask in readiness.select(timeout)}
    assert found == dict.fromkeys(range(0, 40, 3), selectors.EVENT_READ)
    for pair in pairs:
        for sock in pair:
            sock.close()


def test_writability_is_reported_only_for_sockets_registered_for_it(readiness: Selector) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        readiness.register(ours, selectors.EVENT_READ)
        assert not readiness.select(0.000_1)
        readiness.modify(ours, selectors.EVENT_READ | selectors.EVENT_WRITE)
        assert [mask for _, mask in readiness.select(5.0)] == [selectors.EVENT_WRITE]


def test_a_wait_is_never_cut_short(readiness: Selector) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        readiness.register(ours, selectors.EVENT_READ)
        for timeout in (0.000_05, 0.000_5, 0.003):
            began = time.monotonic()
            assert readiness.select(timeout) == []
            assert time.monotonic() - began >= timeout


def test_state_of_moved_executors_is_sent_before_a_report_frees_what_they_left() -> None:
    calls: list[str | Message] = []
    worker = object.__new__(Worker)
    worker.loop = SimpleNamespace(flush_links=lambda: calls.append("flush"))  # type: ignore[assignment]
    worker._report = lambda now_ns: calls.append("report")  # type: ignore[method-assign]
    worker._send = calls.append
    passed = Passed(epoch=1, slot=0, barrier=1)
    worker._send_after_flush(passed)
    assert calls == ["flush", "report", passed]

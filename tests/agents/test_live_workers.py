"""Workers over real sockets, stepped in one thread: topologies end exactly while foreign connections arrive."""

import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from delivery_oracle import SCHEMA, SIDE, DeliveryOracle
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted_run import Limits, run_spec

from agents.protocol import Cut, Message, Passed, Prepare, Ready, RunSpec, Slot, Stored
from agents.worker.channels.channel import ChannelId
from agents.worker.channels.linger import FlushTimer
from agents.worker.process import event_loop as loop_module
from agents.worker.process.event_loop import EventLoop
from agents.worker.process.state_store import StateStore
from agents.worker.process.worker import Links, MonotonicClocks
from agents.worker.task_graph.epoch import EpochTasks
from agents.worker.task_graph.plan import RunPlan
from agents.worker.task_graph.registry import TaskRegistry
from agents.worker.wire import frame
from agents.worker.wire.frame import FrameError
from agents.worker.wire.handshake import WorkerIdentity
from agents.worker.wire.mesh import LinkError, Mesh, PeerLink
from inventory.errors import RunError
from workloads.topology import Component, Input, Topology

pytestmark = pytest.mark.loopback

PLACES = [Slot("n1", 0), Slot("n1", 1), Slot("n2", 0)]
ADDRESSES = {"n1": "127.0.0.2", "n2": "127.0.0.3"}
OUT = {"default": SCHEMA, SIDE: SCHEMA}
TOPOLOGY = Topology(
    "live",
    (
        Component("s", "spout", 2, outputs={"default": SCHEMA}),
        Component("a", "bolt", 2, outputs=OUT, inputs=(Input("s"),)),
        Component("b", "bolt", 2, outputs=OUT, inputs=(Input("s", "fields", ("record",)), Input("a", "all", (), SIDE))),
        Component("c", "bolt", 3, outputs=OUT, inputs=(Input("a", "direct", ("to",)), Input("b", "local-or-shuffle"))),
        Component("d", "bolt", 1, outputs=OUT, inputs=(Input("b", "global"),)),
    ),
)


@dataclass
class LiveWorker:
    """The parts that `agents.worker.process.worker` assembles for one slot, without a control channel."""

    loop: EventLoop
    mesh: Mesh
    tasks: EpochTasks
    by_peer: Links
    store: StateStore
    selector: selectors.BaseSelector
    reports: list[Message]
    lost: list[LinkError] = field(default_factory=list)

    @property
    def registry(self) -> TaskRegistry:
        return self.tasks.registry

    @property
    def links(self) -> dict[int, PeerLink]:
        return self.by_peer.by_peer

    @property
    def address(self) -> tuple[str, int]:
        address: tuple[str, int] = self.mesh._listener.getsockname()
        return address

    @property
    def drained(self) -> bool:
        return self.registry.drained and not self.by_peer.backlog

    def step(self) -> None:
        self.loop.run_pass()
        for kept in self.store.done():
            self.tasks.stored(*kept)

    def close(self) -> None:
        self.mesh.close()
        for link in self.links.values():
            link.close()
        self.store.close()
        self.selector.close()


class LiveRun:
    """All workers of a run; each has its own selector and gets its passes in turn."""

    def __init__(self, oracle: DeliveryOracle, places: Sequence[Slot], folder: Path, key: bytes = b"key") -> None:
        spec = run_spec(TOPOLOGY, places)
        self.plan = RunPlan(spec)
        self.workers = [self._worker(spec, number, oracle, folder, key) for number in range(len(self.plan.places))]

    def _worker(self, spec: RunSpec, me: int, oracle: DeliveryOracle, folder: Path, key: bytes) -> LiveWorker:
        selector, flush_timer = selectors.SelectSelector(), FlushTimer()
        lost: list[LinkError] = []
        reports: list[Message] = []

        def on_link(peer: int, sock: socket.socket, rest: bytes) -> None:
            link = links.wire(peer)
            link.attach(sock, rest)
            loop.add_link(link)
            tasks.linked()

        def on_lost(peer: int, why: str) -> None:
            raise AssertionError(f"{peer}: {why}")

        place = spec.workers[me]
        mesh = Mesh(selector, ADDRESSES[place.node], WorkerIdentity(key, "live", spec.epoch, me), on_link, on_lost)
        links = Links(mesh, spec.epoch, ADDRESSES)
        store = StateStore(folder / place.node, spec.run)
        tasks = EpochTasks(
            spec, place, oracle.operator, {}, flush_timer, links, store, MonotonicClocks(), reports.append
        )
        loop = EventLoop(
            selector, tasks, flush_timer, lambda _: None, lambda _, fault: lost.append(fault), lambda: None
        )
        return LiveWorker(loop, mesh, tasks, links, store, selector, reports, lost)

    @property
    def ports(self) -> dict[str, int]:
        """Port by `node/slot`."""
        places = zip(self.plan.places, self.workers, strict=True)
        return {f"{place.node}/{place.index}": worker.mesh.port for place, worker in places}

    def connect(self) -> None:
        for worker in self.workers:
            worker.tasks.connect(self.ports)
            worker.tasks.linked()
        self.run_until(lambda: all(worker.tasks.connected for worker in self.workers))

    def start(self) -> None:
        for worker in self.workers:
            worker.tasks.start(0)

    def send_all(self, command: Message) -> None:
        """Let every worker act on a command of the controller."""
        for worker in self.workers:
            worker.tasks.handle_command(command)

    def reports(self, kind: type[Message]) -> list[Message]:
        """Return the reports of one kind from all workers."""
        return [report for worker in self.workers for report in worker.reports if isinstance(report, kind)]

    def run_until(self, done: Callable[[], bool], between: Callable[[], None] = lambda: None) -> None:
        """Run passes until `done`; fail after 30 seconds."""
        deadline = time.monotonic() + 30
        while not done():
            assert time.monotonic() < deadline
            for worker in self.workers:
                worker.step()
            between()

    @property
    def drained(self) -> bool:
        return all(worker.drained for worker in self.workers)


@pytest.fixture
def closing(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    # In one thread no worker may sleep while another one has work.
    monkeypatch.setattr(loop_module.EventLoop, "_sleep_s", lambda _: 0.0)
    with ExitStack() as stack:
        yield stack


def live(closing: ExitStack, oracle: DeliveryOracle, folder: Path = Path("nowhere")) -> LiveRun:
    """Return a run that is closed with the test; without checkpoints, its folder is not used."""
    run = LiveRun(oracle, oracle.places, folder)
    for worker in run.workers:
        closing.callback(worker.close)
    return run


def spread(shift: int = 0) -> list[Slot]:
    return [PLACES[(at + shift) % 3] for at in range(len(TOPOLOGY.executors))]


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    places=st.lists(st.sampled_from(PLACES), min_size=10, max_size=10),
    records=st.sampled_from([0, 1, 50, 700]),
    small=st.builds(
        Limits, batch_rows=st.integers(1, 40), window_rows=st.integers(1, 60), turn_rows=st.integers(1, 60)
    ),
)
def test_a_topology_over_real_sockets_ends_exactly(
    closing: ExitStack, places: list[Slot], records: int, small: Limits
) -> None:
    oracle = DeliveryOracle(TOPOLOGY, records, places)
    with small.applied():
        run = live(closing, oracle)
        run.connect()
        run.start()
        run.run_until(lambda: run.drained)
    closing.close()
    oracle.check()
    sent = sum(link.sent_bytes for worker in run.workers for link in worker.links.values())
    received = sum(link.received_bytes for worker in run.workers for link in worker.links.values())
    assert sent >= received
    assert not any(worker.mesh.rejected for worker in run.workers)


def test_continuous_foreign_connections_change_nothing_but_a_count(closing: ExitStack) -> None:
    # Small turns make many passes, with foreign connections between any two of them.
    closing.enter_context(Limits(16, 4_000, 64, 20_000, turn_rows=16).applied())
    oracle = DeliveryOracle(TOPOLOGY, 2_000, spread())
    run = live(closing, oracle)
    openings = [b"", b"GET / HTTP/1.0\r\n\r\n", b"MLRC" + bytes(60), b"MLRC", frame.end_frame(0, 1, 0, 2) * 40]
    attempts = 0

    def connect_foreign() -> None:
        nonlocal attempts
        for worker in run.workers:
            with socket.create_connection(worker.address, 5) as sock:
                sock.send(openings[attempts % len(openings)])
            attempts += 1

    connect_foreign()
    run.connect()
    run.start()
    run.run_until(lambda: run.drained, connect_foreign)
    connect_foreign()
    run.run_until(lambda: sum(sum(worker.mesh.rejected.values()) for worker in run.workers) == attempts)
    assert attempts > 3 * 2_000 / 2 / 16
    oracle.check()
    assert not any(worker.lost for worker in run.workers)


def test_rows_wait_for_links_that_are_not_there_yet(closing: ExitStack) -> None:
    oracle = DeliveryOracle(TOPOLOGY, 500, spread())
    run = live(closing, oracle)
    run.start()
    for _ in range(20):
        for worker in run.workers:
            worker.step()
    assert any(link.backlog for worker in run.workers for link in worker.links.values())
    run.connect()
    run.run_until(lambda: run.drained)
    oracle.check()


def test_a_worker_that_goes_away_is_noticed_by_all_its_peers(closing: ExitStack) -> None:
    oracle = DeliveryOracle(TOPOLOGY, 100_000, spread())
    run = live(closing, oracle)
    run.connect()
    run.start()
    run.run_until(lambda: any(bolt.meter.processed for bolt in run.workers[2].registry.bolts))
    gone = run.workers.pop(2)
    for link in gone.links.values():
        link.close()
    run.run_until(lambda: all(worker.lost for worker in run.workers))
    assert all("link to worker 2: " in str(fault) for worker in run.workers for fault in worker.lost)
    # Its link is not serviced any more, and the others go on.
    for worker in run.workers:
        worker.step()
        assert len(worker.lost) == 1


def test_barriers_are_passed_by_all_and_stored_on_disk_while_the_rows_go_on(closing: ExitStack, tmp_path: Path) -> None:
    closing.enter_context(Limits(16, 4_000, 64, 20_000, turn_rows=16).applied())
    oracle = DeliveryOracle(TOPOLOGY, 2_000, spread())
    run = live(closing, oracle, tmp_path)
    run.connect()
    run.start()
    for barrier in (1, 2, 3):
        counts = [len(run.reports(kind)) for kind in (Ready, Passed, Stored)]
        run.send_all(Prepare(epoch=1, barrier=barrier, store=True, complete=barrier - 1))
        run.run_until(lambda counts=counts: len(run.reports(Ready)) == counts[0] + 3)
        run.send_all(Cut(epoch=1, barrier=barrier, tick=max(ready.tick for ready in run.reports(Ready)[-3:])))
        run.run_until(lambda counts=counts: len(run.reports(Passed)) == counts[1] + 3)
        run.run_until(lambda counts=counts: len(run.reports(Stored)) == counts[2] + len(TOPOLOGY.executors))
    run.run_until(lambda: run.drained)
    oracle.check()
    stored = [report for report in run.reports(Stored) if report.barrier == 3]
    assert sorted(report.executor for report in stored) == sorted(e.name for e in TOPOLOGY.executors)
    for worker in run.workers:
        place = worker.tasks.place_of(worker.tasks.me)
        for report in worker.reports:
            if isinstance(report, Stored) and report.barrier == 3:
                assert (tmp_path / place.node / report.file).stat().st_size == report.nbytes
                assert (worker.store.read(3, report.executor).position == report.position) == ("s[" in report.executor)
    for name in ("n1", "n2"):
        # The first was deleted when the third was prepared, not only when the third was complete.
        kept = sorted(folder.name for folder in (tmp_path / name / "scripted" / "checkpoints").iterdir())
        assert kept == ["2", "3"]


def some_channel(run: LiveRun, sender: int, receiver: int) -> ChannelId:
    """A channel from one worker to another."""
    worker = run.plan.worker
    return next(c.id for c in run.plan.channels if (worker[c.sender], worker[c.receiver]) == (sender, receiver))


@pytest.mark.parametrize(
    "foul",
    ["rubbish", "foreign channel", "third worker's channel", "local channel", "too much", "a foreign barrier", "state"],
)
def test_an_authenticated_peer_that_breaks_the_protocol_ends_the_epoch(closing: ExitStack, foul: str) -> None:
    oracle = DeliveryOracle(TOPOLOGY, 0, spread())
    run = live(closing, oracle)
    run.connect()
    victim, attacker = run.workers[0], run.workers[1].links[0]
    sender, receiver, stream = some_channel(run, 0, 1)
    match foul:
        case "rubbish":
            data = bytes(100)
        case "foreign channel":
            data = frame.end_frame(9, 1, 77, 78)
        case "third worker's channel":
            sender, receiver, stream = some_channel(run, 2, 0)
            data = frame.end_frame(stream, 1, sender, receiver)
        case "local channel":
            sender, receiver, stream = some_channel(run, 0, 0)
            data = frame.credit(stream, 1, sender, receiver, 1, 0)
        case "a foreign barrier":
            sender, receiver, stream = some_channel(run, 2, 0)
            data = frame.barrier(stream, 1, sender, receiver, 1)
        case "state":
            data = b"".join(frame.state(1, sender, b"state of somebody who does not come here"))
        case _:
            data = frame.credit(stream, 1, sender, receiver, 1 << 20, 1 << 30)
    attacker.write([data])
    attacker.flush()
    with pytest.raises(FrameError):
        run.run_until(lambda: False)
    assert issubclass(FrameError, RunError)
    assert not victim.lost

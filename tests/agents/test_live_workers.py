"""Workers over real sockets, stepped in one thread: topologies run to the exact end while strangers knock."""

import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted import Limits, run_spec
from witness import SCHEMA, SIDE, Ledger

from agents.protocol import Place
from agents.worker import frame
from agents.worker import loop as loop_module
from agents.worker.assembly import Assembly, assemble
from agents.worker.channel import Ager
from agents.worker.frame import FrameError
from agents.worker.link import Link, LinkError
from agents.worker.loop import Loop
from agents.worker.mesh import Mesh
from agents.worker.plan import RunPlan
from inventory.errors import RunError
from workloads.topology import Component, Input, Topology

pytestmark = pytest.mark.loopback

PLACES = [Place("n1", 0), Place("n1", 1), Place("n2", 0)]
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
    """What `agents.worker.worker` puts together for one slot, without a control channel."""

    loop: Loop
    mesh: Mesh
    links: dict[int, Link]
    assembly: Assembly
    selector: selectors.BaseSelector
    lost: list[LinkError] = field(default_factory=list)

    @property
    def address(self) -> tuple[str, int]:
        address: tuple[str, int] = self.mesh._listener.getsockname()
        return address

    @property
    def drained(self) -> bool:
        done = all(running.drained for running in self.assembly.executors)
        return done and not any(link.backlog for link in self.links.values())

    def close(self) -> None:
        self.mesh.close()
        for link in self.links.values():
            link.close()
        self.selector.close()


class Live:
    """All workers of a run; each has its own selector and gets its passes in turn."""

    def __init__(self, ledger: Ledger, places: Sequence[Place], key: bytes = b"key") -> None:
        spec = run_spec(TOPOLOGY, places)
        self.plan = RunPlan(spec)
        self.workers = [self._worker(number, ledger, key) for number in range(len(self.plan.places))]

    def _worker(self, me: int, ledger: Ledger, key: bytes) -> LiveWorker:
        plan, epoch = self.plan, self.plan.spec.epoch
        selector, ager = selectors.SelectSelector(), Ager()
        lost: list[LinkError] = []
        loop = Loop(selector, ager, lambda _: None, lambda _, fault: lost.append(fault))
        links = {peer: Link(peer, epoch) for peer in plan.peers(me)}

        def on_link(peer: int, sock: socket.socket, rest: bytes) -> None:
            links[peer].attach(sock, rest)
            loop.add_link(links[peer])

        count = len(plan.places)
        mesh = Mesh(selector, f"127.0.0.{me + 2}", key, "live", epoch, me, set(links), count, on_link)
        assembly = assemble(
            plan, plan.places[me], lambda place: links[plan.places.index(place)], ager, ledger.operator, None, {}
        )
        loop.use(assembly)
        return LiveWorker(loop, mesh, links, assembly, selector, lost)

    def connect(self) -> None:
        addresses = {number: worker.address for number, worker in enumerate(self.workers)}
        for worker in self.workers:
            worker.mesh.connect(addresses)
        self.until(lambda: all(worker.mesh.complete for worker in self.workers))

    def start(self) -> None:
        for worker in self.workers:
            for spout in worker.assembly.spouts:
                spout.start(0)

    def until(self, done: Callable[[], bool], between: Callable[[], None] = lambda: None) -> None:
        """Give passes until it is so; a test that waits in vain for 30 seconds has failed."""
        give_up = time.monotonic() + 30
        while not done():
            assert time.monotonic() < give_up
            for worker in self.workers:
                worker.loop.run_pass()
            between()

    @property
    def drained(self) -> bool:
        return all(worker.drained for worker in self.workers)


@pytest.fixture
def closing(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    # In one thread nobody may sleep while another worker has something to do.
    monkeypatch.setattr(loop_module, "_LONGEST_SLEEP_NS", 0)
    with ExitStack() as stack:
        yield stack


def live(closing: ExitStack, ledger: Ledger) -> Live:
    run = Live(ledger, ledger.places)
    for worker in run.workers:
        closing.callback(worker.close)
    return run


def spread(shift: int = 0) -> list[Place]:
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
    closing: ExitStack, places: list[Place], records: int, small: Limits
) -> None:
    ledger = Ledger(TOPOLOGY, records, places)
    with small.applied():
        run = live(closing, ledger)
        run.connect()
        run.start()
        run.until(lambda: run.drained)
    closing.close()
    ledger.check()
    sent = sum(link.sent_bytes for worker in run.workers for link in worker.links.values())
    received = sum(link.received_bytes for worker in run.workers for link in worker.links.values())
    assert sent >= received
    assert not any(worker.mesh.refused for worker in run.workers)


def test_strangers_who_knock_all_the_time_change_nothing_but_a_count(closing: ExitStack) -> None:
    # Small turns make many passes, and strangers come between any two of them.
    closing.enter_context(Limits(16, 4_000, 64, 20_000, turn_rows=16).applied())
    ledger = Ledger(TOPOLOGY, 2_000, spread())
    run = live(closing, ledger)
    openings = [b"", b"GET / HTTP/1.0\r\n\r\n", b"MLRC" + bytes(60), b"MLRC", frame.end(0, 1, 0, 2) * 40]
    knocks = 0

    def knock() -> None:
        nonlocal knocks
        for worker in run.workers:
            with socket.create_connection(worker.address, 5) as sock:
                sock.send(openings[knocks % len(openings)])
            knocks += 1

    knock()
    run.connect()
    run.start()
    run.until(lambda: run.drained, knock)
    knock()
    run.until(lambda: sum(sum(worker.mesh.refused.values()) for worker in run.workers) == knocks)
    assert knocks > 3 * 2_000 / 2 / 16
    ledger.check()
    assert not any(worker.lost for worker in run.workers)


def test_rows_wait_for_links_that_are_not_there_yet(closing: ExitStack) -> None:
    ledger = Ledger(TOPOLOGY, 500, spread())
    run = live(closing, ledger)
    run.start()
    for _ in range(20):
        for worker in run.workers:
            worker.loop.run_pass()
    assert any(link.backlog for worker in run.workers for link in worker.links.values())
    run.connect()
    run.until(lambda: run.drained)
    ledger.check()


def test_a_worker_that_goes_away_is_noticed_by_all_its_peers(closing: ExitStack) -> None:
    ledger = Ledger(TOPOLOGY, 100_000, spread())
    run = live(closing, ledger)
    run.connect()
    run.start()
    run.until(lambda: any(bolt.meter.processed for bolt in run.workers[2].assembly.bolts))
    gone = run.workers.pop(2)
    for link in gone.links.values():
        link.close()
    run.until(lambda: all(worker.lost for worker in run.workers))
    assert all("link to worker 2: " in str(fault) for worker in run.workers for fault in worker.lost)
    # Its link is not serviced any more, and the others go on.
    for worker in run.workers:
        worker.loop.run_pass()
        assert len(worker.lost) == 1


def some_channel(run: Live, sender: int, receiver: int) -> tuple[int, int, int]:
    """Key of a channel from one worker to another."""
    places = run.plan.places
    return next(
        (c.sender, c.receiver, c.stream)
        for c in run.plan.channels()
        if (run.plan.place[c.sender], run.plan.place[c.receiver]) == (places[sender], places[receiver])
    )


@pytest.mark.parametrize("foul", ["rubbish", "foreign channel", "third worker's channel", "local channel", "too much"])
def test_an_authenticated_peer_that_breaks_the_rules_ends_the_start(closing: ExitStack, foul: str) -> None:
    ledger = Ledger(TOPOLOGY, 0, spread())
    run = live(closing, ledger)
    run.connect()
    victim, villain = run.workers[0], run.workers[1].links[0]
    sender, receiver, stream = some_channel(run, 0, 1)
    match foul:
        case "rubbish":
            data = bytes(100)
        case "foreign channel":
            data = frame.end(9, 1, 77, 78)
        case "third worker's channel":
            sender, receiver, stream = some_channel(run, 2, 0)
            data = frame.end(stream, 1, sender, receiver)
        case "local channel":
            sender, receiver, stream = some_channel(run, 0, 0)
            data = frame.credit(stream, 1, sender, receiver, 1, 0)
        case _:
            data = frame.credit(stream, 1, sender, receiver, 1 << 20, 1 << 30)
    villain.write([data])
    villain.flush()
    with pytest.raises(FrameError):
        run.until(lambda: False)
    assert issubclass(FrameError, RunError)
    assert not victim.lost

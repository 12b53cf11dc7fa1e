"""Link layer of all workers of a run: real sockets, stepped in turn in one thread."""

import selectors
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from agents.worker.wire.handshake import WorkerIdentity
from agents.worker.wire.mesh import Mesh

KEY = b"k" * 32
EPOCH = 4


@dataclass
class Member:
    """One worker's mesh, and its established links."""

    number: int
    selector: selectors.BaseSelector
    mesh: Mesh
    peers: set[int]
    links: dict[int, tuple[socket.socket, bytes]] = field(default_factory=dict)
    lost: list[tuple[int, str]] = field(default_factory=list)

    def step(self, wait_s: float = 0.0) -> None:
        for key, mask in self.selector.select(wait_s):
            key.data(mask)

    @property
    def address(self) -> tuple[str, int]:
        return f"127.0.0.{self.number + 2}", self.mesh.port


class Members(list[Member]):
    """All workers of a run, stepped in turn in this thread."""

    def join(self, peers: set[int], key: bytes = KEY, run: str = "r") -> Member:
        number, selector = len(self), selectors.SelectSelector()
        links: dict[int, tuple[socket.socket, bytes]] = {}
        lost: list[tuple[int, str]] = []

        def on_link(peer: int, sock: socket.socket, rest: bytes) -> None:
            assert peer not in links
            links[peer] = (sock, rest)

        identity = WorkerIdentity(key, run, EPOCH, number)
        mesh = Mesh(selector, f"127.0.0.{number + 2}", identity, on_link, lambda *lose: lost.append(lose))
        self.append(Member(number, selector, mesh, peers, links, lost))
        return self[-1]

    def connect(self) -> None:
        for member in self:
            member.mesh.connect({peer: self[peer].address for peer in member.peers})

    def until(self, done: Callable[[], bool]) -> None:
        """Step until a condition holds; fail the test after ten seconds."""
        give_up = time.monotonic() + 10
        while not done():
            assert time.monotonic() < give_up, [(member.mesh.rejected, member.lost) for member in self]
            for member in self:
                member.step(0.002)

    @property
    def complete(self) -> bool:
        return all(member.mesh.complete and member.peers <= member.links.keys() for member in self)


@contextmanager
def meshes() -> Iterator[Members]:
    """Return an initially empty set of workers; all are closed at the end."""
    members = Members()
    yield members
    for member in members:
        member.mesh.close()
        for sock, _ in member.links.values():
            sock.close()
        member.selector.close()


def connect_raw(member: Member) -> socket.socket:
    sock = socket.create_connection(member.address, 5)
    sock.settimeout(5)
    return sock


def rejected_count(member: Member) -> int:
    return sum(member.mesh.rejected.values())


def pending_count(member: Member) -> int:
    return len(member.selector.get_map()) - 1

"""Workers find one another over real sockets, and strangers are turned away, counted, and disturb nobody."""

import selectors
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.worker import mesh as mesh_module
from agents.worker.handshake import TIMEOUT_S, Connector
from agents.worker.mesh import Mesh
from inventory.errors import RunError

pytestmark = pytest.mark.loopback

KEY = b"k" * 32
EPOCH = 4
CLOSED = "closed during the handshake"


@dataclass
class Member:
    """One worker's mesh, and the links that it has got."""

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

        mesh = Mesh(
            selector, f"127.0.0.{number + 2}", key, run, EPOCH, number, on_link, lambda *lose: lost.append(lose)
        )
        self.append(Member(number, selector, mesh, peers, links, lost))
        return self[-1]

    def connect(self) -> None:
        for member in self:
            member.mesh.connect({peer: self[peer].address for peer in member.peers})

    def until(self, done: Callable[[], bool]) -> None:
        """Step until it is so; a test that waits in vain for ten seconds has failed."""
        give_up = time.monotonic() + 10
        while not done():
            assert time.monotonic() < give_up, [(member.mesh.refused, member.lost) for member in self]
            for member in self:
                member.step(0.002)

    @property
    def complete(self) -> bool:
        return all(member.mesh.complete and member.peers <= member.links.keys() for member in self)


@pytest.fixture
def members() -> Iterator[Members]:
    members = Members()
    yield members
    for member in members:
        member.mesh.close()
        for sock, _ in member.links.values():
            sock.close()
        member.selector.close()


def stranger(member: Member) -> socket.socket:
    sock = socket.create_connection(member.address, 5)
    sock.settimeout(5)
    return sock


def refused(member: Member) -> int:
    return sum(member.mesh.refused.values())


def pending(member: Member) -> int:
    return len(member.selector.get_map()) - 1


def test_all_pairs_of_peers_get_one_link_each(members: Members) -> None:
    for number in range(4):
        members.join({0, 1, 2, 3} - {number})
    members.connect()
    members.until(lambda: members.complete)
    for member in members:
        assert sorted(member.links) == sorted({0, 1, 2, 3} - {member.number})
        assert not member.mesh.refused
        assert not member.lost
    for a in members:
        for b in members:
            if a.number < b.number:
                ours, theirs = a.links[b.number][0], b.links[a.number][0]
                assert ours.getpeername() == theirs.getsockname() == b.address
                assert theirs.getpeername()[0] == a.address[0]
                ours.send(b"ping")
                members.until(lambda theirs=theirs: theirs.recv(9) == b"ping")


def test_only_peers_are_connected_and_no_peers_means_complete(members: Members) -> None:
    for peers in ({2}, set(), {0}):
        members.join(peers)
    assert members[1].mesh.complete
    members.connect()
    members.until(lambda: members.complete)
    assert [sorted(member.links) for member in members] == [[2], [], [0]]


def test_a_worker_that_comes_later_gets_its_links_while_the_others_keep_theirs(members: Members) -> None:
    for peers in ({1}, {0}):
        members.join(peers)
    members.connect()
    members.until(lambda: members.complete)
    before = [dict(member.links) for member in members]
    members.join({0, 1})
    for member in members[:2]:
        member.peers.add(2)
    # Who connects may be told before, or after, the one that accepts.
    members[2].mesh.connect({0: members[0].address, 1: members[1].address})
    assert not members[2].mesh.complete
    for member in members[:2]:
        assert member.mesh.complete
        member.mesh.connect({2: members[2].address})
        assert not member.mesh.complete
    members.until(lambda: members.complete)
    assert sorted(members[2].links) == [0, 1]
    for member, links in zip(members, before, strict=False):
        assert links.items() <= member.links.items()
        assert not member.mesh.refused


def test_a_peer_that_is_asked_for_twice_is_connected_once(members: Members) -> None:
    for peers in ({1}, {0}):
        members.join(peers)
    for _ in range(2):
        members.connect()
    members.until(lambda: members.complete)
    members.connect()
    assert members.complete
    for _ in range(5):
        for member in members:
            member.step()
    assert not any(member.mesh.refused or member.lost for member in members)


def test_a_peer_that_connected_before_it_was_wanted_is_there_when_it_is(members: Members) -> None:
    for peers in ({1}, {0}):
        members.join(peers)
    members[0].mesh.connect({1: members[1].address})
    members.until(lambda: 0 in members[1].links)
    assert members[1].mesh.complete
    members[1].mesh.connect({0: members[0].address})
    assert members[1].mesh.complete


def test_bytes_that_follow_the_handshake_at_once_are_not_lost(members: Members) -> None:
    members.join(set())
    member = members.join({0})
    side = Connector(KEY, "r", EPOCH, 0, 1)
    sock = stranger(member)
    sock.send(side.hello())
    answer = b""
    while not side.done:
        member.step()
        sock.settimeout(0.01)
        try:
            answer = sock.recv(999)
        except TimeoutError:
            continue
        sock.send(side.receive(answer) + b"first frames")
    members.until(lambda: member.links)
    assert member.links[0][1] == b"first frames"
    sock.close()


def shout(sock: socket.socket, data: bytes) -> None:
    """Send what the other side may close in the middle of."""
    try:
        sock.sendall(data)
    except OSError:
        return


STRANGERS = {
    "port scan": (b"", CLOSED),
    "web browser": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "not this protocol"),
    "rubbish": (b"\x00" * 5_000, "not this protocol"),
    "a megabyte": (b"MLRC" + b"\xff" * 1_000_000, "another version of the data protocol"),
    "half a hello": (Connector(KEY, "r", EPOCH, 0, 1).hello()[:30], CLOSED),
    "an older epoch": (Connector(KEY, "r", EPOCH - 1, 0, 1).hello(), "a worker of another epoch"),
    "another worker's": (Connector(KEY, "r", EPOCH, 0, 3).hello(), "meant for another worker"),
    "hello and no proof": (Connector(KEY, "r", EPOCH, 0, 1).hello(), CLOSED),
    "a wrong proof": (Connector(KEY, "r", EPOCH, 0, 1).hello() + bytes(32), "the connecting side does not know"),
}


def test_strangers_before_during_and_after_are_counted_and_the_links_stand(members: Members) -> None:
    members.join({1})
    member = members.join({0})
    expected: Counter[str] = Counter()

    def visit() -> None:
        for opening, reason in STRANGERS.values():
            with stranger(member) as sock:
                shout(sock, opening)
            expected[reason] += 1

    visit()
    members.connect()
    visit()
    members.until(lambda: members.complete)
    visit()
    members.until(lambda: refused(member) == expected.total())
    for reason, count in expected.items():
        assert sum(n for text, n in member.mesh.refused.items() if reason in text or "reset" in text) >= count
    assert pending(member) == 0
    ours, theirs = members[0].links[1][0], member.links[0][0]
    ours.send(b"still here")
    members.until(lambda: theirs.recv(99) == b"still here")


def test_who_resets_the_connection_does_no_harm(members: Members) -> None:
    member = members.join({1})
    for opening in (b"", b"MLRC", b"x"):
        sock = stranger(member)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        shout(sock, opening)
        sock.close()
    members.until(lambda: refused(member) == 3)
    assert pending(member) == 0


def test_half_a_handshake_is_turned_away_after_its_time_and_not_before(members: Members) -> None:
    members.join(set())
    member = members.join({0})
    silent, half, hello = socks = [stranger(member) for _ in range(3)]
    half.send(b"MLRC")
    hello.send(Connector(KEY, "r", EPOCH, 0, 1).hello())
    members.until(lambda: pending(member) == 3)
    began = time.monotonic()
    member.mesh.expire(began + TIMEOUT_S / 2)
    assert pending(member) == 3
    # A byte now and then buys no time.
    silent.send(b"M")
    member.step()
    member.mesh.expire(began + TIMEOUT_S + 1)
    assert pending(member) == 0
    assert member.mesh.refused == {"time-out": 3}
    for sock in socks:
        sock.settimeout(5)
        while sock.recv(999):
            pass
        sock.close()


@pytest.mark.parametrize("opening", [b"", b"ML", Connector(KEY, "r", EPOCH, 2, 3).hello()])
def test_a_flood_takes_bounded_room_and_peers_still_get_through(members: Members, opening: bytes) -> None:
    for number in range(4):
        members.join({0, 1, 2, 3} - {number})
    flooded = members[3]
    flood = []
    for wave in range(12):
        for _ in range(mesh_module._MOST_ACCEPTED):
            flood.append(stranger(flooded))
            flood[-1].send(opening)
        if wave == 6:
            members.connect()
        for member in members:
            member.step()
        assert pending(flooded) <= mesh_module._MOST_STRANGERS + 3
    members.until(lambda: members.complete)
    members.until(lambda: refused(flooded) + pending(flooded) == len(flood))
    assert set(flooded.mesh.refused) == {"too many at once"}
    for sock in flood:
        sock.close()
    members.until(lambda: pending(flooded) == 0)
    assert refused(flooded) == len(flood)


def test_a_peer_that_a_flood_pushes_out_before_its_hello_is_there_connects_again(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting, flooded = members.join({1}), members.join({0})
    with monkeypatch.context() as halted:
        # As if the processor were taken away between connecting and writing.
        halted.setattr(Connector, "hello", lambda _: b"")
        members.connect()
    flood = []
    while not flooded.mesh.refused:
        flood.append(stranger(flooded))
        flooded.step()
    assert pending(connecting) == 1
    members.until(lambda: members.complete)
    assert not connecting.lost
    assert flooded.mesh.refused.keys() == {"too many at once"}
    for sock in flood:
        sock.close()


def test_more_peers_than_strangers_are_allowed_find_room(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mesh_module, "_MOST_STRANGERS", 1)
    for number in range(7):
        members.join(set(range(7)) - {number})
    members.connect()
    members.until(lambda: members.complete)
    assert not any(member.mesh.refused for member in members)


def test_who_made_room_while_its_bytes_were_waiting_is_not_heard_any_more(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mesh_module, "_MOST_STRANGERS", 2)
    member = members.join({1})
    first, second = stranger(member), stranger(member)
    members.until(lambda: pending(member) == 2)
    # All in one look of the selector: bytes of those that wait, and a newcomer that makes the first one go.
    first.send(b"M")
    second.send(b"M")
    with stranger(member):
        members.until(lambda: member.mesh.refused == {"too many at once": 1})
        assert pending(member) == 2
        with pytest.raises(ConnectionResetError):
            first.recv(1)
    first.close()
    second.close()


def test_one_pass_accepts_a_bounded_number_and_leaves_the_rest_for_the_next(members: Members) -> None:
    member = members.join({1})
    flood = [stranger(member) for _ in range(3 * mesh_module._MOST_ACCEPTED)]
    member.step()
    assert refused(member) + pending(member) == mesh_module._MOST_ACCEPTED
    members.until(lambda: refused(member) + pending(member) == len(flood))
    for sock in flood:
        sock.close()


def test_a_second_link_of_the_same_worker_is_refused(members: Members) -> None:
    members.join({1})
    member = members.join({0})
    members.connect()
    members.until(lambda: members.complete)
    again = selectors.SelectSelector()
    lost: list[tuple[int, str]] = []
    second = Mesh(again, "127.0.0.2", KEY, "r", EPOCH, 0, lambda *_: None, lambda *lose: lost.append(lose))
    second.connect({1: member.address})
    members.append(Member(0, again, second, {1}))
    members.until(lambda: refused(member) == 1)
    assert member.mesh.refused == {"a second link of the same worker": 1}


def test_reasons_stay_few_whatever_strangers_send(members: Members) -> None:
    member = members.join({1, 2})

    @settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.binary(max_size=99), st.sampled_from([b"", b"MLRC", b"MLRC\x01", b"MLRC\x01\x04\0\0\0"]))
    def visit(rubbish: bytes, opening: bytes) -> None:
        before = refused(member)
        with stranger(member) as sock:
            shout(sock, opening + rubbish)
        members.until(lambda: refused(member) == before + 1)

    visit()
    assert len(member.mesh.refused) <= 8
    assert not member.links


# --- what goes wrong on our own side ---------------------------------------------------------------------------


def test_an_address_that_is_not_ours_is_an_error_that_names_it() -> None:
    with selectors.SelectSelector() as selector, pytest.raises(RunError, match=r"192\.0\.2\.1 cannot be bound"):
        Mesh(selector, "192.0.2.1", KEY, "r", EPOCH, 0, lambda *_: None, lambda *_: None)


def lost_of(members: Members, number: int) -> list[tuple[int, str]]:
    """Who was lost to a member, once somebody was."""
    members.until(lambda: members[number].lost)
    return members[number].lost


def test_a_peer_that_does_not_listen_is_lost_and_named(members: Members) -> None:
    member = members.join({1})
    with socket.create_server(("127.0.0.3", 0)) as gone:
        port = gone.getsockname()[1]
    member.mesh.connect({1: ("127.0.0.3", port)})
    ((peer, why),) = lost_of(members, 0)
    assert peer == 1
    assert f"127.0.0.3:{port} cannot be reached" in why
    assert not member.mesh.complete


def test_a_peer_that_does_not_listen_keeps_no_other_from_being_connected(members: Members) -> None:
    members.join({1, 2})
    members.join({0})
    with socket.create_server(("127.0.0.4", 0)) as gone:
        port = gone.getsockname()[1]
    members[0].mesh.connect({2: ("127.0.0.4", port), 1: members[1].address})
    members.until(lambda: 1 in members[0].links)
    assert [peer for peer, _ in members[0].lost] == [2]


@pytest.mark.parametrize(("key", "run"), [(b"x" * 32, "r"), (KEY, "another run")])
def test_a_peer_that_is_none_is_lost_at_once_instead_of_being_waited_for(
    members: Members, key: bytes, run: str
) -> None:
    members.join({1})
    members.join({0}, key, run)
    members.connect()
    ((peer, why),) = lost_of(members, 0)
    assert peer == 1
    assert "not who it should be" in why
    assert not members[0].mesh.complete
    assert pending(members[0]) == 0
    assert set(members[1].mesh.refused) == {"the connecting side does not know the run's key"}


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n" + bytes(99)])
def test_a_stranger_at_a_peers_address_is_no_peer(members: Members, answer: bytes) -> None:
    member = members.join({1})
    with socket.create_server(("127.0.0.3", 0)) as other:
        member.mesh.connect({1: other.getsockname()})
        times = 0
        while not member.lost:
            sock, _ = other.accept()
            sock.send(answer)
            sock.close()
            times += 1
            member.step(5)
        ((peer, _),) = lost_of(members, 0)
    assert peer == 1
    # One that only closes may be a peer that had to make room for strangers.
    assert times == (1 if answer else mesh_module._MOST_TRIES)
    assert not member.links


def test_a_peer_that_never_answers_is_lost_after_the_time_out(members: Members) -> None:
    member = members.join({1})
    with socket.create_server(("127.0.0.3", 0)) as mute:
        member.mesh.connect({1: mute.getsockname()})
        member.mesh.expire(time.monotonic())
        assert not member.lost
        member.mesh.expire(time.monotonic() + TIMEOUT_S + 1)
    ((peer, why),) = member.lost
    assert peer == 1
    assert "time-out" in why

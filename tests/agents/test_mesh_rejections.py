"""Invalid connections to a worker's port are rejected and counted, and do not affect its peers."""

import selectors
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from meshes import EPOCH, KEY, Member, Members, connect_raw, meshes, pending_count, rejected_count

from agents.worker.wire import mesh as mesh_module
from agents.worker.wire.handshake import TIMEOUT_S, Connector, WorkerIdentity
from agents.worker.wire.mesh import Mesh

pytestmark = pytest.mark.loopback


@pytest.fixture
def members() -> Iterator[Members]:
    with meshes() as members:
        yield members


CLOSED = "closed during the handshake"


def try_to_send(sock: socket.socket, data: bytes) -> None:
    """Send data to a side that may close the connection meanwhile."""
    try:
        sock.sendall(data)
    except OSError:
        return


INVALID_OPENINGS = {
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


def test_invalid_connections_at_any_time_are_counted_and_links_stay(members: Members) -> None:
    members.join({1})
    member = members.join({0})
    expected: Counter[str] = Counter()

    def connect_invalid() -> None:
        for opening, reason in INVALID_OPENINGS.values():
            with connect_raw(member) as sock:
                try_to_send(sock, opening)
            expected[reason] += 1

    connect_invalid()
    members.connect()
    connect_invalid()
    members.until(lambda: members.complete)
    connect_invalid()
    members.until(lambda: rejected_count(member) == expected.total())
    for reason, count in expected.items():
        assert sum(n for text, n in member.mesh.rejected.items() if reason in text or "reset" in text) >= count
    assert pending_count(member) == 0
    ours, theirs = members[0].links[1][0], member.links[0][0]
    ours.send(b"still here")
    members.until(lambda: theirs.recv(99) == b"still here")


def test_reset_connections_are_rejected_and_not_pending(members: Members) -> None:
    member = members.join({1})
    for opening in (b"", b"MLRC", b"x"):
        sock = connect_raw(member)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try_to_send(sock, opening)
        sock.close()
    members.until(lambda: rejected_count(member) == 3)
    assert pending_count(member) == 0


def test_an_incomplete_handshake_is_rejected_after_the_time_out_and_not_before(members: Members) -> None:
    members.join(set())
    member = members.join({0})
    silent, half, hello = socks = [connect_raw(member) for _ in range(3)]
    half.send(b"MLRC")
    hello.send(Connector(KEY, "r", EPOCH, 0, 1).hello())
    members.until(lambda: pending_count(member) == 3)
    start_s = time.monotonic()
    member.mesh.expire(start_s + TIMEOUT_S / 2)
    assert pending_count(member) == 3
    # Another byte does not extend the time-out.
    silent.send(b"M")
    member.step()
    member.mesh.expire(start_s + TIMEOUT_S + 1)
    assert pending_count(member) == 0
    assert member.mesh.rejected == {"time-out": 3}
    for sock in socks:
        sock.settimeout(5)
        while sock.recv(999):
            pass
        sock.close()


@pytest.mark.parametrize(
    "opening", [b"", b"ML", Connector(KEY, "r", EPOCH, 2, 3).hello()], ids=["nothing", "a part", "a hello"]
)
def test_a_flood_has_a_bounded_number_of_connections_and_peers_still_connect(members: Members, opening: bytes) -> None:
    for number in range(4):
        members.join({0, 1, 2, 3} - {number})
    flooded = members[3]
    flood = []
    for wave in range(12):
        for _ in range(mesh_module._MAX_ACCEPTED):
            flood.append(connect_raw(flooded))
            flood[-1].send(opening)
        if wave == 6:
            members.connect()
        for member in members:
            member.step()
        assert pending_count(flooded) <= mesh_module._MAX_UNAUTHENTICATED + 3
    members.until(lambda: members.complete)
    members.until(lambda: rejected_count(flooded) + pending_count(flooded) == len(flood))
    assert set(flooded.mesh.rejected) == {"too many at once"}
    for sock in flood:
        sock.close()
    members.until(lambda: pending_count(flooded) == 0)
    assert rejected_count(flooded) == len(flood)


def test_a_peer_that_a_flood_evicts_before_its_hello_connects_again(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting, flooded = members.join({1}), members.join({0})
    with monkeypatch.context() as halted:
        # Simulates a worker that is preempted between connecting and writing.
        halted.setattr(Connector, "hello", lambda _: b"")
        members.connect()
    flood = []
    while not flooded.mesh.rejected:
        flood.append(connect_raw(flooded))
        flooded.step()
    assert pending_count(connecting) == 1
    members.until(lambda: members.complete)
    assert not connecting.lost
    assert flooded.mesh.rejected.keys() == {"too many at once"}
    for sock in flood:
        sock.close()


def test_more_peers_connect_than_unauthenticated_connections_are_allowed(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mesh_module, "_MAX_UNAUTHENTICATED", 1)
    for number in range(7):
        members.join(set(range(7)) - {number})
    members.connect()
    members.until(lambda: members.complete)
    assert not any(member.mesh.rejected for member in members)


def test_pending_bytes_of_an_evicted_connection_are_ignored(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mesh_module, "_MAX_UNAUTHENTICATED", 2)
    member = members.join({1})
    first, second = connect_raw(member), connect_raw(member)
    members.until(lambda: pending_count(member) == 2)
    # The selector returns all at once: bytes of pending connections, and a new one that evicts the first.
    first.send(b"M")
    second.send(b"M")
    with connect_raw(member):
        members.until(lambda: member.mesh.rejected == {"too many at once": 1})
        assert pending_count(member) == 2
        # It is closed; with an unread byte, by a reset.
        with suppress(ConnectionResetError):
            assert first.recv(1) == b""
    first.close()
    second.close()


def test_one_pass_accepts_a_bounded_number_and_leaves_the_rest_for_the_next(members: Members) -> None:
    member = members.join({1})
    flood = [connect_raw(member) for _ in range(3 * mesh_module._MAX_ACCEPTED)]
    member.step()
    assert rejected_count(member) + pending_count(member) == mesh_module._MAX_ACCEPTED
    members.until(lambda: rejected_count(member) + pending_count(member) == len(flood))
    for sock in flood:
        sock.close()


def test_a_second_link_of_the_same_worker_is_refused(members: Members) -> None:
    members.join({1})
    member = members.join({0})
    members.connect()
    members.until(lambda: members.complete)
    again = selectors.SelectSelector()
    lost: list[tuple[int, str]] = []
    second = Mesh(
        again, "127.0.0.2", WorkerIdentity(KEY, "r", EPOCH, 0), lambda *_: None, lambda *lose: lost.append(lose)
    )
    second.connect({1: member.address})
    members.append(Member(0, again, second, {1}))
    members.until(lambda: rejected_count(member) == 1)
    assert member.mesh.rejected == {"a second link of the same worker": 1}


def test_the_number_of_reasons_is_bounded_whatever_is_received(members: Members) -> None:
    member = members.join({1, 2})

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.binary(max_size=99), st.sampled_from([b"", b"MLRC", b"MLRC\x01", b"MLRC\x01\x04\0\0\0"]))
    def connect_invalid(rubbish: bytes, opening: bytes) -> None:
        before = rejected_count(member)
        with connect_raw(member) as sock:
            try_to_send(sock, opening + rubbish)
        members.until(lambda: rejected_count(member) == before + 1)

    connect_invalid()
    assert len(member.mesh.rejected) <= 8
    assert not member.links

"""Workers connect to one another over real sockets in any order; a peer that cannot be reached or verified is lost."""

import selectors
import socket
import time
from collections.abc import Iterator

import pytest
from meshes import EPOCH, KEY, Members, connect_raw, meshes, pending_count

from agents.worker.wire import mesh as mesh_module
from agents.worker.wire.handshake import TIMEOUT_S, Connector, WorkerIdentity
from agents.worker.wire.mesh import Mesh
from inventory.errors import RunError

pytestmark = pytest.mark.loopback


@pytest.fixture
def members() -> Iterator[Members]:
    with meshes() as members:
        yield members


def test_all_pairs_of_peers_get_one_link_each(members: Members) -> None:
    for number in range(4):
        members.join({0, 1, 2, 3} - {number})
    members.connect()
    members.until(lambda: members.complete)
    for member in members:
        assert sorted(member.links) == sorted({0, 1, 2, 3} - {member.number})
        assert not member.mesh.rejected
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
    # The connecting side may get its command before or after the accepting side.
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
        assert not member.mesh.rejected


def test_a_peer_that_is_requested_twice_is_connected_once(members: Members) -> None:
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
    assert not any(member.mesh.rejected or member.lost for member in members)


def test_a_peer_that_connects_before_it_is_requested_is_used_later(members: Members) -> None:
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
    sock = connect_raw(member)
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


def test_an_address_that_is_not_ours_is_an_error_that_names_it() -> None:
    with selectors.SelectSelector() as selector, pytest.raises(RunError, match=r"192\.0\.2\.1 cannot be bound"):
        Mesh(selector, "192.0.2.1", WorkerIdentity(KEY, "r", EPOCH, 0), lambda *_: None, lambda *_: None)


def lost_of(members: Members, number: int) -> list[tuple[int, str]]:
    """Wait until a member has lost peers; return them with their reasons."""
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


def test_a_peer_that_does_not_listen_does_not_prevent_other_connections(members: Members) -> None:
    members.join({1, 2})
    members.join({0})
    with socket.create_server(("127.0.0.4", 0)) as gone:
        port = gone.getsockname()[1]
    members[0].mesh.connect({2: ("127.0.0.4", port), 1: members[1].address})
    members.until(lambda: 1 in members[0].links)
    assert [peer for peer, _ in members[0].lost] == [2]


@pytest.mark.parametrize(("key", "run"), [(b"x" * 32, "r"), (KEY, "another run")])
def test_a_peer_with_another_key_or_run_is_lost_at_once(members: Members, key: bytes, run: str) -> None:
    members.join({1})
    members.join({0}, key, run)
    members.connect()
    ((peer, why),) = lost_of(members, 0)
    assert peer == 1
    assert "not who it should be" in why
    assert not members[0].mesh.complete
    assert pending_count(members[0]) == 0
    assert set(members[1].mesh.rejected) == {"the connecting side does not know the run's key"}


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n" + bytes(99)])
def test_another_server_at_a_peers_address_is_no_peer(members: Members, answer: bytes) -> None:
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
    # A server that only closes may be a peer that evicted a pending connection: the mesh tries again.
    assert times == (1 if answer else mesh_module._MAX_TRIES)
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

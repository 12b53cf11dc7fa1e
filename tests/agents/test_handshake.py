"""A handshake succeeds between two workers of one run and epoch, and in no other case."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis_examples import times

from agents.worker.wire.handshake import Acceptor, Connector, HandshakeError

KEY = b"k" * 32
HELLO_BYTES, ANSWER_BYTES, PROOF_BYTES = 81, 64, 32


def connector(key: bytes = KEY, run: str = "r1", epoch: int = 3, me: int = 0, peer: int = 2) -> Connector:
    return Connector(key, run, epoch, me, peer)


def acceptor(key: bytes = KEY, run: str = "r1", epoch: int = 3, me: int = 2) -> Acceptor:
    return Acceptor(key, run, epoch, me)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    parts, at = [], 0
    for size in sizes:
        parts.append(data[at : at + size])
        at += size
    return [*parts, data[at:]]


def shake(connecting: Connector, accepting: Acceptor, sizes: list[int] | None = None, after: bytes = b"") -> None:
    """Perform a handshake with every message cut into pieces, and `after` appended to the connector's proof."""
    sizes = sizes or []
    answer = b"".join(accepting.receive(piece) for piece in cut(connecting.hello(), sizes))
    proof = b"".join(connecting.receive(piece) for piece in cut(answer, sizes))
    assert connecting.done
    assert not accepting.done
    for piece in cut(proof + after, sizes):
        if accepting.done:
            break
        assert accepting.receive(piece) == b""


@given(st.lists(st.integers(0, 40), max_size=20))
def test_two_workers_of_a_run_agree_however_their_bytes_are_split(sizes: list[int]) -> None:
    connecting, accepting = connector(), acceptor()
    shake(connecting, accepting, sizes)
    assert connecting.done
    assert accepting.done
    assert accepting.peer == 0
    assert (connecting.rest, accepting.rest) == (b"", b"")


@pytest.mark.parametrize("number", [1, 3, 4, 2**32 - 1])
def test_a_worker_of_any_number_is_accepted_because_workers_may_be_added(number: int) -> None:
    accepting = acceptor()
    shake(connector(me=number), accepting)
    assert accepting.done
    assert accepting.peer == number


def test_bytes_behind_the_proof_are_kept_for_the_first_frames() -> None:
    connecting, accepting = connector(), acceptor()
    shake(connecting, accepting, after=b"first frame")
    assert accepting.done
    assert accepting.rest == b"first frame"


def test_messages_have_the_sizes_that_the_documentation_gives() -> None:
    connecting, accepting = connector(), acceptor()
    hello = connecting.hello()
    answer = accepting.receive(hello)
    proof = connecting.receive(answer)
    assert (len(hello), len(answer), len(proof)) == (HELLO_BYTES, ANSWER_BYTES, PROOF_BYTES)


@pytest.mark.parametrize(
    ("opened", "why"),
    [
        (connector(epoch=2), "another epoch"),
        (connector(epoch=4), "another epoch"),
        (connector(peer=1), "another worker"),
        (connector(me=2), "another worker"),
        (connector(peer=2**32 - 1), "another worker"),
    ],
)
def test_a_hello_for_another_worker_or_epoch_is_refused_without_an_answer(opened: Connector, why: str) -> None:
    with pytest.raises(HandshakeError, match=why):
        acceptor().receive(opened.hello())


@pytest.mark.parametrize("opened", [connector(key=b"x" * 32), connector(run="r2"), connector(key=b"")])
def test_a_peer_with_another_key_or_run_is_refused_by_both_sides(opened: Connector) -> None:
    accepting = acceptor()
    with pytest.raises(HandshakeError, match="connecting side"):
        accepting.receive(opened.hello())
    assert accepting.peer == -1
    answer = acceptor().receive(connector().hello())
    with pytest.raises(HandshakeError, match="accepting side"):
        opened.receive(answer)
    assert not opened.done


def test_another_version_is_refused() -> None:
    hello = bytearray(connector().hello())
    hello[4] += 1
    with pytest.raises(HandshakeError, match="version"):
        acceptor().receive(bytes(hello))


def test_a_replayed_handshake_is_refused_by_a_new_acceptor() -> None:
    connecting, accepting = connector(), acceptor()
    hello = connecting.hello()
    proof = connecting.receive(accepting.receive(hello))
    accepting.receive(proof)
    assert accepting.done
    again = acceptor()
    again.receive(hello)
    with pytest.raises(HandshakeError, match="key"):
        again.receive(proof)
    assert not again.done


def test_a_replayed_answer_is_refused_by_a_new_connector() -> None:
    connecting, accepting = connector(), acceptor()
    answer = accepting.receive(connecting.hello())
    with pytest.raises(HandshakeError, match="key"):
        connector().receive(answer)


def test_an_acceptors_own_proof_cannot_be_reflected_to_it() -> None:
    accepting = acceptor()
    answer = accepting.receive(connector().hello())
    with pytest.raises(HandshakeError, match="key"):
        accepting.receive(answer[-PROOF_BYTES:])


def test_the_proof_of_one_connection_is_refused_on_another() -> None:
    # An attacker in the middle opens two connections to the acceptor and sends the proof of one on the other.
    connecting, first, second = connector(), acceptor(), acceptor()
    hello = connecting.hello()
    second.receive(hello)
    proof = connecting.receive(first.receive(hello))
    with pytest.raises(HandshakeError, match="key"):
        second.receive(proof)


def test_a_hello_that_is_redirected_to_another_worker_is_refused() -> None:
    # Both have number 2 and 3 among the run's workers; the hello is redirected.
    hello = bytearray(connector(peer=2).hello())
    hello[13:17] = (3).to_bytes(4, "little")
    with pytest.raises(HandshakeError, match="key"):
        acceptor(me=3).receive(bytes(hello))


@pytest.mark.parametrize("at", range(HELLO_BYTES))
def test_a_hello_with_one_other_byte_gets_no_answer(at: int) -> None:
    hello = bytearray(connector().hello())
    hello[at] ^= 4
    with pytest.raises(HandshakeError):
        acceptor().receive(bytes(hello))


@settings(max_examples=times(4))
@given(st.integers(0, ANSWER_BYTES - 1), st.integers(0, 7), st.booleans())
def test_one_flipped_bit_anywhere_is_refused(at: int, bit: int, in_answer: bool) -> None:
    connecting, accepting = connector(), acceptor()
    answer = bytearray(accepting.receive(connecting.hello()))
    if in_answer:
        answer[at] ^= 1 << bit
        with pytest.raises(HandshakeError):
            connecting.receive(bytes(answer))
        return
    proof = bytearray(connecting.receive(bytes(answer)))
    proof[at % PROOF_BYTES] ^= 1 << bit
    with pytest.raises(HandshakeError):
        accepting.receive(bytes(proof))


@settings(max_examples=times(4))
@given(st.lists(st.binary(max_size=200), max_size=8))
def test_rubbish_is_refused_or_buffered_within_a_limit(rubbish: list[bytes]) -> None:
    for side in (acceptor(), connector()):
        try:
            for piece in rubbish:
                side.receive(piece)
        except HandshakeError:
            continue
        assert not side.done
        assert len(side.rest) < ANSWER_BYTES


@settings(max_examples=times(4))
@given(st.binary(max_size=300))
def test_rubbish_behind_a_valid_hello_is_refused(rubbish: bytes) -> None:
    accepting = acceptor()
    accepting.receive(connector().hello())
    if len(rubbish) < PROOF_BYTES:
        assert accepting.receive(rubbish) == b""
        assert not accepting.done
        return
    with pytest.raises(HandshakeError):
        accepting.receive(rubbish)


def test_an_unknown_protocol_is_refused_at_its_first_byte() -> None:
    for opening in (b"G", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"MLRX"):
        with pytest.raises(HandshakeError, match="not this protocol"):
            acceptor().receive(opening)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 255), st.integers(0, 2**32 - 1))
def test_rejection_reasons_do_not_contain_values_of_the_peer(epoch: int, peer: int, version: int, me: int) -> None:
    # Rejections are counted by reason: a peer that could vary the text would fill memory and the report.
    hello = bytearray(connector(epoch=epoch, peer=peer, me=me).hello())
    hello[4] = version
    try:
        acceptor().receive(bytes(hello))
    except HandshakeError as fault:
        assert str(fault) in {  # noqa: PT017 - the loop of examples is the point, most of them raise
            "another version of the data protocol",
            "a worker of another epoch",
            "meant for another worker",
            "the connecting side does not know the run's key",
        }

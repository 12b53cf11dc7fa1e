"""A handshake succeeds between two workers of one run and epoch, and in no other case."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def shake(opened: Connector, asked: Acceptor, sizes: list[int] | None = None, after: bytes = b"") -> None:
    """Play a handshake with every message cut into pieces, and `after` glued to the connector's proof."""
    sizes = sizes or []
    answer = b"".join(asked.receive(piece) for piece in cut(opened.hello(), sizes))
    proof = b"".join(opened.receive(piece) for piece in cut(answer, sizes))
    assert opened.done
    assert not asked.done
    for piece in cut(proof + after, sizes):
        if asked.done:
            break
        assert asked.receive(piece) == b""


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 40), max_size=20))
def test_two_workers_of_a_run_agree_however_their_bytes_are_split(sizes: list[int]) -> None:
    opened, asked = connector(), acceptor()
    shake(opened, asked, sizes)
    assert opened.done
    assert asked.done
    assert asked.peer == 0
    assert (opened.rest, asked.rest) == (b"", b"")


@pytest.mark.parametrize("number", [1, 3, 4, 2**32 - 1])
def test_a_worker_is_heard_whatever_its_number_because_workers_may_be_added(number: int) -> None:
    asked = acceptor()
    shake(connector(me=number), asked)
    assert asked.done
    assert asked.peer == number


def test_bytes_behind_the_proof_are_kept_for_the_first_frames() -> None:
    opened, asked = connector(), acceptor()
    shake(opened, asked, after=b"first frame")
    assert asked.done
    assert asked.rest == b"first frame"


def test_messages_have_the_sizes_that_the_documentation_gives() -> None:
    opened, asked = connector(), acceptor()
    hello = opened.hello()
    answer = asked.receive(hello)
    proof = opened.receive(answer)
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
def test_a_hello_for_somebody_else_is_refused_without_an_answer(opened: Connector, why: str) -> None:
    with pytest.raises(HandshakeError, match=why):
        acceptor().receive(opened.hello())


@pytest.mark.parametrize("opened", [connector(key=b"x" * 32), connector(run="r2"), connector(key=b"")])
def test_who_does_not_know_the_key_or_the_run_is_refused_by_both_sides(opened: Connector) -> None:
    asked = acceptor()
    with pytest.raises(HandshakeError, match="connecting side"):
        asked.receive(opened.hello())
    assert asked.peer == -1
    answer = acceptor().receive(connector().hello())
    with pytest.raises(HandshakeError, match="accepting side"):
        opened.receive(answer)
    assert not opened.done


def test_another_version_is_named() -> None:
    hello = bytearray(connector().hello())
    hello[4] += 1
    with pytest.raises(HandshakeError, match="version"):
        acceptor().receive(bytes(hello))


def test_a_recorded_handshake_is_worth_nothing_against_a_new_acceptor() -> None:
    opened, asked = connector(), acceptor()
    hello = opened.hello()
    proof = opened.receive(asked.receive(hello))
    asked.receive(proof)
    assert asked.done
    again = acceptor()
    again.receive(hello)
    with pytest.raises(HandshakeError, match="key"):
        again.receive(proof)
    assert not again.done


def test_a_recorded_answer_is_worth_nothing_against_a_new_connector() -> None:
    opened, asked = connector(), acceptor()
    answer = asked.receive(opened.hello())
    with pytest.raises(HandshakeError, match="key"):
        connector().receive(answer)


def test_an_acceptors_own_proof_cannot_be_reflected_to_it() -> None:
    asked = acceptor()
    answer = asked.receive(connector().hello())
    with pytest.raises(HandshakeError, match="key"):
        asked.receive(answer[-PROOF_BYTES:])


def test_a_second_connection_gives_no_proof_for_the_first() -> None:
    # A stranger between asks the acceptor twice and plays one connection's proof into the other.
    opened, first, second = connector(), acceptor(), acceptor()
    hello = opened.hello()
    second.receive(hello)
    proof = opened.receive(first.receive(hello))
    with pytest.raises(HandshakeError, match="key"):
        second.receive(proof)


def test_a_hello_for_one_worker_is_none_for_another() -> None:
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


@settings(deadline=None, max_examples=150)
@given(st.integers(0, ANSWER_BYTES - 1), st.integers(0, 7), st.booleans())
def test_one_flipped_bit_anywhere_is_refused(at: int, bit: int, in_answer: bool) -> None:
    opened, asked = connector(), acceptor()
    answer = bytearray(asked.receive(opened.hello()))
    if in_answer:
        answer[at] ^= 1 << bit
        with pytest.raises(HandshakeError):
            opened.receive(bytes(answer))
        return
    proof = bytearray(opened.receive(bytes(answer)))
    proof[at % PROOF_BYTES] ^= 1 << bit
    with pytest.raises(HandshakeError):
        asked.receive(bytes(proof))


@settings(deadline=None, max_examples=200)
@given(st.lists(st.binary(max_size=200), max_size=8))
def test_rubbish_is_refused_or_awaited_and_little_is_kept(rubbish: list[bytes]) -> None:
    for side in (acceptor(), connector()):
        try:
            for piece in rubbish:
                side.receive(piece)
        except HandshakeError:
            continue
        assert not side.done
        assert len(side.rest) < ANSWER_BYTES


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=300))
def test_rubbish_behind_a_good_hello_is_refused(rubbish: bytes) -> None:
    asked = acceptor()
    asked.receive(connector().hello())
    if len(rubbish) < PROOF_BYTES:
        assert asked.receive(rubbish) == b""
        assert not asked.done
        return
    with pytest.raises(HandshakeError):
        asked.receive(rubbish)


def test_an_unknown_protocol_is_refused_at_its_first_byte() -> None:
    for opening in (b"G", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"MLRX"):
        with pytest.raises(HandshakeError, match="not this protocol"):
            acceptor().receive(opening)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 255), st.integers(0, 2**32 - 1))
def test_reasons_do_not_repeat_what_a_stranger_chose(epoch: int, peer: int, version: int, me: int) -> None:
    # Reasons are counted by their text: a stranger who could vary it would fill memory and report.
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

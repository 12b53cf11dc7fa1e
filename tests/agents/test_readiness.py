"""What says which sockets are ready: all of them, at once, or after as little as was asked for."""

import selectors
import socket
import time
from collections.abc import Iterator

import pytest

from agents.worker.process.event_loop import Selector


@pytest.fixture
def readiness() -> Iterator[Selector]:
    with Selector() as found:
        yield found


@pytest.mark.parametrize("timeout", [0, 0.000_2, 5.0, None])
def test_all_that_is_ready_is_found_with_any_time_out(readiness: Selector, timeout: float | None) -> None:
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


def test_writing_is_waited_for_only_where_it_was_asked_for(readiness: Selector) -> None:
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

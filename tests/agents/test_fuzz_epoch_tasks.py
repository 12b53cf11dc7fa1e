"""Well-formed but senseless frames from a peer that knows the key: accepted, or refused with a message."""

from random import Random

import pytest
from executor_harness import CountingSpout, EchoBolt
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis_examples import times
from scripted_run import ScriptedRun, run_spec, scripted_run

from agents.protocol import Abandon, Cut, MoveToPlace, Prepare, Slot
from agents.worker.wire import frame
from agents.worker.wire.frame import Codec, FrameError, FrameReader
from inventory.errors import MillraceError, RunError
from workloads.operators import Operator
from workloads.topology import Component, Input, Topology

A, B, C = Slot("n1", 0), Slot("n2", 0), Slot("n3", 0)
SCHEMA = {"number": "int"}
TOPOLOGY = Topology(
    "fuzzed",
    (
        Component("s", "spout", 2, outputs={"default": SCHEMA}),
        Component("b", "bolt", 2, outputs={"default": SCHEMA}, inputs=(Input("s"),)),
        Component("c", "bolt", 1, outputs={"default": SCHEMA}, inputs=(Input("b", "all"), Input("s", "global"))),
    ),
)
SPEC = run_spec(TOPOLOGY, [A, B, A, B, C])
ROWS = 12
BARRIER = 1

MOST_SWEEPS = 2_000
"""Limit of sweeps for a run of so few rows; a run that needs more never becomes idle."""


def operator(component: str) -> Operator:
    return CountingSpout(ROWS) if component == "s" else EchoBolt()


executors = st.integers(0, len(SPEC.executors))
small = st.integers(0, 3)


@st.composite
def payloads(draw: st.DrawFn, kind: int) -> tuple[int, int, bytes]:
    """Flags, count and payload that a header of this kind may have."""
    match kind:
        case frame.DATA:
            rows = [(number,) for number in draw(st.lists(st.integers(-9, 9), min_size=1, max_size=5))]
            encoded = Codec(SCHEMA).encode(rows) if draw(st.booleans()) else [draw(st.binary(max_size=30))]
            stamps = draw(st.sampled_from([(), ((0, 5),), ((0, -(2**62)),)]))
            pieces = frame.data(0, 1, 0, 0, len(rows), encoded, stamps)
            return int(bool(stamps)), len(rows), b"".join(pieces)[frame.HEADER_BYTES :]
        case frame.TICK:
            times = draw(st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 2))
            return 0, draw(small), frame._TICK.pack(*times)
        case frame.STATE:
            return draw(st.integers(0, 1)), 0, draw(st.binary(max_size=80))
        case frame.COPY:
            return draw(st.sampled_from([0, 1, 3])), draw(small), draw(st.binary(max_size=80))
        case frame.BARRIER | frame.PULL:
            return 0, draw(small), b""
    return 0, draw(st.integers(0, 2**32 - 1) | small) if kind == frame.CREDIT else 0, b""


@st.composite
def senseless(draw: st.DrawFn) -> bytes:
    """A frame whose header is within all limits."""
    kind = draw(st.integers(frame.DATA, frame.PULL))
    flags, count, payload = draw(payloads(kind))
    length = draw(st.integers(0, 2**32 - 1) | small) if kind == frame.CREDIT else len(payload)
    stream, sender, receiver = draw(st.integers(0, 3)), draw(executors), draw(executors)
    return frame.HEADER.pack(kind, flags, stream, SPEC.epoch, sender, receiver, count, length) + payload


@st.composite
def likely(draw: st.DrawFn) -> bytes:
    """A frame on an existing channel, as from a peer that knows the plan."""
    kind = draw(st.integers(frame.DATA, frame.TICK))
    flags, count, payload = draw(payloads(kind))
    length = draw(small) if kind == frame.CREDIT else len(payload)
    sender, receiver, stream = draw(st.sampled_from([(0, 3, 0), (1, 2, 0), (2, 4, 1), (3, 4, 1), (0, 4, 0), (1, 4, 0)]))
    return frame.HEADER.pack(kind, flags, stream, SPEC.epoch, sender, receiver, count, length) + payload


def deliver(run: ScriptedRun, place: Slot, peer: int, data: bytes) -> None:
    """Deliver bytes of a peer to a worker."""
    worker = run.workers[place]
    for received in FrameReader(SPEC.epoch).feed(data):
        worker.tasks.take(received, peer)


def run_until_idle(run: ScriptedRun, random: Random) -> None:
    """Sweep until nothing changes."""
    for _ in range(MOST_SWEEPS):
        if not run.sweep(random) and not run.sweep(random, 10**9):
            return
    pytest.fail("the run does not become idle")


@settings(max_examples=times(4))
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2), senseless() | likely()), max_size=4),
    st.integers(0, 2**32),
)
def test_whatever_a_peer_sends_the_worker_continues_or_fails_with_a_message(sent: list, seed: int) -> None:
    random = Random(seed)  # noqa: S311 - it must be repeatable
    with scripted_run(SPEC, operator) as run:
        try:
            for sweeps, victim, data in sent:
                for _ in range(sweeps):
                    run.sweep(random)
                deliver(run, SPEC.workers[victim], random.choice([p for p in range(3) if p != victim]), data)
            run_until_idle(run, random)
        except MillraceError as fault:
            assert str(fault)  # noqa: PT017 - most examples raise, and some need not


@settings(max_examples=times(4))
@given(st.booleans(), st.lists(st.tuples(st.integers(0, 8), senseless() | likely()), max_size=3), st.integers(0, 2**32))
def test_a_worker_continues_or_fails_with_a_message_while_executors_move(cut: bool, sent: list, seed: int) -> None:
    random = Random(seed)  # noqa: S311 - it must be repeatable
    prepare = Prepare(
        epoch=1, barrier=BARRIER, moves=(MoveToPlace("b[0]", C), MoveToPlace("s[1]", A)), workers=SPEC.workers
    )
    with scripted_run(SPEC, operator) as run:
        try:
            for place in SPEC.workers:
                run.command(place, prepare)
            for number, (sweeps, data) in enumerate(sent):
                for _ in range(sweeps):
                    run.sweep(random)
                victim = random.randrange(3)
                deliver(run, SPEC.workers[victim], random.choice([p for p in range(3) if p != victim]), data)
                if number == 0:
                    command = Cut(epoch=1, barrier=BARRIER, tick=0) if cut else Abandon(epoch=1, barrier=BARRIER)
                    for place in SPEC.workers:
                        run.command(place, command)
            run_until_idle(run, random)
        except MillraceError as fault:
            assert str(fault)  # noqa: PT017 - most examples raise, and some need not


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (frame.barrier(1, 1, 2, 4, 1), "barrier 1, which has not been prepared"),
        (frame.tick(1, 1, 2, 4, 1, 0, 0) + frame.tick(1, 1, 2, 4, 1, 0, 0), "tick 1 behind 1"),
        (frame.tick(1, 1, 2, 4, 5, 0, 0) + frame.tick(1, 1, 2, 4, 4, 0, 0), "tick 4 behind 5"),
        (frame.end_frame(1, 1, 2, 4) + frame.end_frame(1, 1, 2, 4), "after the end"),
        (frame.tick(0, 1, 4, 0, 1, 0, 0), "does not come this way"),
        (b"".join(frame.state(1, 2, b"x")), "does not move here"),
        (b"".join(frame.copy(1, 2, 1, b"x", False)), "is not copied to 2 here"),
        (frame.pull(1, 4, 1), "cannot be copied here"),
        (frame.pull(1, 2, 1), "gives none to 2"),
        (frame.credit(0, 1, 0, 4, 1, 0), "does not come this way"),
    ],
)
def test_frames_that_would_block_a_channel_forever_are_refused_on_arrival(data: bytes, why: str) -> None:
    with scripted_run(SPEC, operator) as run, pytest.raises(FrameError, match=why):
        deliver(run, C, 0, data)


def test_a_second_barrier_on_one_channel_and_one_of_another_number_are_refused() -> None:
    for second, why in ((1, "barrier 1 behind 1"), (2, "barrier 2, which has not been prepared")):
        with scripted_run(SPEC, operator) as run:
            run.command(C, Prepare(epoch=1, barrier=1, store=True, workers=SPEC.workers))
            deliver(run, C, 0, frame.barrier(1, 1, 2, 4, 1))
            with pytest.raises(FrameError, match=why):
                deliver(run, C, 0, frame.barrier(1, 1, 2, 4, second))


def test_state_is_accepted_only_from_the_former_worker_and_only_complete() -> None:
    prepare = Prepare(epoch=1, barrier=1, moves=(MoveToPlace("b[0]", C),), workers=SPEC.workers)
    for peer, data, why in (
        (1, b"x" * 60, "does not move here"),
        (0, b"x" * 3, "in 3 bytes"),
        (0, b"x" * 60, "no snapshot of version"),
    ):
        with scripted_run(SPEC, operator) as run:
            run.command(C, prepare)
            with pytest.raises(RunError, match=why):
                deliver(run, C, peer, b"".join(frame.state(1, 2, data)))

"""The relay: one process that carries the frames of a whole emulated network, each link with its rate and delay.

    python -P -m controller.emulation.relay

It stands in for netem on kernels without it. It reads a `RelayPlan` as JSON from its standard input, makes the
nodes' interfaces, writes `ready` and a newline to its standard output, and carries frames until SIGTERM. Then it
writes one line of JSON with what it has carried to standard error, and the interfaces vanish with it. It lives in the
namespace of the network's switch, which is how it is found when the network is taken down.
"""

import ctypes
import gc
import os
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from select import select
from time import monotonic
from typing import IO, cast

import msgspec
from msgspec import Struct

from controller.emulation.link_model import LinkModel, LinkShape
from controller.emulation.taps import LARGEST, open_tap
from controller.host.namespaces import enter
from inventory.errors import MillraceError, UnfitError
from inventory.parent_death import end_with, leave_on_sigterm

_PR_SET_TIMERSLACK = 29
_MOST_AT_ONCE = 16
"""Frames read from one node before the others, and what is due, are looked at again."""

_MARGIN_S = 10e-6
_MOST_EARLY_S = 100e-6
"""However late it may wake up, the relay never looks at the clock for longer than that instead of sleeping."""


class Tap(Struct, frozen=True):
    """An interface to make: its name, the file of its namespace, and the number of the node (`LinkShape.sender`)."""

    number: int
    namespace: str
    interface: str


class RelayPlan(Struct, frozen=True):
    """What a relay is to do.

    Attributes:
        home: file of the network namespace in which it lives.
        taps: the nodes' interfaces.
        shapes: the links.
    """

    home: str
    taps: tuple[Tap, ...]
    shapes: tuple[LinkShape, ...]


class RelayCounters(Struct, frozen=True):
    """What a relay has done: frames, the longest that one was late (s), and its CPU time (s)."""

    carried: int
    dropped: int
    latest_s: float
    cpu_s: float


def carry(taps: dict[int, int], carrier: LinkModel) -> None:
    """Carry frames for ever; `taps` has the node's number by descriptor.

    An idle CPU takes some 50 us to wake up, a busy one much less: the relay learns how late it wakes up, asks to be
    woken so much before the time, and spends the rest looking at the clock.
    """
    ends = {number: descriptor for descriptor, number in taps.items()}
    early = 0.0
    while True:
        now = monotonic()
        for receiver, frame in carrier.due(now):
            # An interface that is down takes nothing, like a card without its cable.
            with suppress(OSError):
                os.write(ends[receiver], frame)
        due = carrier.next_s()
        wait = None if due is None else max(0.0, due - early - monotonic())
        # Not epoll: Python rounds its time-outs to milliseconds.
        ready, _, _ = select(taps, (), (), wait)
        now = monotonic()
        if wait and due is not None and not ready:
            early = min(max(0.0, early + (now + _MARGIN_S - due) / 8), _MOST_EARLY_S)
        for descriptor in ready:
            for _ in range(_MOST_AT_ONCE):
                try:
                    frame = os.read(descriptor, LARGEST)
                except OSError:
                    break
                carrier.offer(taps[descriptor], frame, now)


def main() -> int:
    """Run a relay; returns its exit status."""
    leave_on_sigterm()
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=RelayPlan)
    try:
        enter(Path(plan.home))
        taps = {open_tap(Path(tap.namespace), tap.interface): tap.number for tap in plan.taps}
    except MillraceError as fault:
        print(fault, file=sys.stderr)  # noqa: T201 - its log
        return fault.exit_status
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    with suppress(OSError):
        # A relay that waits for its turn on the CPU makes every link slower.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    # Nothing here makes cycles, and a collection would hold up every link.
    gc.disable()
    carrier = LinkModel(taps.values(), plan.shapes)
    os.write(sys.stdout.fileno(), b"ready\n")
    try:
        carry(taps, carrier)
    finally:
        used = resource.getrusage(resource.RUSAGE_SELF)
        account = RelayCounters(carrier.carried, carrier.dropped, carrier.latest_s, used.ru_utime + used.ru_stime)
        os.write(sys.stderr.fileno(), msgspec.json.encode(account) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())


def start_relay(plan: RelayPlan, log: Path) -> subprocess.Popen[bytes]:
    """Start a relay, which ends with this process, and return it once all interfaces are there.

    Args:
        plan: what it is to do.
        log: the file to which it adds its complaints and, at its end, its `RelayCounters` as one line of JSON.

    Raises:
        UnfitError: it could not make an interface; the message is its own.
    """
    with log.open("ab") as errors:
        begin = errors.tell()
        relay = subprocess.Popen(
            [sys.executable, "-P", "-m", "controller.emulation.relay"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            preexec_fn=end_with(os.getpid()),
        )
    plans, answers = cast("IO[bytes]", relay.stdin), cast("IO[bytes]", relay.stdout)
    # One that has ended already says why in its log.
    with suppress(BrokenPipeError), plans:
        plans.write(msgspec.json.encode(plan))
    with answers:
        ready = answers.readline() == b"ready\n"
    if not ready:
        relay.wait()
        said = log.read_bytes()[begin:].decode(errors="replace").strip() or f"the relay ended with {relay.returncode}"
        raise UnfitError(said.splitlines()[-1])
    return relay

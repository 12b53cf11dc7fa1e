"""Relay: one process that forwards the frames of an emulated network, with the rate and delay of each link.

    python -P -m controller.emulation.relay

It replaces netem on kernels without it. It reads a `RelayPlan` as JSON from standard input, creates the nodes'
interfaces, writes `ready` and a newline to standard output, and forwards frames until SIGTERM. Then it writes its
`RelayCounters` as one line of JSON to standard error; the interfaces disappear with it. It runs in the switch's network
namespace, so that taking the network down also ends it.
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
"""Number of frames read from one node before other nodes and due frames are handled."""

_MARGIN_S = 10e-6
_MOST_EARLY_S = 100e-6
"""Longest time that the relay polls the clock instead of sleeping."""


class Tap(Struct, frozen=True):
    """An interface to create: its name, the file of its namespace, and the node's number (`LinkShape.sender`)."""

    number: int
    namespace: str
    interface: str


class RelayPlan(Struct, frozen=True):
    """Plan of a relay.

    Attributes:
        home: file of the network namespace in which it runs.
        taps: the nodes' interfaces.
        shapes: the links.
    """

    home: str
    taps: tuple[Tap, ...]
    shapes: tuple[LinkShape, ...]


class RelayCounters(Struct, frozen=True):
    """Frames delivered and dropped, the longest lateness of a frame (s), and the relay's CPU time (s)."""

    carried: int
    dropped: int
    latest_s: float
    cpu_s: float


def forward(taps: dict[int, int], links: LinkModel) -> None:
    """Forward frames until a signal; `taps` maps descriptors to node numbers.

    An idle CPU takes some 50 us to wake up, a busy one much less: the relay estimates its wake-up latency, sleeps that
    much shorter, and polls the clock for the rest.
    """
    ends = {number: descriptor for descriptor, number in taps.items()}
    early = 0.0
    while True:
        now = monotonic()
        for receiver, frame in links.due(now):
            # An interface that is down refuses frames, like a card without a cable.
            with suppress(OSError):
                os.write(ends[receiver], frame)
        due = links.next_s()
        wait = None if due is None else max(0.0, due - early - monotonic())
        # Not epoll: Python rounds its timeouts to milliseconds.
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
                links.offer(taps[descriptor], frame, now)


def main() -> int:
    """Run a relay; return its exit status."""
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
        # Real-time priority: waiting for the CPU would make every link slower.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    # The relay creates no reference cycles, and a collection would delay every link.
    gc.disable()
    links = LinkModel(taps.values(), plan.shapes)
    os.write(sys.stdout.fileno(), b"ready\n")
    try:
        forward(taps, links)
    finally:
        used = resource.getrusage(resource.RUSAGE_SELF)
        account = RelayCounters(links.carried, links.dropped, links.latest_s, used.ru_utime + used.ru_stime)
        os.write(sys.stderr.fileno(), msgspec.json.encode(account) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())


def start_relay(plan: RelayPlan, log: Path) -> subprocess.Popen[bytes]:
    """Start a relay, which ends with this process; return it once all interfaces exist.

    Args:
        plan: its plan.
        log: file to which it appends errors and, at its end, its `RelayCounters` as one line of JSON.

    Raises:
        UnfitError: it could not create an interface; the message is the relay's own.
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
    # If it has ended already, its log has the reason.
    with suppress(BrokenPipeError), plans:
        plans.write(msgspec.json.encode(plan))
    with answers:
        ready = answers.readline() == b"ready\n"
    if not ready:
        relay.wait()
        text = log.read_bytes()[begin:].decode(errors="replace").strip() or f"the relay ended with {relay.returncode}"
        raise UnfitError(text.splitlines()[-1])
    return relay

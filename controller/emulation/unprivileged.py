"""The network of an emulated cluster for a user who is not root: a process in a user namespace keeps it.

    python -P -m controller.emulation.unprivileged

In a user namespace of its own a process may make network namespaces, join and shape them. They are known by name only
to the process itself, by way of a `/run` of its own, and to others by `/proc/PID/root/run/netns`. It reads a
`LinksRequest` as a line of JSON from its standard input, brings the network up, and answers with a line of JSON, an
`LinksReply`. For every further line it measures the links and answers again; at the end of its input it takes the
network down. Nothing outlives it but what runs in the network.
"""

import os
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from controller.emulation.link_calibration import calibrate_links
from controller.emulation.network import EmulatedNetwork, NetworkPlan
from controller.emulation.shaping import Shaping
from controller.host.syscalls import NEW_MOUNTS, NEW_NETWORK, NEW_USERS, PRIVATE, RECURSIVE, mount, unshare
from controller.nodes.backend import Calibrated
from inventory.errors import MillraceError, UnfitError
from inventory.parent_death import leave_on_sigterm


class LinksRequest(Struct, frozen=True):
    """A network, and the file to which its relay adds what it has to say."""

    network: NetworkPlan
    log: str


class LinksReply(Struct, frozen=True, omit_defaults=True):
    """What shapes the links, what they turned out to be, or what is in the way, with its exit status."""

    shaping: Shaping | None = None
    rows: tuple[Calibrated, ...] = ()
    error: str = ""
    exit_status: int = 0


class Unwritten:
    """A ledger for namespaces that end with their maker."""

    def namespace(self, name: str) -> None:
        """See `Ledger.namespace`."""


def become_own_root() -> None:
    """Move the calling process, which has one thread only, into namespaces in which it may do what root may.

    Files and processes outside still see its user. `/run` is empty and its own.

    Raises:
        UnfitError: this host has no user namespaces for this user.
    """
    user, group = os.geteuid(), os.getegid()
    try:
        unshare(NEW_USERS | NEW_MOUNTS | NEW_NETWORK)
        # The kernel asks for this before it lets a user map a group.
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1", encoding="ascii")
        mount("none", Path("/"), flags=PRIVATE | RECURSIVE)
        mount("tmpfs", Path("/run"), "tmpfs")
    except OSError as fault:
        reason = os.strerror(fault.errno or 0)
        raise UnfitError(f"this host has no user namespaces for users that are not root: {reason}") from None


def keep(lines: int, answers: int) -> int:
    """Keep a network for whoever is at the other end of these two descriptors; return the exit status."""

    def answer(said: LinksReply) -> None:
        os.write(answers, msgspec.json.encode(said) + b"\n")

    with open(lines, "rb", closefd=False) as asked:
        first = asked.readline()
        if not first.endswith(b"\n"):
            return 0
        request = msgspec.json.decode(first, type=LinksRequest)
        try:
            become_own_root()
            network = EmulatedNetwork(request.network, Unwritten(), Path(request.log))
            shaping = network.up()
        except MillraceError as fault:
            answer(LinksReply(error=str(fault), exit_status=fault.exit_status))
            return fault.exit_status
        try:
            answer(LinksReply(shaping))
            for _ in asked:
                try:
                    answer(LinksReply(shaping, tuple(calibrate_links(request.network))))
                except MillraceError as fault:
                    answer(LinksReply(error=str(fault), exit_status=fault.exit_status))
        finally:
            network.down()
    return 0


if __name__ == "__main__":
    leave_on_sigterm()
    # Where `tc` is, and users do not look.
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    sys.exit(keep(0, 1))

"""Network of an emulated cluster for users other than root: a daemon in a user namespace owns it.

    python -P -m controller.emulation.unprivileged

In its own user namespace a process may create, connect and shape network namespaces. Their names are visible only in
its private `/run`; other processes use `/proc/PID/root/run/netns`. The daemon reads a `LinksRequest` as a line of JSON
from standard input, brings the network up, and replies with a line of JSON, a `LinksReply`. For every further line it
measures the links and replies again. At the end of its input it takes the network down; only processes in the
network can outlive it.
"""

import os
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from analysis.records.conditions import Calibrated
from controller.emulation.calibration import calibrate_links
from controller.emulation.network import EmulatedNetwork, NetworkPlan, Shaping
from controller.host.namespaces import NEW_MOUNTS, NEW_NETWORK, NEW_USERS, PRIVATE, RECURSIVE, mount, unshare
from inventory.errors import MillraceError, UnfitError
from inventory.parent_death import leave_on_sigterm


class LinksRequest(Struct, frozen=True):
    """A network, and the log file of its relay."""

    network: NetworkPlan
    log: str


class LinksReply(Struct, frozen=True, omit_defaults=True):
    """Shaping of the links, their measured properties, or an error with its exit status."""

    shaping: Shaping | None = None
    rows: tuple[Calibrated, ...] = ()
    error: str = ""
    exit_status: int = 0


class NoLedger:
    """Ledger that records nothing, because the namespaces end with the daemon."""

    def namespace(self, name: str) -> None:
        """See `NetworkLedger.namespace`."""


def become_own_root() -> None:
    """Move the calling process, which must be single-threaded, into namespaces in which it has root's capabilities.

    Outside of them it keeps its user. `/run` becomes private and empty.

    Raises:
        UnfitError: this host has no user namespaces for this user.
    """
    user, group = os.geteuid(), os.getegid()
    try:
        unshare(NEW_USERS | NEW_MOUNTS | NEW_NETWORK)
        # The kernel requires this before an unprivileged user may map a group.
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1", encoding="ascii")
        mount("none", Path("/"), flags=PRIVATE | RECURSIVE)
        mount("tmpfs", Path("/run"), "tmpfs")
    except OSError as fault:
        reason = os.strerror(fault.errno or 0)
        raise UnfitError(f"this host has no user namespaces for users that are not root: {reason}") from None


def serve_requests(lines: int, answers: int) -> int:
    """Serve requests on the descriptors `lines` and `answers`; return the exit status."""

    def send(reply: LinksReply) -> None:
        os.write(answers, msgspec.json.encode(reply) + b"\n")

    with open(lines, "rb", closefd=False) as requests:
        first = requests.readline()
        if not first.endswith(b"\n"):
            return 0
        request = msgspec.json.decode(first, type=LinksRequest)
        try:
            become_own_root()
            network = EmulatedNetwork(request.network, NoLedger(), Path(request.log))
            shaping = network.up()
        except MillraceError as fault:
            send(LinksReply(error=str(fault), exit_status=fault.exit_status))
            return fault.exit_status
        try:
            send(LinksReply(shaping))
            for _ in requests:
                try:
                    send(LinksReply(shaping, tuple(calibrate_links(request.network))))
                except MillraceError as fault:
                    send(LinksReply(error=str(fault), exit_status=fault.exit_status))
        finally:
            network.down()
    return 0


if __name__ == "__main__":
    leave_on_sigterm()
    # `tc` is often in a folder that users do not have in their path.
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    sys.exit(serve_requests(0, 1))

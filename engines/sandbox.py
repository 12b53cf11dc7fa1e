"""`python -P -m engines.sandbox COMMAND...`: runs a node agent, and all that it starts, in namespaces of their own.

Engines listen on all addresses of a host, without asking anybody who he is. In a network namespace with nothing but the
loopback interface nobody outside can connect, and no port is ever taken. All processes are in a process namespace, too:
the kernel ends them, whatever they have started, when its first process ends, and that ends with the agent.
"""

import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from controller.host.namespaces import (
    NEW_MOUNTS,
    NEW_NETWORK,
    NEW_PIDS,
    NEW_USERS,
    PRIVATE,
    RECURSIVE,
    die_with_parent,
    mount,
    unshare,
)
from inventory.errors import UnfitError

SANDBOX = (sys.executable, "-P", "-m", "engines.sandbox")
"""Command before another one that runs it in namespaces of its own."""

UNFIT = 3
"""Exit status on a host that has no namespaces for this user."""

_CHECK_S = 60.0
_SET_FLAGS = 0x8914
_UP = 0x41
"""`SIOCSIFFLAGS`, and `IFF_UP | IFF_RUNNING` (netdevice(7))."""


def _enter() -> None:
    """Move this process, and for its processes' ids its children, into new namespaces."""
    user, group = os.geteuid(), os.getegid()
    unshare(NEW_NETWORK | NEW_PIDS | NEW_MOUNTS | (NEW_USERS if user else 0))
    if user:
        # The kernel requires this before an unprivileged user may map a group.
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    mount("none", Path("/"), flags=PRIVATE | RECURSIVE)


def _first_process(command: Sequence[str]) -> int:
    """Be the first process of the namespaces: run the command, wait for all orphans, and return its exit status."""
    mount("proc", Path("/proc"), "proc")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH22x", b"lo", _UP))
    child = subprocess.Popen(command)
    while (ended := os.wait())[0] != child.pid:
        pass
    return _exit_status(ended[1])


def _exit_status(status: int) -> int:
    """Return the exit status with which shells describe how a process ended."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def check_sandbox() -> None:
    """Check that this user can have namespaces on this host.

    Raises:
        UnfitError: the kernel refuses them.
    """
    done = subprocess.run(
        [*SANDBOX, "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_CHECK_S, check=False
    )
    if done.returncode:
        raise UnfitError(f"the engine's processes cannot be started apart from others: {done.stderr.strip()}")


def main(command: Sequence[str]) -> int:
    """Run a command in namespaces of its own; return its exit status, or `UNFIT`."""
    try:
        _enter()
    except OSError as fault:
        sys.stderr.write(f"this host has no namespaces for this user: {fault}\n")
        return UNFIT
    first = os.fork()
    if first:
        # The kernel has ended all processes of the namespace when its first process can be waited for.
        return _exit_status(os.waitpid(first, 0)[1])
    try:
        die_with_parent(signal.SIGKILL)
        os._exit(_first_process(command))
    except OSError as fault:
        sys.stderr.write(f"{fault}\n")
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

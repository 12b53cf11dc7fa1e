"""Init process of an emulated node: sets the node up, runs its SSH server, and exits at the end of its input.

`python -P -m controller.emulation.node_init` reads one line, a `NodePlan`, joins the node's control group and network,
enters new namespaces, and mounts an overlay over the host's files. Everything that the node writes goes to a tmpfs that
disappears with it. The process prints `ready` once the SSH server is reachable, or an error.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from select import select
from time import monotonic
from types import FrameType

import msgspec
from msgspec import Struct

from agents.sensors.kernel import GROUP_ACCOUNTS
from controller.emulation import sysfs
from controller.host.namespaces import (
    BIND,
    NEW_CGROUPS,
    NEW_HOSTNAME,
    NEW_IPC,
    NEW_MOUNTS,
    NEW_PIDS,
    PRIVATE,
    READ_ONLY,
    RECURSIVE,
    REMOUNT,
    change_root,
    die_with_parent,
    enter,
    mount,
    unshare,
)
from inventory.emulation import EmulatedMachine

READY = "ready"
SSH_PORT = 22
_START_S = 30.0
_RESTART_S = 1.0
_TURN_S = 0.02

_SSHD_CONFIG = """\
ListenAddress {address}:22
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
MaxStartups 100
MaxSessions 100
Subsystem sftp internal-sftp
PidFile none
"""
# With PAM, a session manager of the host could take sessions out of the node's control group.


class NodePlan(Struct, frozen=True):
    """Plan of a node.

    Attributes:
        name: the node's id and host name.
        machine: the machine that its `/sys` and `/proc/cpuinfo` show.
        namespace: file of its network namespace.
        address: its address.
        entrances: `cgroup.procs` files of its control group.
        account: file with the control group's CPU time.
        place: empty folder of the host; the node's file system is mounted on it, visible only to the node.
        host_key: private key of its SSH server; the public key is beside it as `.pub`.
        authorized: public key for logins as root.
        known_hosts: host keys of all nodes.
        hosts: name -> address of all nodes and the controller.
        sshd: absolute path of the SSH server.
    """

    name: str
    machine: EmulatedMachine
    namespace: str
    address: str
    entrances: Sequence[str]
    account: str
    place: str
    host_key: str
    authorized: str
    known_hosts: str
    hosts: dict[str, str]
    sshd: str


def make_root(plan: NodePlan) -> None:
    """Mount the node's files over the host's, and make them the root of the calling process.

    Raises:
        OSError: the kernel or the host's file system does not support it.
    """
    mount("none", Path("/"), flags=RECURSIVE | PRIVATE)
    place = Path(plan.place)
    mount("tmpfs", place, "tmpfs", options=f"size={plan.machine.disk_mb}m,mode=755")
    for name in ("root", "files", "files.work", "sys.host", "sys.class", "sys", "sys.work", "run", "tmp"):
        (place / name).mkdir()
    root = place / "root"
    mount("overlay", root, "overlay", options=f"lowerdir=/,upperdir={place}/files,workdir={place}/files.work")
    mount("proc", root / "proc", "proc")
    # A sysfs mounted here shows the interfaces of this network namespace instead of the host's.
    mount("sysfs", place / "sys.host", "sysfs")
    sysfs.write_tree(plan.machine, place / "sys.class")
    layers = f"lowerdir={place}/sys.class:{place}/sys.host,upperdir={place}/sys,workdir={place}/sys.work"
    mount("overlay", root / "sys", "overlay", options=layers)
    _mount_account(Path(plan.account), root)
    mount("/dev", root / "dev", flags=BIND | RECURSIVE)
    (place / "tmp").chmod(0o1777)
    for name in ("run", "tmp"):
        mount(place / name, root / name, flags=BIND)
    if (root / "dev/shm").is_dir():
        mount("tmpfs", root / "dev/shm", "tmpfs", options=f"size={plan.machine.disk_mb}m,mode=1777")
    _write_files(plan, place, root)
    change_root(root)


def _mount_account(account: Path, root: Path) -> None:
    """Make the CPU time of the node's control group visible in the node, and no other control groups."""
    shown = root / next(path for path in GROUP_ACCOUNTS if path.endswith(f"/{account.name}"))
    shown.parent.mkdir(parents=True, exist_ok=True)
    shown.touch()
    mount(account, shown, flags=BIND)
    mount("none", shown, flags=BIND | REMOUNT | READ_ONLY)


def _write_files(plan: NodePlan, place: Path, root: Path) -> None:
    """Write the node's own files in `/proc`, `/etc`, `/run` and root's home folder."""
    clocks = dict.fromkeys(range(plan.machine.cores), plan.machine.turbo_khz or plan.machine.top_khz)
    files = {"cpuinfo": sysfs.cpuinfo(plan.machine, clocks, Path("/proc/cpuinfo").read_text())}
    files["meminfo"] = sysfs.meminfo(plan.machine, 0)
    for name, text in files.items():
        (place / name).write_text(text)
        mount(place / name, root / "proc" / name, flags=BIND)
    socket.sethostname(plan.name)
    etc = root / "etc"
    (etc / "hostname").write_text(f"{plan.name}\n")
    everybody = "".join(f"{address}\t{name}\n" for name, address in plan.hosts.items())
    (etc / "hosts").write_text(f"127.0.0.1\tlocalhost\n{everybody}")
    # The shell start-up files of the host's root must not run at logins on the node.
    for name in (".bashrc", ".bash_profile", ".bash_login", ".profile"):
        (root / "root" / name).unlink(missing_ok=True)
    # The host's own keys must neither identify the node nor be readable in it.
    for folder in (etc / "ssh", root / "root/.ssh"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
    (etc / "ssh").chmod(0o755)
    (etc / "ssh/sshd_config").write_text(_SSHD_CONFIG.format(address=plan.address))
    (etc / "ssh/ssh_known_hosts").write_text(plan.known_hosts)
    for suffix, mode in (("", 0o600), (".pub", 0o644)):
        key = etc / f"ssh/ssh_host_ed25519_key{suffix}"
        key.touch(mode)
        key.write_bytes(Path(plan.host_key + suffix).read_bytes())
    authorized = root / "root/.ssh/authorized_keys"
    authorized.touch(0o600)
    authorized.write_text(plan.authorized)
    (root / "run/sshd").mkdir(mode=0o755)
    (root / "run/lock").mkdir(mode=0o1777)


class _Server:
    """The node's SSH server, restarted when it ends, as by a service manager."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._begin = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def keep_up(self) -> None:
        """Start it unless it runs or was started less than `_RESTART_S` ago."""
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is not None and monotonic() - self._begin < _RESTART_S:
            return
        self._begin = monotonic()
        with Path("/var/log/sshd.log").open("ab") as log:
            # Not our standard input, which an orphaned server would hold open.
            self._process = subprocess.Popen([self._path, "-D", "-e"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    @property
    def pid(self) -> int | None:
        """Pid of the server."""
        return None if self._process is None else self._process.pid

    def last_log_line(self) -> str:
        """Return the last line of its log."""
        lines = Path("/var/log/sshd.log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "its log is empty"


def run_init(plan: NodePlan) -> None:
    """Run as the node's init process until the input ends or SIGTERM arrives.

    Raises:
        RuntimeError: the SSH server cannot be reached.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    server = _Server(plan.sshd)
    server.keep_up()
    deadline = monotonic() + _START_S
    while not _reachable(plan.address):
        if monotonic() > deadline:
            raise RuntimeError(f"the SSH server does not answer: {server.last_log_line()}")
        _reap(server.pid)
        server.keep_up()
        select([], [], [], _TURN_S)
    print(READY, flush=True)  # noqa: T201 - read by the emulation daemon
    # The daemon does not read any more; a write to the closed pipe must not end this process.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    while True:
        readable, _, _ = select([0], [], [], 1.0)
        if readable and not os.read(0, 4096):
            return
        _reap(server.pid)
        server.keep_up()


def _reachable(address: str) -> bool:
    try:
        with socket.create_connection((address, SSH_PORT), timeout=1.0):
            return True
    except OSError:
        return False


def _reap(own: int | None) -> None:
    """Reap orphans, which the kernel reparents to the init process; the SSH server is reaped elsewhere."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid == own:
            return
        os.waitpid(ended.si_pid, 0)


def main() -> int:
    """Set the node up and run its init process; return the exit status."""
    line = os.read(0, 1 << 20)
    while line and not line.endswith(b"\n"):
        line += os.read(0, 1 << 20)
    plan = msgspec.json.decode(line, type=NodePlan)
    try:
        for entrance in plan.entrances:
            Path(entrance).write_text(f"{os.getpid()}\n")
        enter(Path(plan.namespace))
        unshare(NEW_MOUNTS | NEW_CGROUPS | NEW_HOSTNAME | NEW_IPC | NEW_PIDS)
        child = os.fork()
        if child:
            # Only children are in the new pid namespace: this process waits, and ends the node when it is ended.
            os.close(0)
            signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        die_with_parent(signal.SIGKILL)
        make_root(plan)
        run_init(plan)
    except (OSError, RuntimeError, msgspec.MsgspecError) as fault:
        print(f"{type(fault).__name__}: {fault}", flush=True)  # noqa: T201 - read by the emulation daemon
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

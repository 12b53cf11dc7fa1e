"""Lifecycle of an emulated cluster, by its daemon: `provision` starts it, `verify` needs it, and `restore` stops it.

Requests go over the daemon's socket. Quotas are lifted while playbooks change nodes; installing the agent on a tenth of
a core would take too long.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Literal, cast

import msgspec
from msgspec import Struct

from controller.emulation.description import (
    DAEMON_LOG,
    TIER,
    ClusterRequest,
    Description,
    description_in,
    in_folder,
    logs_in,
    request_of,
)
from controller.emulation.sysfs_effects import RefusedWrite
from controller.host.cluster_lock import ClusterClaim, ClusterLock, usable_cpus
from controller.host.namespaces import inside
from controller.host.process_identity import ProcessIdentity, end_processes, identify
from inventory.ansible_hosts import Hosts
from inventory.errors import InputError, RunError, UnfitError

SOCKET = "daemon.sock"
KEEP = b"keep\n"
READY = "ready"
"""Line by which the daemon keeps running after its parent, and the line that it prints once the cluster is up."""

_PATIENCE_S = 30.0

PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "sshd": "openssh-server",
            "ssh": "openssh-client", "ssh-keygen": "openssh-client"}  # fmt: skip
"""Required programs, with their Debian packages."""

_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])

_UNLIMITED = ("provision", "restore")


class DaemonRequest(Struct, frozen=True):
    """`limit`: apply CPU and memory limits to nodes; `lift`: remove them; `status`: change nothing."""

    do: Literal["limit", "lift", "status"]


class DaemonReply(Struct, frozen=True, omit_defaults=True):
    """Reply of the daemon.

    Attributes:
        shares: current CPU quota of each node, in cores of this host.
        refused: values written by nodes since the start of the cluster that a real kernel would have refused.
        faults: messages on faults that make the cluster unusable: a node has ended, a quota was refused.
        error: why the request failed.
    """

    shares: dict[str, float] = {}
    refused: list[RefusedWrite] = []
    faults: list[str] = []
    error: str = ""


def ask(folder: Path, do: Literal["limit", "lift", "status"]) -> DaemonReply:
    """Send a request to the daemon of the cluster in `folder`; return its reply.

    Raises:
        RunError: it does not answer, or the request failed.
    """
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_PATIENCE_S)
            client.connect(str(folder / SOCKET))
            client.sendall(msgspec.json.encode(DaemonRequest(do)) + b"\n")
            with client.makefile("rb") as lines:
                reply = msgspec.json.decode(lines.readline(), type=DaemonReply)
    except (OSError, msgspec.DecodeError) as fault:
        raise RunError(f"the emulated cluster in {folder} does not answer: {fault}") from None
    if reply.error:
        raise RunError(f"the emulated cluster in {folder}: {reply.error}")
    return reply


class EmulatedCluster:
    """A cluster started by this process; it stops with this process unless `stay` is called."""

    def __init__(self, daemon: subprocess.Popen[bytes], description: Description) -> None:
        self._daemon, self.description = daemon, description

    def stay(self) -> None:
        """Keep the cluster running after this process ends."""
        stream = cast("IO[bytes]", self._daemon.stdin)
        stream.write(KEEP)
        stream.close()

    def down(self) -> None:
        """Stop the cluster."""
        take_down(self.description.daemon)
        cast("IO[bytes]", self._daemon.stdin).close()
        self._daemon.wait()


def emulation_unsupported_reason() -> str | None:
    """Return the reason why this host or user cannot run an emulated cluster; None without one."""
    if os.geteuid() != 0:
        return (
            "only root can make control groups, and log in as root to nodes; without root `millrace run` has its "
            "links, between nodes that are processes: no quotas, hotplug or governors"
        )
    missing = {program: package for program, package in PROGRAMS.items() if not shutil.which(program, path=_PATH)}
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        return f"{', '.join(sorted(missing))} not installed (Debian: apt install {packages})"
    return None


def bring_up(request: ClusterRequest, on_started: Callable[[str], None]) -> EmulatedCluster:
    """Start a cluster; `on_started` is called with the name of every part that is up.

    Raises:
        UnfitError: this host cannot run it, or the folder has a running cluster already.
        InputError: its nodes need more cores than this host has.
    """
    if reason := emulation_unsupported_reason():
        raise UnfitError(f"an emulated cluster: {reason}")
    _check_share(request)
    folder = Path(request.folder)
    if running := description_in(folder):
        raise UnfitError(f"{running} is running already")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = (folder / DAEMON_LOG).open("wb")
    except OSError as fault:
        raise UnfitError(f"{folder}: the cluster's folder cannot be made: {fault.strerror}") from None
    with log:
        daemon = subprocess.Popen(
            [sys.executable, "-P", "-m", "controller.emulation.daemon"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    stream = cast("IO[bytes]", daemon.stdin)
    stream.write(msgspec.json.encode(request) + b"\n")
    stream.flush()
    line_text = ""
    with cast("IO[bytes]", daemon.stdout) as output:
        for line in output:
            line_text = line.decode(errors="replace").strip()
            if line_text == READY:
                break
            on_started(line_text)
    description = description_in(folder) if line_text == READY else None
    if description is None:
        stream.close()
        daemon.wait()
        status, _, message = line_text.partition(" ")
        if status.isdigit() and message:
            raise UnfitError(message)
        raise RunError(f"the emulated cluster did not come up; see {folder / DAEMON_LOG}")
    return EmulatedCluster(daemon, description)


def take_down(daemon: ProcessIdentity) -> None:
    """Stop the cluster of a daemon, also one that another process has started.

    Raises:
        RunError: the daemon does not end.
    """
    # The daemon ends its nodes and cleans up; after SIGKILL, `millrace clean` would have to.
    if end_processes([daemon], patience_s=30.0):
        raise RunError(f"process {daemon.pid}, the daemon of the emulated cluster, does not end")


def _check_share(request: ClusterRequest) -> None:
    cores = len(os.sched_getaffinity(0))
    asked = sum(machine.share for machine in request.machines.values())
    if asked > cores:
        raise InputError(
            f"the nodes need {asked:g} cores of this host together (cores x share_per_core), and it has {cores}; "
            "the controller and the relay also need CPU time"
        )


def is_emulated(hosts: Hosts) -> bool:
    """Return whether the inventory's hosts are namespaces of this host."""
    return any(host.variables.get("millrace_tier") == TIER for host in hosts.by_name.values())


def running_cluster(hosts: Hosts, as_asked: bool = True) -> Description | None:
    """Return the running cluster of an inventory, whichever process has started it; None without one.

    Args:
        hosts: hosts of the inventory.
        as_asked: whether it must match the inventory completely; otherwise equal node names are enough.

    Raises:
        InputError: the inventory does not describe an emulated cluster.
        UnfitError: another cluster is running in the same folder.
    """
    request = request_of(hosts)
    running = description_in(Path(request.folder))
    if running is not None and (
        running.request != request if as_asked else running.request.machines.keys() != request.machines.keys()
    ):
        raise UnfitError(
            f"{running} is not the one of {hosts.path}, which has been changed since or is another file; take it down "
            f"with: millrace clean {request.folder}; or give the inventory a folder of its own"
        )
    return running


def use_running(hosts: Hosts, progress: Callable[[str], None], as_asked: bool = True) -> Description | None:
    """Return `cluster_of`, and show its origin if another process has started it."""
    running = running_cluster(hosts, as_asked)
    if running is not None and running.origin.process != identify(os.getpid()):
        progress(f"uses {running}")
    return running


def start_cluster(hosts: Hosts, progress: Callable[[str], None]) -> EmulatedCluster:
    """Start the inventory's cluster.

    Raises:
        MillraceError: this host does not support it.
    """
    return bring_up(request_of(hosts), lambda part: progress(f"up: {part}"))


@contextmanager
def cluster_for_playbook(
    playbook: str, hosts: Hosts, check: bool, partial: bool, progress: Callable[[str], None], force: bool = False
) -> Iterator[None]:
    """Provide the hosts of a playbook during the block: start or stop an emulated cluster as the playbook requires.

    Args:
        playbook: `provision`, `verify`, `restore`, or another one that needs a running cluster.
        hosts: hosts of the inventory; nothing is done for real machines.
        check: whether it is a dry run: a cluster started for it is stopped again, a running one is left running.
        partial: whether the playbook runs for some hosts or in part only; `restore` then stops nothing.
        progress: shows progress.
        force: whether a cluster that is in use is not refused.

    Raises:
        MillraceError: the cluster is not running, cannot be started, or is in use.
    """
    if not is_emulated(hosts):
        yield
        return
    with nullcontext() if force else lock_of(request_of(hosts).folder):
        description = use_running(hosts, progress, as_asked=playbook != "restore")
        started = None
        if description is None and playbook == "provision":
            started = start_cluster(hosts, progress)
            description = started.description
        if description is None:
            raise _not_up(hosts)
        try:
            with unlimited(Path(description.request.folder)) if playbook in _UNLIMITED else nullcontext():
                yield
        finally:
            if playbook == "restore" and not check and not partial:
                take_down(description.daemon)
                if logs := logs_in(Path(description.request.folder)):
                    progress(f"logs, until millrace clean: {', '.join(map(str, logs))}")
            elif started is not None and check:
                started.down()
            elif started is not None:
                # Not before: the cluster of a command that is killed goes down with it.
                started.stay()


def claim_of(hosts: Hosts) -> ClusterClaim:
    """Return what a campaign on an inventory's cluster uses alone: the cluster, and the CPUs that its nodes run on.

    Raises:
        InputError: the inventory does not describe an emulated cluster.
    """
    folder = request_of(hosts).folder
    running = running_cluster(hosts, as_asked=False)
    return ClusterClaim(in_folder(folder), (folder,), usable_cpus(running.daemon.pid) if running else usable_cpus())


def lock_of(folder: str) -> ClusterLock:
    """Return the lock that keeps other playbooks, campaigns and `millrace clean` away from the cluster in a folder."""
    return ClusterLock(ClusterClaim(in_folder(folder), (folder,)), Path(folder))


@contextmanager
def inside_network_of(hosts: Hosts) -> Iterator[None]:
    """Run a block where the hosts are reachable: for an emulated cluster in its controller's network namespace.

    Only the calling thread enters it, and threads and processes started inside the block.

    Raises:
        MillraceError: the cluster is not running, or its namespace cannot be entered.
    """
    if not is_emulated(hosts):
        yield
        return
    description = running_cluster(hosts, as_asked=False)
    if description is None:
        raise _not_up(hosts)
    with inside(description.network.controller.path):
        yield


def _not_up(hosts: Hosts) -> UnfitError:
    return UnfitError(f"no emulated cluster of {hosts.path} is up; bring it up with: millrace provision {hosts.path}")


@contextmanager
def unlimited(folder: Path) -> Iterator[None]:
    """Lift the nodes' limits during the block.

    Raises:
        RunError: the cluster does not answer, or has faults afterwards.
    """
    ask(folder, "lift")
    try:
        yield
    finally:
        faults = ask(folder, "limit").faults
        if faults:
            raise RunError(f"{'; '.join(faults)}; take the cluster down with: millrace clean {folder}")

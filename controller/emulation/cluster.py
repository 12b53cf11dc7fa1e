"""Start and stop of an emulated cluster."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

import msgspec

from controller.emulation.daemon import KEEP, READY
from controller.emulation.description import ClusterRequest, Description, description_in
from controller.emulation.folder import KEEPER_LOG
from controller.host.process_identity import ProcessIdentity, end
from inventory.errors import InputError, RunError, UnfitError

PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "sshd": "openssh-server",
            "ssh": "openssh-client", "ssh-keygen": "openssh-client"}  # fmt: skip
"""Required programs, with their Debian packages."""

_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


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
        take_down(self.description.keeper)
        cast("IO[bytes]", self._daemon.stdin).close()
        self._daemon.wait()


def unsupported_reason() -> str | None:
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
    if reason := unsupported_reason():
        raise UnfitError(f"an emulated cluster: {reason}")
    _check_share(request)
    folder = Path(request.folder)
    if running := description_in(folder):
        raise UnfitError(f"{running} is running already")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = (folder / KEEPER_LOG).open("wb")
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
        raise RunError(f"the emulated cluster did not come up; see {folder / KEEPER_LOG}")
    return EmulatedCluster(daemon, description)


def take_down(daemon: ProcessIdentity) -> None:
    """Stop the cluster of a daemon, also one that another process has started.

    Raises:
        RunError: the daemon does not end.
    """
    # The daemon ends its nodes and cleans up; after SIGKILL, `millrace clean` would have to.
    if end([daemon], patience_s=30.0):
        raise RunError(f"process {daemon.pid}, the daemon of the emulated cluster, does not end")


def _check_share(request: ClusterRequest) -> None:
    cores = len(os.sched_getaffinity(0))
    asked = sum(machine.share for machine in request.machines.values())
    if asked > cores:
        raise InputError(
            f"the nodes need {asked:g} cores of this host together (cores x share_per_core), and it has {cores}; "
            "the controller and the relay also need CPU time"
        )

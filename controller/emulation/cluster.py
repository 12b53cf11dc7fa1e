"""Bringing an emulated cluster up and taking it down."""

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
"""What this host must have, with Debian's package."""

_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


class EmulatedCluster:
    """A cluster that this process has brought up; it goes down with this process, unless it is told to stay."""

    def __init__(self, keeper: subprocess.Popen[bytes], description: Description) -> None:
        self._keeper, self.description = keeper, description

    def stay(self) -> None:
        """Leave it up when this process ends."""
        stream = cast("IO[bytes]", self._keeper.stdin)
        stream.write(KEEP)
        stream.close()

    def down(self) -> None:
        """Take it down."""
        take_down(self.description.keeper)
        cast("IO[bytes]", self._keeper.stdin).close()
        self._keeper.wait()


def why_not() -> str | None:
    """Why this host or user cannot have an emulated cluster; None when it can be tried."""
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


def bring_up(request: ClusterRequest, tell: Callable[[str], None]) -> EmulatedCluster:
    """Bring a cluster up; `tell` hears the name of every part that is there.

    Raises:
        UnfitError: this host cannot have it, or there is one in the folder already.
        InputError: it asks for more than this host has.
    """
    if reason := why_not():
        raise UnfitError(f"an emulated cluster: {reason}")
    _check_share(request)
    folder = Path(request.folder)
    if there := description_in(folder):
        raise UnfitError(f"{there} is up already")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = (folder / KEEPER_LOG).open("wb")
    except OSError as fault:
        raise UnfitError(f"{folder}: the cluster's folder cannot be made: {fault.strerror}") from None
    with log:
        keeper = subprocess.Popen(
            [sys.executable, "-P", "-m", "controller.emulation.daemon"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    stream = cast("IO[bytes]", keeper.stdin)
    stream.write(msgspec.json.encode(request) + b"\n")
    stream.flush()
    said = ""
    with cast("IO[bytes]", keeper.stdout) as output:
        for line in output:
            said = line.decode(errors="replace").strip()
            if said == READY:
                break
            tell(said)
    description = description_in(folder) if said == READY else None
    if description is None:
        stream.close()
        keeper.wait()
        status, _, message = said.partition(" ")
        if status.isdigit() and message:
            raise UnfitError(message)
        raise RunError(f"the emulated cluster did not come up; see {folder / KEEPER_LOG}")
    return EmulatedCluster(keeper, description)


def take_down(keeper: ProcessIdentity) -> None:
    """Take the cluster down that a process keeps, whoever has brought it up.

    Raises:
        RunError: its keeper does not end.
    """
    # It ends its nodes and removes what it has made; SIGKILL would leave that to `millrace clean`.
    if end([keeper], patience_s=30.0):
        raise RunError(f"process {keeper.pid}, which keeps the emulated cluster, does not end")


def _check_share(request: ClusterRequest) -> None:
    cores = len(os.sched_getaffinity(0))
    asked = sum(machine.share for machine in request.machines.values())
    if asked > cores:
        raise InputError(
            f"the nodes are worth {asked:g} cores of this host together (cores x share_per_core), and it has {cores}; "
            "the controller and the relay need a part of them, too"
        )

"""Plays on an emulated cluster: it comes up for `provision`, stands for `verify`, and goes down with `restore`.

While plays change a node it is held to no quota: installing the agent at a tenth of a core would measure patience.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from controller.emulation.cluster import EmulatedCluster, bring_up, take_down
from controller.emulation.daemon_client import ask
from controller.emulation.description import TIER, Description, description_in, request_of
from controller.emulation.folder import logs_in
from controller.host.cluster_lock import ClusterLock
from controller.host.namespaces import inside
from controller.host.process_identity import identify
from inventory.ansible_hosts import Hosts
from inventory.errors import RunError, UnfitError

_UNLIMITED = ("provision", "restore")


def is_emulated(hosts: Hosts) -> bool:
    """Whether the inventory's hosts are namespaces of this host."""
    return any(host.variables.get("millrace_tier") == TIER for host in hosts.by_name.values())


def cluster_of(hosts: Hosts, as_asked: bool = True) -> Description | None:
    """The cluster of this inventory, if it is up, whoever has brought it up.

    Args:
        hosts: of the inventory.
        as_asked: it must be as the inventory asks for now; else the same nodes are enough.

    Raises:
        InputError: the inventory does not describe one.
        UnfitError: another one is up in the same folder.
    """
    request = request_of(hosts)
    found = description_in(Path(request.folder))
    if found is not None and (
        found.request != request if as_asked else found.request.machines.keys() != request.machines.keys()
    ):
        raise UnfitError(
            f"{found} is not the one of {hosts.path}, which has been changed since or is another file; take it down "
            "with: millrace clean; or give the inventory a folder of its own"
        )
    return found


def joined(hosts: Hosts, progress: Callable[[str], None], as_asked: bool = True) -> Description | None:
    """`cluster_of`, for whoever is about to use it: says whose it is, unless it is its own."""
    found = cluster_of(hosts, as_asked)
    if found is not None and found.origin.process != identify(os.getpid()):
        progress(f"uses {found}")
    return found


def start(hosts: Hosts, progress: Callable[[str], None]) -> EmulatedCluster:
    """Bring the inventory's cluster up; it is not up yet.

    Raises:
        MillraceError: this host cannot do it.
    """
    return bring_up(request_of(hosts), lambda part: progress(f"up: {part}"))


@contextmanager
def standing_for(
    playbook: str, hosts: Hosts, check: bool, partial: bool, progress: Callable[[str], None]
) -> Iterator[None]:
    """Have the hosts there that a playbook is about to be played on; hosts that are machines always are.

    Args:
        playbook: `provision`, `verify`, `restore`, or another that needs a cluster that is up.
        hosts: of the inventory.
        check: it only says what would change: what is brought up for it goes down again, what is up stays.
        partial: it is played for some of the hosts, or a part of it is; `restore` then takes nothing down.
        progress: shows how far it is.

    Raises:
        MillraceError: the cluster is not up, or cannot be brought up, or is in use.
    """
    if not is_emulated(hosts):
        yield
        return
    with use_of(hosts):
        description = joined(hosts, progress, as_asked=playbook != "restore")
        started = None
        if description is None and playbook == "provision":
            started = start(hosts, progress)
            description = started.description
            if not check:
                started.stay()
        if description is None:
            raise _not_up(hosts)
        try:
            with unlimited(Path(description.request.folder)) if playbook in _UNLIMITED else nullcontext():
                yield
        finally:
            if playbook == "restore" and not check and not partial:
                take_down(description.keeper)
                if logs := logs_in(Path(description.request.folder)):
                    progress(f"logs, until millrace clean: {', '.join(map(str, logs))}")
            elif started is not None and check:
                started.down()


def use_of(hosts: Hosts) -> ClusterLock:
    """Keep plays and campaigns of others, and `millrace clean`, away from the inventory's cluster, up or not.

    Raises:
        InputError: the inventory does not describe one.
    """
    folder = request_of(hosts).folder
    return ClusterLock(f"emulated in {folder}", Path(folder))


@contextmanager
def in_reach_of(hosts: Hosts) -> Iterator[None]:
    """Run a block from where the hosts are reached: for an emulated cluster its controller's network namespace.

    Only the calling thread goes there, and threads and processes that it starts from there.

    Raises:
        MillraceError: the cluster is not up, or its namespace cannot be entered.
    """
    if not is_emulated(hosts):
        yield
        return
    description = cluster_of(hosts, as_asked=False)
    if description is None:
        raise _not_up(hosts)
    with inside(description.network.controller.path):
        yield


def _not_up(hosts: Hosts) -> UnfitError:
    return UnfitError(f"no emulated cluster of {hosts.path} is up; bring it up with: millrace provision {hosts.path}")


@contextmanager
def unlimited(folder: Path) -> Iterator[None]:
    """Let nodes have all of this host as long as the block lasts; then hold them to their shares.

    Raises:
        RunError: the cluster does not answer.
    """
    ask(folder, "lift")
    try:
        yield
    finally:
        faults = ask(folder, "limit").faults
        if faults:
            raise RunError(f"{'; '.join(faults)}; take the cluster down with: millrace clean")

"""Lifecycle of an emulated cluster: `provision` starts it, `verify` needs it, and `restore` stops it.

Quotas are lifted while playbooks change nodes; installing the agent on a tenth of a core would take too long.
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
    """Return whether the inventory's hosts are namespaces of this host."""
    return any(host.variables.get("millrace_tier") == TIER for host in hosts.by_name.values())


def cluster_of(hosts: Hosts, as_asked: bool = True) -> Description | None:
    """Return the running cluster of an inventory, whichever process has started it; None without one.

    Args:
        hosts: hosts of the inventory.
        as_asked: whether it must match the inventory completely; otherwise equal node names are enough.

    Raises:
        InputError: the inventory does not describe an emulated cluster.
        UnfitError: another cluster is running in the same folder.
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


def use_running(hosts: Hosts, progress: Callable[[str], None], as_asked: bool = True) -> Description | None:
    """Return `cluster_of`, and show its origin if another process has started it."""
    found = cluster_of(hosts, as_asked)
    if found is not None and found.origin.process != identify(os.getpid()):
        progress(f"uses {found}")
    return found


def start(hosts: Hosts, progress: Callable[[str], None]) -> EmulatedCluster:
    """Start the inventory's cluster.

    Raises:
        MillraceError: this host does not support it.
    """
    return bring_up(request_of(hosts), lambda part: progress(f"up: {part}"))


@contextmanager
def cluster_for_playbook(
    playbook: str, hosts: Hosts, check: bool, partial: bool, progress: Callable[[str], None]
) -> Iterator[None]:
    """Provide the hosts of a playbook during the block: start or stop an emulated cluster as the playbook requires.

    Args:
        playbook: `provision`, `verify`, `restore`, or another one that needs a running cluster.
        hosts: hosts of the inventory; nothing is done for real machines.
        check: whether it is a dry run: a cluster started for it is stopped again, a running one is left running.
        partial: whether the playbook runs for some hosts or in part only; `restore` then stops nothing.
        progress: shows progress.

    Raises:
        MillraceError: the cluster is not running, cannot be started, or is in use.
    """
    if not is_emulated(hosts):
        yield
        return
    with lock_of(hosts):
        description = use_running(hosts, progress, as_asked=playbook != "restore")
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


def lock_of(hosts: Hosts) -> ClusterLock:
    """Return the lock that keeps other playbooks, campaigns and `millrace clean` away from an inventory's cluster.

    Raises:
        InputError: the inventory does not describe an emulated cluster.
    """
    folder = request_of(hosts).folder
    return ClusterLock(f"emulated in {folder}", Path(folder))


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
    description = cluster_of(hosts, as_asked=False)
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
            raise RunError(f"{'; '.join(faults)}; take the cluster down with: millrace clean")

"""Backend for emulated clusters: nodes are reached over SSH from the controller's network namespace."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from controller.emulation.calibration import calibrate, shortfall_of
from controller.emulation.cluster import unsupported_reason
from controller.emulation.daemon_client import ask
from controller.emulation.description import Description
from controller.emulation.lifecycle import cluster_of, lock_of, start, use_running
from controller.host.cleanup_log import CleanupLog
from controller.host.namespaces import inside
from controller.nodes.backend import Calibration, Operator
from controller.ssh.backend import SshBackend
from inventory.ansible_hosts import Hosts
from inventory.cluster import Cluster
from inventory.errors import RunError, UnfitError


class EmulatedBackend(SshBackend):
    """Nodes that are namespaces of this host; see `controller.nodes.backend.Backend`."""

    def __init__(self, cluster: Cluster, hosts: Hosts, owner: str, operator: Operator) -> None:
        """Prepare the backend as `SshBackend` does; `operator` provisions a cluster that is started here."""
        super().__init__(cluster, hosts, owner)
        self._operator = operator
        self._inventory = hosts
        self._description: Description | None = None
        self._refused = 0

    @property
    def processes(self) -> Sequence[int]:
        """See `Backend.processes`: nodes and links are children of the emulation daemon."""
        return [os.getpid(), self._up.keeper.pid]

    def check(self) -> None:
        """See `Backend.check`: host, user and inventory must allow an emulated cluster."""
        if reason := unsupported_reason():
            raise UnfitError(f"an emulated cluster: {reason}")
        cluster_of(self._inventory)

    @contextmanager
    def up(self, state: CleanupLog) -> Iterator[None]:
        """See `Backend.up`: use a running cluster, or start and provision one and take it down at the end."""
        with ExitStack() as stack:
            description = use_running(self._inventory, self._operator.progress)
            if description is None:
                cluster = start(self._inventory, self._operator.progress)
                stack.callback(cluster.down)
                description = cluster.description
                self._operator.provision(self._inventory)
            self._description = description
            # Only now: the login key is created with the cluster.
            super().check()
            stack.enter_context(lock_of(self._inventory))
            stack.enter_context(inside(description.network.controller.path))
            stack.enter_context(super().up(state))
            yield

    async def calibrate(self) -> Calibration:
        """See `Backend.calibrate`: measures all nodes at once, then every link with a limit or a delay."""
        self._refused = len(ask(self._folder, "status").refused)
        found = await asyncio.to_thread(calibrate, self._up)
        return Calibration(tuple(found), shortfall_of(found))

    async def check_since_calibration(self) -> None:
        """See `Backend.check_since_calibration`: values that a real kernel refuses, and nodes that have ended."""
        answer = ask(self._folder, "status")
        wrong = [*map(str, answer.refused[self._refused :]), *answer.faults]
        if wrong:
            raise RunError("; ".join(wrong))

    @property
    def _up(self) -> Description:
        if self._description is None:
            raise ValueError("the cluster is not up")
        return self._description

    @property
    def _folder(self) -> Path:
        return Path(self._up.request.folder)

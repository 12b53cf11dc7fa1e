"""Backends for emulated clusters.

For root, nodes are reached over SSH from the controller's network namespace. For other users, they are processes in
network namespaces.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, cast

import msgspec

from controller.emulation.calibration import calibrate_cluster, shortfall_of
from controller.emulation.cluster import (
    ask,
    claim_of,
    emulation_unsupported_reason,
    running_cluster,
    start_cluster,
    use_running,
)
from controller.emulation.description import Description, in_folder, nics_of, request_of
from controller.emulation.network import NetworkPlan, new_prefix
from controller.emulation.unprivileged import LinksReply, LinksRequest
from controller.host.addresses import address_of
from controller.host.cgroups import ControlGroup, find_hierarchy
from controller.host.cluster_lock import ClusterClaim, usable_cpus
from controller.host.disk import writing
from controller.host.namespaces import inside
from controller.host.ownership import CleanupLog
from controller.nodes.agents import RunNode
from controller.nodes.backend import Calibration, CommandLineCallbacks, LoopbackBackend
from controller.nodes.local_nodes import LocalNode
from controller.nodes.transport import LoopbackTransport
from controller.ssh.backend import SshBackend
from inventory.ansible_hosts import Hosts
from inventory.cluster import Cluster
from inventory.errors import RunError, UnfitError

NOTICE = (
    "not root: of the emulated cluster only addresses and links are real; its nodes are processes of this host without "
    "CPU quotas, memory limits, files or SSH servers of their own, and runs say tier 1"
)


class EmulatedBackend(SshBackend):
    """Nodes that are namespaces of this host; see `controller.nodes.backend.Backend`."""

    def __init__(self, cluster: Cluster, hosts: Hosts, owner: str, operator: CommandLineCallbacks) -> None:
        """Prepare the backend as `SshBackend` does; `operator` provisions a cluster that is started here."""
        super().__init__(cluster, hosts, owner)
        self._operator = operator
        self._description: Description | None = None
        self._refused = 0

    @property
    def claim(self) -> ClusterClaim:
        return claim_of(self._inventory)

    @property
    def processes(self) -> Sequence[int]:
        """See `Backend.processes`: nodes and links are children of the emulation daemon."""
        return [os.getpid(), self._up.daemon.pid]

    @property
    def engine_obstacle(self) -> str:
        """See `Backend.engine_obstacle`: there is none."""
        return ""

    @property
    def engine_address(self) -> str:
        """See `Backend.engine_address`: there is none."""
        return ""

    async def check_engine(self) -> None:
        """See `Backend.check_engine`; nodes use this host's Java."""

    @property
    def local_nodes(self) -> "EmulatedNodes":
        return EmulatedNodes(self._up)

    def check(self) -> None:
        """See `Backend.check`: host, user and inventory must allow an emulated cluster."""
        if reason := emulation_unsupported_reason():
            raise UnfitError(f"an emulated cluster: {reason}")
        running_cluster(self._inventory)

    @contextmanager
    def up(self, state: CleanupLog) -> Iterator[None]:
        """See `Backend.up`: use a running cluster, or start and provision one and take it down at the end."""
        with ExitStack() as stack:
            description = use_running(self._inventory, self._operator.progress)
            if description is None:
                cluster = start_cluster(self._inventory, self._operator.progress)
                stack.callback(cluster.down)
                description = cluster.description
                self._operator.provision(self._inventory)
            self._description = description
            # Only now: the login key is created with the cluster.
            super().check()
            stack.enter_context(inside(description.network.controller.path))
            stack.enter_context(super().up(state))
            yield

    async def calibrate(self) -> Calibration:
        """See `Backend.calibrate`: measures all nodes at once, then every link with a limit or a delay."""
        # Limits may still be lifted, by a campaign on another engine or a playbook that was killed.
        self._refused = len(ask(self._folder, "limit").refused)
        calibrated = await asyncio.to_thread(calibrate_cluster, self._up)
        return Calibration(tuple(calibrated), shortfall_of(calibrated))

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


class EmulatedNodes:
    """Nodes of a running cluster as `controller.nodes.local_nodes.LocalNodes`."""

    def __init__(self, description: Description) -> None:
        """Take the description of the cluster."""
        self._description = description

    @property
    def nodes(self) -> Mapping[str, LocalNode]:
        hierarchy, network = find_hierarchy(), self._description.network
        nodes = {}
        for name, member in self._description.members.items():
            group, end = ControlGroup(hierarchy, member.group), network.endpoint(name)
            nodes[name] = LocalNode(
                end.address,
                end.path,
                group.entrances,
                member.machine.cores,
                member.machine.memory_mb,
                member.files,
                group.account,
            )
        return nodes

    @property
    def controller(self) -> LocalNode:
        end = self._description.network.controller
        return LocalNode(end.address, end.path)

    async def limit(self) -> Mapping[str, float]:
        answer = await asyncio.to_thread(ask, self._folder, "limit")
        if answer.faults:
            raise RunError("; ".join(answer.faults))
        return answer.shares

    async def lift(self) -> None:
        await asyncio.to_thread(ask, self._folder, "lift")

    @property
    def _folder(self) -> Path:
        return Path(self._description.request.folder)


class LinksBackend(LoopbackBackend):
    """Backend whose nodes are processes in network namespaces; see `controller.nodes.backend.Backend`.

    It is tier 1: the nodes' hardware settings in the inventory are not emulated.
    """

    engine_obstacle = "on an emulated cluster only root can run other engines"

    def __init__(self, cluster: Cluster, hosts: Hosts, operator: CommandLineCallbacks) -> None:
        """Prepare the available nodes of a cluster that was made from `hosts`."""
        super().__init__(cluster)
        self._hosts, self._operator = hosts, operator
        self._daemon: subprocess.Popen[bytes] | None = None

    @property
    def claim(self) -> ClusterClaim:
        """See `Backend.claim`: the CPUs of this process; its network is its own."""
        folder = request_of(self._hosts).folder
        return ClusterClaim(f"{in_folder(folder)}, without root,", (folder,), usable_cpus())

    def check(self) -> None:
        """See `Backend.check`: the inventory must describe an emulated cluster."""
        request_of(self._hosts)

    @contextmanager
    def up(self, state: CleanupLog) -> Iterator[None]:
        """See `Backend.up`: start the network, which stops with its daemon."""
        log = state.path.with_suffix(".relay.log")
        request = LinksRequest(self._plan, str(log))
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "controller.emulation.unprivileged"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        ) as daemon:
            try:
                state.started(daemon.pid, "the network of an emulated cluster")
                self._daemon = daemon
                self._request(msgspec.json.encode(request))
                self._operator.notice(NOTICE)
                yield
            finally:
                self._daemon = None
                cast("IO[bytes]", daemon.stdin).close()
                daemon.wait()
                log.unlink(missing_ok=True)

    def members(self, name: str, work: Path) -> Mapping[str, RunNode]:
        """See `Backend.members`; nodes have their folders in `work`."""
        with writing(work):
            return {
                node.id: RunNode(
                    address_of(node), LoopbackTransport(work / node.id, self._command_prefix(node.id)), shared=True
                )
                for node in self._cluster.available
            }

    async def calibrate(self) -> Calibration:
        """See `Backend.calibrate`: measures every link with a limit or a delay."""
        rows = (await asyncio.to_thread(self._request, b"calibrate")).rows
        return Calibration(rows, shortfall_of(rows))

    @cached_property
    def _plan(self) -> NetworkPlan:
        request = request_of(self._hosts)
        return NetworkPlan(new_prefix(), tuple(request.machines), request.links, nics_of(request.machines))

    def _command_prefix(self, node: str) -> list[str]:
        """Return the command prefix that runs a program in the network namespace of a node."""
        there = f"/proc/{self._running.pid}"
        namespace = f"{there}/root{self._plan.endpoint(node).path}"
        return ["nsenter", f"--user={there}/ns/user", "--preserve-credentials", f"--net={namespace}"]

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._daemon is None:
            raise ValueError("the network is not up")
        return self._daemon

    def _request(self, line: bytes) -> LinksReply:
        daemon = self._running
        try:
            requests = cast("IO[bytes]", daemon.stdin)
            requests.write(line + b"\n")
            requests.flush()
            reply = msgspec.json.decode(cast("IO[bytes]", daemon.stdout).readline(), type=LinksReply)
        except (OSError, msgspec.DecodeError):
            raise RunError(f"the process {daemon.pid}, the daemon of the emulated network, has ended") from None
        if reply.error:
            raise (UnfitError if reply.exit_status == UnfitError.exit_status else RunError)(reply.error)
        return reply

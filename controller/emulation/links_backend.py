"""Backend of emulated clusters for users other than root: nodes are processes in network namespaces."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, cast

import msgspec

from controller.emulation.calibration import shortfall_of
from controller.emulation.description import request_of
from controller.emulation.network import NetworkPlan, new_prefix
from controller.emulation.unprivileged import LinksReply, LinksRequest
from controller.host.addresses import address_of
from controller.host.cleanup_log import CleanupLog
from controller.host.durable_files import writing
from controller.nodes.agents import Member
from controller.nodes.backend import Calibration, Operator
from controller.nodes.loopback import LoopbackBackend
from controller.nodes.transport import LoopbackTransport
from inventory.ansible_hosts import Hosts
from inventory.cluster import Cluster
from inventory.errors import RunError, UnfitError

NOTICE = (
    "not root: of the emulated cluster only addresses and links are real; its nodes are processes of this host without "
    "CPU quotas, memory limits, files or SSH servers of their own, and runs say tier 1"
)


class LinksBackend(LoopbackBackend):
    """Backend whose nodes are processes in network namespaces; see `controller.nodes.backend.Backend`.

    It is tier 1: the nodes' hardware settings in the inventory are not emulated.
    """

    def __init__(self, cluster: Cluster, hosts: Hosts, operator: Operator) -> None:
        """Prepare the available nodes of a cluster that was made from `hosts`."""
        super().__init__(cluster)
        self._hosts, self._operator = hosts, operator
        self._daemon: subprocess.Popen[bytes] | None = None

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

    def members(self, name: str, work: Path) -> Mapping[str, Member]:
        """See `Backend.members`; nodes have their folders in `work`."""
        with writing(work):
            return {
                node.id: Member(
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
        return NetworkPlan(new_prefix(), tuple(request.machines), request.links)

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

"""An emulated cluster for a user who is not root: its nodes are processes in real network namespaces, and no more."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, cast

import msgspec

from controller.emulation.calibration import short_of
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
    """Nodes that are processes of this host, each in a network namespace; see `controller.nodes.backend.Backend`.

    It is tier 1: what the inventory says of a node's hardware is not there.
    """

    def __init__(self, cluster: Cluster, hosts: Hosts, operator: Operator) -> None:
        """Use the available nodes of a cluster that was made from `hosts`."""
        super().__init__(cluster)
        self._hosts, self._operator = hosts, operator
        self._keeper: subprocess.Popen[bytes] | None = None

    def check(self) -> None:
        """See `Backend.check`: whether the inventory describes a cluster that can be emulated."""
        request_of(self._hosts)

    @contextmanager
    def up(self, state: CleanupLog) -> Iterator[None]:
        """See `Backend.up`: the network exists as long as the process that keeps it."""
        log = state.path.with_suffix(".relay.log")
        request = LinksRequest(self._plan, str(log))
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "controller.emulation.unprivileged"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        ) as keeper:
            try:
                state.started(keeper.pid, "the network of an emulated cluster")
                self._keeper = keeper
                self._ask(msgspec.json.encode(request))
                self._operator.notice(NOTICE)
                yield
            finally:
                self._keeper = None
                cast("IO[bytes]", keeper.stdin).close()
                keeper.wait()
                log.unlink(missing_ok=True)

    def members(self, name: str, work: Path) -> Mapping[str, Member]:
        """See `Backend.members`; nodes have their folders in `work`."""
        with writing(work):
            return {
                node.id: Member(
                    address_of(node), LoopbackTransport(work / node.id, self._through(node.id)), shared=True
                )
                for node in self._cluster.available
            }

    async def calibrate(self) -> Calibration:
        """See `Backend.calibrate`: every link that is limited or delayed."""
        rows = (await asyncio.to_thread(self._ask, b"calibrate")).rows
        return Calibration(rows, short_of(rows))

    @cached_property
    def _plan(self) -> NetworkPlan:
        request = request_of(self._hosts)
        return NetworkPlan(new_prefix(), tuple(request.machines), request.links)

    def _through(self, node: str) -> list[str]:
        """The command that runs another one in the network namespace of a node."""
        there = f"/proc/{self._running.pid}"
        namespace = f"{there}/root{self._plan.endpoint(node).path}"
        return ["nsenter", f"--user={there}/ns/user", "--preserve-credentials", f"--net={namespace}"]

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._keeper is None:
            raise ValueError("the network is not up")
        return self._keeper

    def _ask(self, line: bytes) -> LinksReply:
        keeper = self._running
        try:
            requests = cast("IO[bytes]", keeper.stdin)
            requests.write(line + b"\n")
            requests.flush()
            answer = msgspec.json.decode(cast("IO[bytes]", keeper.stdout).readline(), type=LinksReply)
        except (OSError, msgspec.DecodeError):
            raise RunError(f"the process {keeper.pid}, which keeps the network, has ended") from None
        if answer.error:
            raise (UnfitError if answer.exit_status == UnfitError.exit_status else RunError)(answer.error)
        return answer

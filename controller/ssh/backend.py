"""SSH backend: all nodes of a campaign are connected, reserved and released together."""

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from controller.host.addresses import address_of
from controller.host.cleanup_log import CleanupLog
from controller.nodes.agents import Member
from controller.nodes.backend import Calibration
from controller.ssh.connection import Connection
from controller.ssh.files import RemoteFiles
from controller.ssh.node_lease import NodeLease
from controller.ssh.settings import SshSettings, settings_of
from controller.ssh.transport import SshTransport
from inventory.ansible_hosts import Host, Hosts
from inventory.cluster import Cluster
from inventory.errors import MillraceError, UnfitError

AT_ONCE = 16
"""Number of connections opened at the same time; a jump host has to accept all of them."""

MOST_THREADS = 128

LEAST_FREE_BYTES = 256 * 1024 * 1024
"""Disk space that a node must have free in addition to the inputs, for traces, snapshots and logs of a run."""


class _NodeAccess:
    """Connection, lease and files of one node."""

    def __init__(
        self, host: Host, settings: SshSettings, threads: ThreadPoolExecutor, campaign: str, owner: str
    ) -> None:
        self.connection = Connection(host, threads, settings)
        self.lease = NodeLease(self.connection, campaign, owner)
        self.files = RemoteFiles(self.lease)

    async def close(self) -> None:
        await self.lease.close()
        await self.connection.close()


class SshBackend:
    """Backend whose nodes are reached over SSH; see `controller.nodes.backend.Backend`."""

    def __init__(self, cluster: Cluster, hosts: Hosts, owner: str) -> None:
        """Prepare the backend.

        Args:
            cluster: made from `hosts`, with addresses.
            hosts: connection settings of the nodes.
            owner: description of the campaign, shown to others who find a node in use.
        """
        self.tier = hosts.tier
        self._addresses = {node.id: address_of(node) for node in cluster.available}
        self._known = {node.id: (node.power, node.meter_lag) for node in cluster.available}
        self._hosts = [hosts.by_name[name] for name in self._addresses]
        self._owner = owner
        self._nodes: dict[str, _NodeAccess] = {}

    @property
    def lock(self) -> str:
        """See `Backend.lock`; nodes on this host share its processors with loopback clusters, and their lock."""
        return "loopback" if self.tier else " ".join(sorted(f"{h.ssh_host}:{h.ssh_port}" for h in self._hosts))

    @property
    def processes(self) -> Sequence[int] | None:
        """See `Backend.processes`: agents are children of SSH servers and monitor their machines themselves."""
        return None

    def check(self) -> None:
        """See `Backend.check`: the SSH configuration."""
        with ThreadPoolExecutor(AT_ONCE) as threads:
            self._settings = dict(zip(self._addresses, threads.map(settings_of, self._hosts), strict=True))

    @contextmanager
    def up(self, state: CleanupLog) -> Iterator[None]:
        """See `Backend.up`; nothing has to be created."""
        self._campaign = state.path.stem
        yield

    async def __aenter__(self) -> Self:
        self._threads = ThreadPoolExecutor(MOST_THREADS, "ssh")
        self._nodes = {
            host.name: _NodeAccess(host, self._settings[host.name], self._threads, self._campaign, self._owner)
            for host in self._hosts
        }
        limit = asyncio.Semaphore(AT_ONCE)

        async def open_one(node: _NodeAccess) -> None:
            async with limit:
                await node.lease.open()

        try:
            await _run_all(open_one(node) for node in self._nodes.values())
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    def members(self, name: str, work: Path) -> Mapping[str, Member]:
        """See `Backend.members`; fetched files are stored in `work`."""
        return {
            node: Member(
                self._addresses[node], SshTransport(access.lease, access.files, name, work / node), *self._known[node]
            )
            for node, access in self._nodes.items()
        }

    async def check_room(self, input_bytes: int) -> None:
        """See `Backend.check_room`."""
        needed = input_bytes + LEAST_FREE_BYTES

        async def check(node: _NodeAccess) -> None:
            free = (await node.lease.request("free"))["free_bytes"]
            if free < needed:
                raise UnfitError(
                    f"node {node.lease.name}: {node.connection.host.work} has {free / 1e6:,.0f} MB free, "
                    f"and a run needs {needed / 1e6:,.0f} MB"
                )

        await _run_all(check(node) for node in self._nodes.values())

    async def calibrate(self) -> Calibration:
        """See `Backend.calibrate`; machines are not emulated."""
        return Calibration()

    async def check_since_calibration(self) -> None:
        """See `Backend.check_since_calibration`."""

    async def _close(self) -> None:
        await asyncio.shield(asyncio.gather(*(node.close() for node in self._nodes.values()), return_exceptions=True))
        self._threads.shutdown(wait=False)


async def _run_all(steps: Iterable[Awaitable[None]]) -> None:
    """Run all steps concurrently, and report every node that failed.

    Raises:
        MillraceError: one or more nodes failed.
    """
    faults = [fault for fault in await asyncio.gather(*steps, return_exceptions=True) if fault is not None]
    for fault in faults:
        if not isinstance(fault, MillraceError):
            raise fault
    if len(faults) > 1:
        raise UnfitError("\n".join(dict.fromkeys(map(str, faults))))
    if faults:
        raise faults[0]

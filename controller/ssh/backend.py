"""All nodes of a campaign over SSH: connected at once, kept for it, and let go together."""

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
"""So many nodes are connected to at the same moment; a jump host in front of them has to take them all."""

MOST_THREADS = 128

LEAST_FREE_BYTES = 256 * 1024 * 1024
"""What a node must have free beside the inputs: for traces, snapshots and logs of a run."""


class _Way:
    """All that reaches one node: its connection, its keeper, its files."""

    def __init__(
        self, host: Host, settings: SshSettings, threads: ThreadPoolExecutor, campaign: str, owner: str
    ) -> None:
        self.connection = Connection(host, threads, settings)
        self.keeping = NodeLease(self.connection, campaign, owner)
        self.files = RemoteFiles(self.keeping)

    async def close(self) -> None:
        await self.keeping.close()
        await self.connection.close()


class SshBackend:
    """Nodes behind sshds; see `controller.nodes.backend.Backend`."""

    def __init__(self, cluster: Cluster, hosts: Hosts, owner: str) -> None:
        """Describe it.

        Args:
            cluster: made from `hosts`, with addresses.
            hosts: says how they are reached.
            owner: the campaign, in words for whoever finds a node in use.
        """
        self.tier = hosts.tier
        self._addresses = {node.id: address_of(node) for node in cluster.available}
        self._known = {node.id: (node.power, node.meter_lag) for node in cluster.available}
        self._hosts = [hosts.by_name[name] for name in self._addresses]
        self._owner = owner
        self._ways: dict[str, _Way] = {}

    @property
    def lock(self) -> str:
        """Nodes on this host share its processors, with those of loopback, too."""
        return "loopback" if self.tier else " ".join(sorted(f"{h.ssh_host}:{h.ssh_port}" for h in self._hosts))

    @property
    def processes(self) -> Sequence[int] | None:
        """See `Backend.processes`: agents are children of SSH servers, and watch their machines themselves."""
        return None

    def check(self) -> None:
        """See `Backend.check`: the SSH configuration."""
        with ThreadPoolExecutor(AT_ONCE) as threads:
            self._settings = dict(zip(self._addresses, threads.map(settings_of, self._hosts), strict=True))

    @contextmanager
    def up(self, state: CleanupLog) -> Iterator[None]:
        """See `Backend.up`; there is nothing to do."""
        self._campaign = state.path.stem
        yield

    async def __aenter__(self) -> Self:
        self._threads = ThreadPoolExecutor(MOST_THREADS, "ssh")
        self._ways = {
            host.name: _Way(host, self._settings[host.name], self._threads, self._campaign, self._owner)
            for host in self._hosts
        }
        some = asyncio.Semaphore(AT_ONCE)

        async def open_one(way: _Way) -> None:
            async with some:
                await way.keeping.open()

        try:
            await _all(open_one(way) for way in self._ways.values())
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    def members(self, name: str, work: Path) -> Mapping[str, Member]:
        """See `Backend.members`; what is fetched comes to `work`."""
        return {
            node: Member(
                self._addresses[node], SshTransport(way.keeping, way.files, name, work / node), *self._known[node]
            )
            for node, way in self._ways.items()
        }

    async def check_room(self, input_bytes: int) -> None:
        """See `Backend.check_room`."""
        needed = input_bytes + LEAST_FREE_BYTES

        async def check(way: _Way) -> None:
            free = (await way.keeping.ask("free"))["free_bytes"]
            if free < needed:
                raise UnfitError(
                    f"node {way.keeping.name}: {way.connection.host.work} has {free / 1e6:,.0f} MB free, "
                    f"and a run needs {needed / 1e6:,.0f} MB"
                )

        await _all(check(way) for way in self._ways.values())

    async def calibrate(self) -> Calibration:
        """See `Backend.calibrate`; machines are what they are."""
        return Calibration()

    async def look_back(self) -> None:
        """See `Backend.look_back`."""

    async def _close(self) -> None:
        await asyncio.shield(asyncio.gather(*(way.close() for way in self._ways.values()), return_exceptions=True))
        self._threads.shutdown(wait=False)


async def _all(steps: Iterable[Awaitable[None]]) -> None:
    """Do all at once; of nodes that failed all are named.

    Raises:
        MillraceError: one failed, or several.
    """
    faults = [fault for fault in await asyncio.gather(*steps, return_exceptions=True) if fault is not None]
    for fault in faults:
        if not isinstance(fault, MillraceError):
            raise fault
    if len(faults) > 1:
        raise UnfitError("\n".join(dict.fromkeys(map(str, faults))))
    if faults:
        raise faults[0]

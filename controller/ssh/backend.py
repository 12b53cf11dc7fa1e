"""SSH backend: all nodes of a campaign are connected, reserved and released together; and the transport to each."""

import asyncio
import ipaddress
import os
import re
import secrets
import shlex
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from paramiko import Channel

from agents.protocol.node_folders import WORK
from controller.host.addresses import address_of
from controller.host.cluster_lock import ClusterClaim, InUseError
from controller.host.condition import run_to_end
from controller.host.ownership import CleanupLog
from controller.nodes.agents import RunNode
from controller.nodes.backend import Calibration
from controller.nodes.local_nodes import LocalNodes
from controller.nodes.transport import STDERR_LOG, OnProgress, Remote, ignore_progress
from controller.ssh.connection import Connection
from controller.ssh.files import RemoteFiles
from controller.ssh.node_lease import NodeLease
from controller.ssh.program import RemoteProgram, open_command
from controller.ssh.settings import SshSettings, ssh_settings
from inventory.ansible_hosts import ClosedNetwork, Hosts, InventoryHost
from inventory.cluster import Cluster
from inventory.errors import MillraceError, UnfitError
from inventory.foreign import printable

AGENT = "MILLRACE_AGENT"
"""Environment variable that identifies the processes of one agent on its node."""

AT_ONCE = 16
"""Number of connections opened at the same time; a jump host has to accept all of them."""

MOST_THREADS = 128

LEAST_JAVA = 17
"""Oldest release of Java for which our classes are compiled."""

JAVA, JAVA_S = "java", 60.0
"""The program, and the timeout of its answer."""

SSH_PORT = 22

LEAST_FREE_BYTES = 256 * 1024 * 1024
"""Disk space that a node must have free in addition to the inputs, for traces, snapshots and logs of a run."""


class SshTransport:
    """Transport to the folder of one attempt on a node."""

    def __init__(self, lease: NodeLease, files: RemoteFiles, name: str, staging: Path) -> None:
        """Prepare the transport; the folder is created with the first program or file.

        Args:
            lease: lease of the node.
            files: files of the node.
            name: name of the folder, below the campaign's.
            staging: folder on this host for fetched files.
        """
        self.folder = f"{lease.folder}/{name}"
        self._lease, self._files, self._name, self._staging = lease, files, name, staging

    async def start(self, module: str) -> Remote:
        """See `Transport.start`; standard error goes to the file `STDERR_LOG`."""
        await self._lease.open()
        host, mark = self._lease.connection.host, secrets.token_hex(8)
        environment = [f"{WORK}={host.work}", f"{AGENT}={mark}"]
        python = [f"{host.home}/venv/bin/python", "-P", "-m", module]
        # The shell waits and turns a signal into an exit status, because paramiko ignores sshd's signal message.
        script = (
            f"umask 077; mkdir -p {shlex.quote(self.folder)} && cd {shlex.quote(self.folder)} && "
            f"{shlex.join(['env', *environment, *python])} 2>> {STDERR_LOG}; exit $?"
        )
        channel = await open_command(self._lease.connection, shlex.join(["exec", "sh", "-c", script]))
        return _Agent(channel, self._lease, f"{AGENT}={mark}")

    async def put(self, source: Path, target: str, on_progress: OnProgress = ignore_progress) -> None:
        await self._files.put(source, f"{self._name}/{target}", on_progress)

    async def replicate(self, source: str, target: Path) -> None:
        await self._files.replicate(f"{self._name}/{source}", target)

    async def fetch(self, source: str, pattern: str) -> Path:
        """See `Transport.fetch`; returns a folder on this host with copies."""
        target = self._staging / source
        await self._files.fetch(f"{self._name}/{source}", pattern, target)
        return target

    async def remove(self) -> None:
        """See `Transport.remove`; if it fails, the folder is removed with the campaign's."""
        if self._lease.is_open:
            with suppress(MillraceError):
                await self._lease.request("remove", folder=self._name)


class _Agent(RemoteProgram):
    """An agent; killing it also kills all processes that it has started."""

    def __init__(self, channel: Channel, lease: NodeLease, mark: str) -> None:
        super().__init__(channel)
        self._lease, self._mark, self._killed = lease, mark, False

    def kill(self) -> None:
        # The agent sees the end of its input. If it ignores that, the lease daemon ends it and its children, which it
        # finds by their mark; an unreachable daemon does so once it is reconnected or gives up the lease. Children may
        # also be left of an agent that was killed.
        self._killed = True
        super().kill()

    async def wait(self) -> int:
        status = await super().wait()
        if self._killed and self._lease.is_open:
            self._killed = False
            with suppress(MillraceError):
                await self._lease.request("end", mark=self._mark)
        return status


class _NodeAccess:
    """Connection, lease and files of one node."""

    def __init__(
        self, host: InventoryHost, settings: SshSettings, threads: ThreadPoolExecutor, campaign: str, owner: str
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
        self._inventory = hosts
        self._closed = hosts.closed_network
        self._nodes: dict[str, _NodeAccess] = {}

    @property
    def claim(self) -> ClusterClaim:
        """See `Backend.claim`: the machines; those that are addresses of this host use its CPUs, too."""
        machines = tuple(f"{host.ssh_host}:{host.ssh_port or SSH_PORT}" for host in self._hosts)
        cpus = tuple(range(os.cpu_count() or 1)) if self.tier else ()
        return ClusterClaim(f"the cluster of {self._inventory.path}", machines, cpus)

    @property
    def engine_obstacle(self) -> str:
        """See `Backend.engine_obstacle`: the inventory must say that nobody else reaches the nodes' network."""
        closed = self._closed
        if closed is None:
            return (
                "engines authenticate nobody, so that whoever reaches a port of theirs has the rights of the user; if "
                "nobody else reaches the network of the nodes, its address in the inventory says so "
                "(millrace_closed_network: 10.1.0.0/24)"
            )
        outside = [node for node, address in self._addresses.items() if ipaddress.ip_address(address) not in closed]
        if outside:
            node = outside[0]
            return f"{self._addresses[node]}, the address of {node}, is not in millrace_closed_network {closed}"
        return "" if self.engine_address else f"this host has no address in millrace_closed_network {closed}"

    @property
    def engine_address(self) -> str:
        """See `Backend.engine_address`: the first one in the closed network."""
        own = [each.address for addresses in psutil.net_if_addrs().values() for each in addresses]
        return next((each for each in own if self._closed and _is_in(each, self._closed)), "")

    async def check_engine(self) -> None:
        """See `Backend.check_engine`: a Java of release 17 or later."""
        await _run_all(_check_java(node.connection) for node in self._nodes.values())

    @property
    def local_nodes(self) -> LocalNodes | None:
        """See `Backend.local_nodes`: machines have none."""
        return None

    @property
    def processes(self) -> Sequence[int] | None:
        """See `Backend.processes`: agents are children of SSH servers and monitor their machines themselves."""
        return None

    def check(self) -> None:
        """See `Backend.check`: the SSH configuration."""
        with ThreadPoolExecutor(AT_ONCE) as threads:
            self._settings = dict(zip(self._addresses, threads.map(ssh_settings, self._hosts), strict=True))

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

    def members(self, name: str, work: Path) -> Mapping[str, RunNode]:
        """See `Backend.members`; fetched files are stored in `work`."""
        return {
            node: RunNode(
                self._addresses[node], SshTransport(access.lease, access.files, name, work / node), *self._known[node]
            )
            for node, access in self._nodes.items()
        }

    async def check_room(self, input_bytes: int) -> None:
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
        await run_to_end(asyncio.gather(*(node.close() for node in self._nodes.values()), return_exceptions=True))
        self._threads.shutdown(wait=False)


def _is_in(address: str, network: ClosedNetwork) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]) in network
    except ValueError:  # of a link, not of the Internet Protocol
        return False


async def _check_java(connection: Connection) -> None:
    """Check that a node has Java.

    Raises:
        UnfitError: it has none, or an old one.
    """
    program = RemoteProgram(
        await open_command(connection, shlex.join(["exec", "sh", "-c", f"{{ {JAVA} -version; }} 2>&1"]))
    )
    text = ""
    try:
        async with asyncio.timeout(JAVA_S):
            while line := await program.read_line():
                text += line.decode(errors="replace")
    except TimeoutError:
        text += "(no answer)"
    finally:
        program.kill()
    version = re.search(r'version "(\d+)', text)
    if version is None or int(version[1]) < LEAST_JAVA:
        first = printable(text.partition("\n")[0])
        raise UnfitError(
            f"node {connection.host.name}: engines need Java {LEAST_JAVA} or later, java -version says: {first}; "
            f"Debian, Ubuntu: apt install openjdk-{LEAST_JAVA}-jre-headless"
        )


async def _run_all(steps: Iterable[Awaitable[None]]) -> None:
    """Run all steps concurrently, and report every node that failed.

    Raises:
        InUseError: other campaigns use all nodes that failed.
        MillraceError: one or more nodes failed.
    """
    faults = [fault for fault in await asyncio.gather(*steps, return_exceptions=True) if fault is not None]
    for fault in faults:
        if not isinstance(fault, MillraceError):
            raise fault
    if len(faults) > 1:
        kind = InUseError if all(isinstance(fault, InUseError) for fault in faults) else UnfitError
        raise kind("\n".join(dict.fromkeys(map(str, faults))))
    if faults:
        raise faults[0]

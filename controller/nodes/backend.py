"""Interface of backends: how a campaign reaches and uses the nodes of its cluster; and the loopback backend."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from analysis.records.conditions import Calibrated
from controller.host.addresses import address_of, check_addresses
from controller.host.cluster_lock import ClusterClaim, usable_cpus
from controller.host.disk import writing
from controller.host.ownership import CleanupLog
from controller.nodes.agents import RunNode
from controller.nodes.local_nodes import LocalNodes
from controller.nodes.transport import LoopbackTransport
from inventory.ansible_hosts import Hosts
from inventory.cluster import Cluster


class Calibration(NamedTuple):
    """Measured properties of nodes and links.

    Attributes:
        rows: requested and measured values.
        shortfall: message that names values too small for runs to be valid on this cluster; empty if there are none.
    """

    rows: Sequence[Calibrated] = ()
    shortfall: str = ""


class CommandLineCallbacks(NamedTuple):
    """Callbacks of backends to the command line.

    Attributes:
        provision: provisions the hosts of an inventory.
        progress: shows progress.
        notice: shows a notice to the operator.
    """

    provision: Callable[[Hosts], None]
    progress: Callable[[str], None]
    notice: Callable[[str], None]


class Backend(Protocol):
    """Access to the nodes of a cluster.

    An asynchronous context manager; inside it, the nodes are reserved for the campaign.
    """

    @property
    def tier(self) -> int:
        """Kind of nodes: 0 machines, 1 addresses of this host, 2 namespaces of this host."""
        ...

    @property
    def claim(self) -> ClusterClaim:
        """Resources that a campaign on these nodes uses alone; valid after `check`."""
        ...

    @property
    def processes(self) -> Sequence[int] | None:
        """Ancestors on this host of all processes of the campaign; None if some run on other machines.

        Only valid inside `up`.
        """
        ...

    @property
    def engine_obstacle(self) -> str:
        """Reason why processes of another engine cannot run on the nodes; empty if they can."""
        ...

    @property
    def engine_address(self) -> str:
        """Address of this host on which nodes reach an engine's main process; empty if all nodes are on this host."""
        ...

    @property
    def local_nodes(self) -> LocalNodes | None:
        """The nodes, if they are made of namespaces of this host that other processes can join; else None.

        Only valid inside `up`.
        """
        ...

    def check(self) -> None:
        """Check everything that can be checked without reaching a node; called before any other method.

        Raises:
            MillraceError: the cluster cannot be used from this host.
        """
        ...

    def up(self, state: CleanupLog) -> AbstractContextManager[None]:
        """Create the nodes for the duration of the block, if the cluster consists of nodes on this host.

        Args:
            state: records everything created on this host.

        Raises:
            MillraceError: they cannot be created.
        """
        ...

    async def __aenter__(self) -> Self:
        """Reserve all nodes and remove what earlier campaigns left there.

        Raises:
            MillraceError: nodes that cannot be reached or used, with the reason for each.
        """
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def members(self, name: str, work: Path) -> Mapping[str, RunNode]:
        """Return all available nodes by id, each with a new folder for one attempt.

        Args:
            name: name of the attempt.
            work: folder on this host for files of the attempt.
        """
        ...

    async def check_room(self, input_bytes: int) -> None:
        """Check that every node has disk space for inputs of this size and for the files of a run.

        Raises:
            MillraceError: a node has too little space or cannot be reached.
        """
        ...

    async def check_engine(self) -> None:
        """Check that every node has what processes of another engine need.

        Raises:
            MillraceError: nodes that do not, with the reason for each.
        """
        ...

    async def calibrate(self) -> Calibration:
        """Measure nodes and links just before a run; empty if the backend does not emulate them.

        Raises:
            MillraceError: the measurement failed.
        """
        ...

    async def check_since_calibration(self) -> None:
        """Check that nothing has happened since `calibrate` that invalidates the measurements of the run.

        Raises:
            RunError: something has; the message names it.
        """
        ...


class LoopbackBackend:
    """Backend whose nodes are processes of this host, each with one of its addresses."""

    tier = 1

    engine_obstacle = engine_address = ""

    local_nodes: LocalNodes | None = None

    def __init__(self, cluster: Cluster) -> None:
        """Prepare the available nodes of a cluster."""
        self._cluster = cluster

    @property
    def claim(self) -> ClusterClaim:
        """See `Backend.claim`: the addresses, and the CPUs of this process, which its children inherit."""
        addresses = tuple(address_of(node) for node in self._cluster.available)
        return ClusterClaim(f"the loopback cluster {addresses[0]} to {addresses[-1]}", addresses, usable_cpus())

    @property
    def processes(self) -> Sequence[int]:
        """See `Backend.processes`: agents are children of this process."""
        return [os.getpid()]

    def check(self) -> None:
        """See `Backend.check`: this host must have all addresses."""
        check_addresses(self._cluster)

    def up(self, state: CleanupLog) -> AbstractContextManager[None]:
        """See `Backend.up`; nothing has to be created."""
        return nullcontext()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def members(self, name: str, work: Path) -> Mapping[str, RunNode]:
        """See `Backend.members`; nodes have their folders in `work`."""
        # All nodes share this host's meter, so the lag measured at any node applies to all.
        lag = next((node.meter_lag for node in self._cluster.available if node.meter_lag), None)
        with writing(work):
            return {
                node.id: RunNode(address_of(node), LoopbackTransport(work / node.id), meter_lag=lag)
                for node in self._cluster.available
            }

    async def check_room(self, input_bytes: int) -> None:
        """See `Backend.check_room`; nothing to check, because nodes only link to the prepared inputs."""

    async def check_engine(self) -> None:
        """See `Backend.check_engine`; nodes use this host's Java."""

    async def calibrate(self) -> Calibration:
        """See `Backend.calibrate`; loopback nodes are not emulated."""
        return Calibration()

    async def check_since_calibration(self) -> None:
        """See `Backend.check_since_calibration`."""

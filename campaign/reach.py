"""How a campaign reaches the nodes of its cluster: addresses of this host, or over SSH. It is decided here only."""

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from campaign.addresses import address_of, check_addresses
from campaign.cluster import Member
from campaign.disk import writing
from campaign.emulation.calibrated import Calibrated
from campaign.state import RunState
from campaign.transport import LoopbackTransport
from inventory.ansible_hosts import Hosts
from inventory.cluster import Cluster

EMULATED = 2
"""Tier of nodes that are namespaces of this host."""


class Calibration(NamedTuple):
    """What nodes and links turned out to be when they were measured.

    Attributes:
        rows: what was asked for, and what was got.
        shortfall: what was got so little of that a run would tell nothing of this cluster, in words; empty: nothing.
    """

    rows: Sequence[Calibrated] = ()
    shortfall: str = ""


class Reach(Protocol):
    """The nodes of a cluster, as the campaign that has them reaches them.

    An asynchronous context manager around all runs.
    """

    @property
    def tier(self) -> int:
        """What the nodes are: 0 machines, 1 addresses of this host, 2 namespaces of this host."""
        ...

    @property
    def lock(self) -> str:
        """The name of what only one campaign can have at a time."""
        ...

    def check(self) -> None:
        """Find out what can be known without touching a node.

        Raises:
            MillraceError: the cluster cannot be used from here.
        """
        ...

    def up(self, state: RunState) -> AbstractContextManager[None]:
        """Have nodes that can be reached as long as the block lasts.

        Args:
            state: is told of whatever is made on this host for that.

        Raises:
            MillraceError: some cannot be reached, and why.
        """
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def members(self, name: str, work: Path) -> Mapping[str, Member]:
        """All available nodes, each with a folder of its own for one attempt.

        Args:
            name: of the attempt.
            work: a folder of this host, for what belongs to the attempt here.
        """
        ...

    async def check_room(self, input_bytes: int) -> None:
        """Find out whether every node has room for inputs of this size and for what a run writes.

        Raises:
            MillraceError: one has not, or cannot be reached.
        """
        ...

    async def calibrate(self) -> Calibration:
        """Measure what nodes and links are, just before a run; nothing where they are what they are.

        Raises:
            MillraceError: it cannot be measured.
        """
        ...

    async def look_back(self) -> None:
        """Find out whether something happened since `calibrate` that makes what was measured since worthless.

        Raises:
            RunError: it did, and what.
        """
        ...


def reach_of(cluster: Cluster, hosts: Hosts | None, owner: str) -> Reach:
    """How the nodes of `cluster` are reached: over SSH when they are `hosts` of an Ansible inventory, emulated or not.

    Args:
        cluster: with addresses.
        hosts: the inventory that it was made from, if it was.
        owner: the campaign, in words for others.
    """
    if hosts is None:
        return LoopbackReach(cluster)
    # They take a second to load, which a cluster on this host has no use for.
    if hosts.tier == EMULATED and os.geteuid() != 0:
        from campaign.emulation.links_reach import LinksReach

        return LinksReach(cluster, hosts)
    from campaign.emulation.reach import EmulatedReach
    from campaign.ssh.reach import SshReach

    return (EmulatedReach if hosts.tier == EMULATED else SshReach)(cluster, hosts, owner)


class LoopbackReach:
    """Nodes that are processes of this host, each with an address in it."""

    tier = 1

    lock = "loopback"
    """All loopback clusters of a host share its processors."""

    def __init__(self, cluster: Cluster) -> None:
        """Use the available nodes of a cluster."""
        self._cluster = cluster

    def check(self) -> None:
        """See `Reach.check`: addresses that this host does not have."""
        check_addresses(self._cluster)

    def up(self, state: RunState) -> AbstractContextManager[None]:
        """See `Reach.up`; there is nothing to do."""
        return nullcontext()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def members(self, name: str, work: Path) -> Mapping[str, Member]:
        """See `Reach.members`; nodes have their folders in `work`."""
        with writing(work):
            return {
                node.id: Member(address_of(node), LoopbackTransport(work / node.id), meter_lag=node.meter_lag)
                for node in self._cluster.available
            }

    async def check_room(self, input_bytes: int) -> None:
        """See `Reach.check_room`; here inputs have been prepared already, and nodes only link to them."""

    async def calibrate(self) -> Calibration:
        """See `Reach.calibrate`; a loopback node is no machine that could be measured."""
        return Calibration()

    async def look_back(self) -> None:
        """See `Reach.look_back`."""

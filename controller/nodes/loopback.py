"""Nodes that are processes of this host, as a campaign reaches them: by addresses that this host has."""

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Self

from controller.host.addresses import address_of, check_addresses
from controller.host.cleanup_log import CleanupLog
from controller.host.durable_files import writing
from controller.nodes.agents import Member
from controller.nodes.backend import Calibration
from controller.nodes.transport import LoopbackTransport
from inventory.cluster import Cluster


class LoopbackBackend:
    """Nodes that are processes of this host, each with an address in it."""

    tier = 1

    lock = "loopback"
    """All loopback clusters of a host share its processors."""

    def __init__(self, cluster: Cluster) -> None:
        """Use the available nodes of a cluster."""
        self._cluster = cluster

    @property
    def processes(self) -> Sequence[int]:
        """See `Backend.processes`: agents are children of this process."""
        return [os.getpid()]

    def check(self) -> None:
        """See `Backend.check`: addresses that this host does not have."""
        check_addresses(self._cluster)

    def up(self, state: CleanupLog) -> AbstractContextManager[None]:
        """See `Backend.up`; there is nothing to do."""
        return nullcontext()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def members(self, name: str, work: Path) -> Mapping[str, Member]:
        """See `Backend.members`; nodes have their folders in `work`."""
        # Whichever node was calibrated, its meter is this host's.
        lag = next((node.meter_lag for node in self._cluster.available if node.meter_lag), None)
        with writing(work):
            return {
                node.id: Member(address_of(node), LoopbackTransport(work / node.id), meter_lag=lag)
                for node in self._cluster.available
            }

    async def check_room(self, input_bytes: int) -> None:
        """See `Backend.check_room`; here inputs have been prepared already, and nodes only link to them."""

    async def calibrate(self) -> Calibration:
        """See `Backend.calibrate`; a loopback node is no machine that could be measured."""
        return Calibration()

    async def look_back(self) -> None:
        """See `Backend.look_back`."""

"""Loopback backend: nodes are processes of this host, each with one of its addresses."""

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
    """Backend whose nodes are processes of this host, each with one of its addresses."""

    tier = 1

    lock = "loopback"
    """All loopback clusters of a host share its processors."""

    def __init__(self, cluster: Cluster) -> None:
        """Prepare the available nodes of a cluster."""
        self._cluster = cluster

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

    def members(self, name: str, work: Path) -> Mapping[str, Member]:
        """See `Backend.members`; nodes have their folders in `work`."""
        # All nodes share this host's meter, so the lag measured at any node applies to all.
        lag = next((node.meter_lag for node in self._cluster.available if node.meter_lag), None)
        with writing(work):
            return {
                node.id: Member(address_of(node), LoopbackTransport(work / node.id), meter_lag=lag)
                for node in self._cluster.available
            }

    async def check_room(self, input_bytes: int) -> None:
        """See `Backend.check_room`; nothing to check, because nodes only link to the prepared inputs."""

    async def calibrate(self) -> Calibration:
        """See `Backend.calibrate`; loopback nodes are not emulated."""
        return Calibration()

    async def check_since_calibration(self) -> None:
        """See `Backend.check_since_calibration`."""

"""Replicas of nodes' files in the controller's folder of a run."""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path

from agents.protocol.node_folders import below
from controller.nodes.transport import Transport


class FolderReplicas:
    """`ReplicaStore` in a folder; the name of a replica is its path there."""

    def __init__(self, folder: Path, transports: Mapping[str, Transport]) -> None:
        self._folder, self._transports = folder, transports

    def path(self, name: str) -> Path:
        """Return the path of a replica.

        Raises:
            RunError: it is not below the folder.
        """
        return below(self._folder, name)

    async def replicate(self, node: str, file: str, name: str) -> None:
        """See `ReplicaStore.replicate`."""
        await self._transports[node].replicate(file, self.path(name))

    async def restore(self, name: str, node: str, file: str) -> None:
        """See `ReplicaStore.restore`."""
        await self._transports[node].put(self.path(name), file)

    async def drop(self, folder: str) -> None:
        """See `ReplicaStore.drop`."""
        await asyncio.to_thread(shutil.rmtree, self.path(folder), ignore_errors=True)

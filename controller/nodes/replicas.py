"""Second copies of nodes' files, in the controller's folder of a run."""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path

from agents.protocol.node_folders import below
from controller.nodes.transport import Transport


class FolderReplicas:
    """`Copies` in a folder; a copy's name is its path there."""

    def __init__(self, folder: Path, transports: Mapping[str, Transport]) -> None:
        self._folder, self._transports = folder, transports

    def path(self, name: str) -> Path:
        """Where a copy is.

        Raises:
            RunError: not below the folder.
        """
        return below(self._folder, name)

    async def keep(self, node: str, file: str, name: str) -> None:
        """See `Copies.keep`."""
        await self._transports[node].keep(file, self.path(name))

    async def put(self, name: str, node: str, file: str) -> None:
        """See `Copies.put`."""
        await self._transports[node].put(self.path(name), file)

    async def drop(self, folder: str) -> None:
        """See `Copies.drop`."""
        await asyncio.to_thread(shutil.rmtree, self.path(folder), ignore_errors=True)

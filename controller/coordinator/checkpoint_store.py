"""Second copies: the state behind the last complete checkpoint, and every settled part of the answer.

A snapshot counts when the controller holds a synced copy of it, so that a lost node loses nothing. A checkpoint is
complete when all executors' snapshots count. Only then is the one before it dropped.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from agents.protocol import Drained, Place, Stored
from agents.protocol.node_folders import file_name
from controller.coordinator.interfaces import Copies
from controller.host.condition import all_of
from inventory.errors import RunError

CHECKPOINTS, ANSWERS = "checkpoints", "answers"


class Part(NamedTuple):
    """A file of answer rows: its table, and the name of its copy."""

    table: str
    name: str


class CheckpointStore:
    """What has been stored in the run so far.

    Attributes:
        complete: number of the last complete checkpoint; 0: none.
        positions: records that spout executors had emitted at that checkpoint; none at first.
        parts: the settled part of the answer.
    """

    def __init__(self, copies: Copies) -> None:
        """Begin empty."""
        self._copies = copies
        self.complete = 0
        self.positions: Mapping[str, int] = {}
        self.parts: list[Part] = []
        self._files: dict[str, str] = {}
        self._holders: dict[str, set[str]] = {}

    async def store(self, barrier: int, stored: Mapping[str, tuple[str, Stored]]) -> int:
        """Copy what all executors have stored at `barrier`, which completes the checkpoint; return bytes of state.

        Args:
            barrier: its number.
            stored: executor -> its node and what it said.

        Raises:
            RunError: a node cannot be reached; the checkpoint is not complete, and its copies are dropped.
            OSError: a copy cannot be written.
        """
        parts: list[Part] = []

        async def keep(executor: str, node: str, said: Stored) -> None:
            await self._copies.keep(node, said.file, f"{CHECKPOINTS}/{barrier}/{file_name(executor)}")
            for part, file in _parts(f"{ANSWERS}/{barrier}/{file_name(executor)}", said.answers):
                await self._copies.keep(node, file, part.name)
                parts.append(part)

        try:
            await all_of(keep(executor, node, said) for executor, (node, said) in sorted(stored.items()))
        except RunError:
            await self.discard(barrier)
            raise
        previous, self.complete = self.complete, barrier
        self.positions = {name: said.position for name, (_, said) in stored.items() if said.position is not None}
        self.parts += sorted(parts)
        self._files = {executor: said.file for executor, (_, said) in stored.items()}
        self._holders = {executor: {node} for executor, (node, _) in stored.items()}
        if previous:
            await self._copies.drop(f"{CHECKPOINTS}/{previous}")
        return sum(said.nbytes for _, said in stored.values())

    async def discard(self, barrier: int) -> None:
        """Drop what was copied of a checkpoint that will not be complete."""
        for kind in (CHECKPOINTS, ANSWERS):
            await self._copies.drop(f"{kind}/{barrier}")

    def forget(self, node: str) -> None:
        """Do not rely any more on what `node` has on its disk."""
        for holders in self._holders.values():
            holders.discard(node)

    async def spread(self, places: Mapping[str, Place]) -> None:
        """Put every executor's state of the last complete checkpoint on the node where it is to begin.

        Raises:
            RunError: a node cannot be reached.
        """

        async def put(executor: str, node: str) -> None:
            await self._copies.put(f"{CHECKPOINTS}/{self.complete}/{file_name(executor)}", node, self._files[executor])
            self._holders[executor].add(node)

        await all_of(
            put(executor, place.node)
            for executor, place in sorted(places.items())
            if executor in self._files and place.node not in self._holders[executor]
        )

    async def keep_last(self, epoch: int, drained: Mapping[Place, Drained]) -> list[Part]:
        """Copy what workers gave for the rest of the answer; return all parts of the answer, settled ones first.

        Raises:
            RunError: a node cannot be reached.
            OSError: a copy cannot be written.
        """
        last: list[Part] = []

        async def keep(place: Place, said: Drained) -> None:
            for part, file in _parts(f"{ANSWERS}/last-{epoch}/{place.node}-{place.slot}", said.answers):
                await self._copies.keep(place.node, file, part.name)
                last.append(part)

        await all_of(keep(place, said) for place, said in drained.items())
        return [*self.parts, *sorted(last)]


def _parts(name: str, answers: Mapping[str, tuple[str, ...]]) -> Iterable[tuple[Part, str]]:
    for table, files in sorted(answers.items()):
        for number, file in enumerate(files):
            yield Part(table, f"{name}-{table}-{number}"), file

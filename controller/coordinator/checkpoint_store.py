"""Checkpoint store: replicas of the last complete checkpoint and of every settled part of the answer.

A snapshot counts once the controller holds a synced copy, so that losing a node loses no state. A checkpoint is
complete when the snapshots of all executors count. The previous checkpoint is dropped only then.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from agents.protocol import Division, Drained, RunSpec, Slot, Stored, snapshot_sources
from agents.protocol.node_folders import file_name
from controller.coordinator.interfaces import ReplicaStore
from controller.host.condition import run_together
from inventory.errors import RunError
from workloads.key_groups import owner_runs, owners_from_runs, rebalanced

CHECKPOINTS, ANSWERS = "checkpoints", "answers"


class Part(NamedTuple):
    """A file of answer rows: its table and the name of its replica."""

    table: str
    name: str


class CheckpointStore:
    """Checkpoints and answer parts of one run.

    Attributes:
        complete: number of the last complete checkpoint; 0: none.
        positions: spout executor -> records emitted at that checkpoint; initially empty.
        divisions: division of each component's state in that checkpoint; initially empty.
        parts: settled parts of the answer.
    """

    def __init__(self, replicas: ReplicaStore) -> None:
        """Start empty."""
        self._replicas = replicas
        self.complete = 0
        self.positions: Mapping[str, int] = {}
        self.divisions: Mapping[str, Division] = {}
        self.parts: list[Part] = []
        self._files: dict[str, str] = {}
        self._holders: dict[str, set[str]] = {}

    async def store(
        self, barrier: int, stored: Mapping[str, tuple[str, Stored]], divisions: Mapping[str, Division]
    ) -> int:
        """Copy the snapshots of all executors at `barrier`, which completes the checkpoint; return bytes of state.

        Args:
            barrier: number of the checkpoint.
            stored: executor -> (node, report).
            divisions: division of each component's state at the barrier.

        Raises:
            RunError: a node cannot be reached; the checkpoint stays incomplete and its copies are dropped.
            OSError: a copy cannot be written.
        """
        parts: list[Part] = []

        async def copy(executor: str, node: str, report: Stored) -> None:
            await self._replicas.replicate(node, report.file, f"{CHECKPOINTS}/{barrier}/{file_name(executor)}")
            for part, file in _parts(f"{ANSWERS}/{barrier}/{file_name(executor)}", report.answers):
                await self._replicas.replicate(node, file, part.name)
                parts.append(part)

        try:
            await run_together(copy(executor, node, report) for executor, (node, report) in sorted(stored.items()))
        except RunError:
            await self.discard(barrier)
            raise
        previous, self.complete = self.complete, barrier
        self.positions = {name: report.position for name, (_, report) in stored.items() if report.position is not None}
        self.divisions = divisions
        self.parts += sorted(parts)
        self._files = {executor: report.file for executor, (_, report) in stored.items()}
        self._holders = {executor: {node} for executor, (node, _) in stored.items()}
        if previous:
            await self._replicas.drop(f"{CHECKPOINTS}/{previous}")
        return sum(report.nbytes for _, report in stored.values())

    async def discard(self, barrier: int) -> None:
        """Drop the copies of a checkpoint that will not be completed."""
        for kind in (CHECKPOINTS, ANSWERS):
            await self._replicas.drop(f"{kind}/{barrier}")

    def forget(self, node: str) -> None:
        """Stop relying on snapshots on the disk of `node`."""
        for holders in self._holders.values():
            holders.discard(node)

    def restoring(self, spec: RunSpec) -> RunSpec:
        """Return `spec` for an epoch that restores the last complete checkpoint, if there is one.

        Key groups have the owners that they had in the checkpoint, except for the fewest that have to change theirs
        because `spec` has another number of executors.
        """
        owners = {
            component: owner_runs(rebalanced(owners_from_runs(before.owners), spec.divisions[component].parallelism))
            for component, before in self.divisions.items()
            if before.owners
        }
        spec = replace(spec, restore=self.complete, owners={**spec.owners, **owners}, numbers=())
        now = spec.divisions
        return replace(spec, stored={name: before for name, before in self.divisions.items() if before != now[name]})

    async def distribute(self, places: Mapping[str, Slot], stored: Mapping[str, Division]) -> None:
        """Copy the state of the last complete checkpoint to the nodes where executors will start with it.

        Args:
            places: executors that will start, and where.
            stored: as in `RunSpec`.

        Raises:
            RunError: a node cannot be reached.
        """

        async def put(executor: str, node: str) -> None:
            await self._replicas.restore(
                f"{CHECKPOINTS}/{self.complete}/{file_name(executor)}", node, self._files[executor]
            )
            self._holders[executor].add(node)

        wanted = {(source, place.node) for name, place in places.items() for source in snapshot_sources(name, stored)}
        await run_together(
            put(executor, node)
            for executor, node in sorted(wanted)
            if executor in self._files and node not in self._holders[executor]
        )

    def emitted_since(self, reached: Mapping[str, int]) -> int:
        """Return how many records sources have emitted since the last complete checkpoint, by their positions."""
        return sum(at - self.positions.get(name, 0) for name, at in reached.items())

    async def copy_rest(self, epoch: int, drained: Mapping[Slot, Drained]) -> list[Part]:
        """Copy the remaining answer files of the workers; return all parts of the answer, settled ones first.

        Raises:
            RunError: a node cannot be reached.
            OSError: a copy cannot be written.
        """
        last: list[Part] = []

        async def copy(place: Slot, report: Drained) -> None:
            for part, file in _parts(f"{ANSWERS}/last-{epoch}/{place.node}-{place.index}", report.answers):
                await self._replicas.replicate(place.node, file, part.name)
                last.append(part)

        await run_together(copy(place, report) for place, report in drained.items())
        return [*self.parts, *sorted(last)]


def _parts(name: str, answers: Mapping[str, tuple[str, ...]]) -> Iterable[tuple[Part, str]]:
    for table, files in sorted(answers.items()):
        for number, file in enumerate(files):
            yield Part(table, f"{name}-{table}-{number}"), file

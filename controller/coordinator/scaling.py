"""Scaling of a run: by a restart from a checkpoint, or live, at a barrier that the rest of the topology passes.

Behind the barrier of a live scaling all executors of the component are new ones with new numbers, to which the old ones
hand over their state (`agents.worker.task_graph.redistribution`); what can be is copied ahead of it.
"""

from collections.abc import Callable, Iterable
from itertools import count

from msgspec.structs import replace

from agents.protocol import ExecutorSpec, MoveToPlace, RunSpec
from controller.coordinator.barrier import AbandonedError, copy_ahead, log_moves, pause_of, prepare_slots, run_barrier
from controller.coordinator.epoch_workers import CheckpointSnapshots, EpochWorkers, executor_name, sources_in
from controller.coordinator.event_log import EventLog
from controller.coordinator.interfaces import Environment, Scaling
from controller.coordinator.reports import ReportedWork
from inventory.times import NS
from workloads.key_groups import owner_runs, owners_from_runs, rebalanced
from workloads.topology import Executor


class HaltedError(Exception):
    """The sources have halted behind a complete checkpoint, from which the topology starts again with changes.

    Attributes:
        moves: executors that change their slots.
        fresh: whether all workers are new processes.
        snapshots: the snapshots of the checkpoint.
        halted_s: when the halt of the sources was requested, on the event loop's clock.
        revision: number of the revision.
        scaling: new numbers of executors.
    """

    def __init__(
        self,
        moves: tuple[MoveToPlace, ...],
        fresh: bool,
        snapshots: CheckpointSnapshots,
        halted_s: float,
        revision: int | None,
        scaling: Scaling,
    ) -> None:
        super().__init__()
        self.moves, self.fresh, self.snapshots = moves, fresh, snapshots
        self.halted_s, self.revision, self.scaling = halted_s, revision, scaling

    @property
    def is_finished_by_recovery(self) -> bool:
        """Return whether it counts as done if a recovery starts the topology again: a scaling of the timeline."""
        return bool(self.scaling.parallelism) and self.revision is None

    def apply(self, epoch_workers: EpochWorkers, reported: ReportedWork) -> None:
        """Record the changes in the specification that the next epoch is made from, and in what has been reported.

        Raises:
            RunError: sources that are scaled have not emitted the first records of the whole input.
        """
        epoch_workers.apply_moves(self.moves)
        epoch_workers.spec = rescaled(epoch_workers.spec, self.scaling)
        before, since = self.snapshots, epoch_workers.spec.epoch + 1
        reported.rescale(since, self.scaling.parallelism, before.places.keys(), before.positions)


def rescaled(spec: RunSpec, scaling: Scaling) -> RunSpec:
    """Return the specification with other numbers of executors, for another epoch; those that stay keep their slots.

    Raises:
        AbandonedError: a component does not exist, or the slots are not those of the executors that are added.
    """
    if not scaling.parallelism:
        return spec
    unknown = scaling.parallelism.keys() - {entry["id"] for entry in spec.topology["components"]}
    if unknown:
        raise AbandonedError(f"there is no component {', '.join(sorted(unknown))}")
    components = [
        {**entry, "parallelism": scaling.parallelism.get(entry["id"], entry.get("parallelism", 1))}
        for entry in spec.topology["components"]
    ]
    places = {executor_name(executor): executor.place for executor in spec.executors}
    names = [(entry["id"], index) for entry in components for index in range(entry["parallelism"])]
    added = {f"{component}[{index}]" for component, index in names} - places.keys()
    if added != scaling.added.keys():
        raise AbandonedError(
            f"slots for {_listed(scaling.added)}, but the executors that are added are {_listed(added)}"
        )
    places |= scaling.added
    executors = tuple(ExecutorSpec(component, index, places[f"{component}[{index}]"]) for component, index in names)
    return replace(spec, topology={**spec.topology, "components": components}, executors=executors, numbers=())


def rescaled_live(spec: RunSpec, scaling: Scaling, moves: Iterable[MoveToPlace] = ()) -> RunSpec:
    """Return the specification behind a barrier at which components are scaled and executors move, in the same epoch.

    All executors of the components get numbers that nobody had before, and the fewest key groups change their owners.

    Raises:
        AbandonedError: as for `rescaled`.
    """
    after = rescaled(spec, scaling)
    targets = {move.executor: move.to for move in moves}
    executors = tuple(replace(entry, place=targets.get(executor_name(entry), entry.place)) for entry in after.executors)
    before = {executor_name(entry): number for entry, number in zip(spec.executors, spec.numbered, strict=True)}
    fresh = count(max(spec.numbered) + 1)
    numbers = tuple(
        next(fresh) if entry.component in scaling.parallelism else before[executor_name(entry)] for entry in executors
    )
    owners = {
        component: owner_runs(rebalanced(owners_from_runs(runs), scaling.parallelism[component]))
        if component in scaling.parallelism
        else runs
        for component, runs in spec.owners.items()
    }
    worked = {name: counts for name, counts in spec.worked.items() if name not in scaling.added}
    return replace(after, executors=executors, numbers=numbers, owners=owners, worked=worked)


async def run_scaling(
    scaling: Scaling,
    moves: tuple[MoveToPlace, ...],
    epoch_workers: EpochWorkers,
    barrier: int,
    complete: int,
    start_ns: int,
    environment: Environment,
    event_log: EventLog,
    stop_requested: Callable[[], bool],
    revision: int | None,
) -> Callable[[], None]:
    """Scale components and move executors at barrier number `barrier`, while the topology runs.

    Sources halt, and stop behind the same record of the whole input; others continue there.

    Args:
        scaling: at least one component.
        moves: of any executors.
        epoch_workers: workers of the epoch; they have the new specification afterwards.
        barrier, complete, start_ns, environment, event_log, stop_requested, revision: as for `run_moves`.

    Returns:
        a function that records what has been done.

    Raises:
        AbandonedError: the barrier was abandoned; nothing has changed.
        RunError: a new worker does not start in time, or the barrier is not passed in time.
    """
    targets = {move.to for move in moves} | set(scaling.added.values())
    await prepare_slots(epoch_workers, targets, start_ns, environment)
    before = epoch_workers.places
    after = rescaled_live(epoch_workers.spec, scaling, moves)
    # Executors of the components that are scaled are all new ones.
    others = tuple(move for move in moves if Executor.named(move.executor).component not in scaling.parallelism)
    predicted = await copy_ahead(epoch_workers, barrier, stop_requested, others, after)
    halts = epoch_workers.are_spouts(scaling.parallelism)
    await run_barrier(epoch_workers, barrier, complete, halt_s=0.0 if halts else None, scaled=after, aligned=halts)
    epoch_workers.apply_scaling(after)
    moved, pauses = epoch_workers.moved, {}
    for component, parallelism in scaling.parallelism.items():
        reports = [moved[f"{component}[{index}]"] for index in range(parallelism)]
        ended, live = zip(*(pause_of(report, before, environment) for report in reports), strict=True)
        pauses[component] = (min(ended) - start_ns) / NS, (max(live) - min(ended)) / NS

    def record() -> None:
        log_moves(moves, before, moved, predicted, start_ns, environment, event_log, revision)
        event_log.scaled(scaling, before, "live", pauses, revision)

    return record


def undo_scaling(before: RunSpec, after: RunSpec, reported: ReportedWork) -> None:
    """Let the executors before a scaling of sources count as those that have worked, because a recovery starts them.

    Sources can only continue in another number where all of them have stopped behind the same record, which is so at
    that barrier, but not in the checkpoint before it.

    Args:
        before, after: specifications on both sides of the barrier.
        reported: what has been reported; work counts as done, whoever has done it.
    """
    sources = frozenset(sources_in(before))
    # Never released: positions in late reports are of others, so that their rows must not count, either.
    reported.hold(before.epoch)
    reported.share_anew((before.epoch + 1, 0), sources)
    names, now = ({executor_name(executor) for executor in spec.executors} - sources for spec in (before, after))
    for component in {Executor.named(name).component for name in now - names - sources_in(after).keys()}:
        kept, added = (
            sorted(name for name in group if Executor.named(name).component == component)
            for group in (names, now - names)
        )
        reported.bolts.withdraw(added, kept)


def _listed(executors: Iterable[str]) -> str:
    return ", ".join(sorted(executors)) or "none"

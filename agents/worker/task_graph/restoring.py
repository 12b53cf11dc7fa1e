"""Restoring executors from a checkpoint, also from one that has another number of executors of their component.

State that is divided as before is restored as a whole. Otherwise it is divided anew: state by the key of a grouping by
key groups, each from the executor that owned it at the checkpoint. Other state stays where it is, and that of removed
executors is merged into the first one. Behind a global grouping only the first executor works. Sources continue at the
record up to which all of them have emitted the whole input.

What a removed executor had done since the checkpoint is done again by others. It counts as replays of the first one
that takes over from it.
"""

from collections.abc import Iterable, Mapping

from agents.protocol import Division, Worked
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.executor import RunningExecutor
from agents.worker.executors.spout import SpoutExecutor
from agents.worker.task_graph.interfaces import Store
from agents.worker.task_graph.plan import RunPlan
from inventory.errors import RunError
from workloads.key_groups import owners_from_runs
from workloads.operator_state import OperatorState
from workloads.scaling import all_records, is_divisible, key_fields, spouts_of, why_fixed, works_alone
from workloads.topology import Executor


def restore_executor(running: RunningExecutor, plan: RunPlan, store: Store) -> None:
    """Restore an executor that has just been created from the checkpoint in the specification of `plan`.

    Raises:
        RunError: a snapshot is missing or incomplete, or the state of the component cannot be divided anew.
    """
    name = running.executor.component
    before = plan.spec.stored.get(name)
    if before is None:
        running.restore(store.read(plan.spec.restore, running.executor.name))
        return
    component = plan.topology.component[name]
    reason = why_fixed(component, running.operator, spouts_of(plan.topology))
    if reason:
        raise RunError(f"{name} had {before.parallelism} executors at the checkpoint and keeps that number: {reason}")
    if isinstance(running, SpoutExecutor):
        _seek(running, before, plan, store)
    elif isinstance(running, BoltExecutor):
        if is_divisible(component, running.state):
            _restore_groups(running, before, plan, store)
        else:
            _restore_whole_states(running, before, plan, store)


def _seek(running: SpoutExecutor, before: Division, plan: RunPlan, store: Store) -> None:
    name, index = running.executor
    names = [Executor(name, source).name for source in range(before.parallelism)]
    snapshots = [store.read(plan.spec.restore, source) for source in names]
    records = all_records([snapshot.position for snapshot in snapshots])
    emitted = snapshots[index].worked.emitted if index < before.parallelism else 0
    running.seek(records, max(snapshot.next_tick for snapshot in snapshots), emitted)


def _restore_groups(running: BoltExecutor, before: Division, plan: RunPlan, store: Store) -> None:
    name, index = running.executor
    fields = key_fields(plan.topology.component[name])
    owned: dict[int, set[int]] = {}
    first: dict[int, int] = {}
    held: dict[int, set[int]] = {}
    for group, (earlier, now) in enumerate(zip(owners_from_runs(before.owners), plan.owners[name], strict=True)):
        held.setdefault(earlier, set()).add(group)
        first[earlier] = min(now, first.get(earlier, now))
        if now == index:
            owned.setdefault(earlier, set()).add(group)
    removed: dict[Executor, Worked] = {}
    for earlier, groups in sorted(owned.items()):
        source = Executor(name, earlier)
        snapshot = store.read(plan.spec.restore, source.name)
        if source == running.executor:
            running.worked = snapshot.worked
        elif source not in plan.number_of and first[earlier] == index:
            removed[source] = snapshot.worked
        with running.guarded():
            running.state.put_groups(snapshot.operator, groups, fields, held[earlier])
    with running.guarded():
        running.state.loaded()
    _count_again(running, removed, plan)


def _count_again(running: BoltExecutor, removed: Mapping[Executor, Worked], plan: RunPlan) -> None:
    """Count as replays what removed executors had done since the checkpoint; `removed` are their counts there."""
    for source, stored in removed.items():
        known = plan.spec.worked.get(source.name, stored)
        before, seen = running.worked, running.seen
        running.seen = Worked(
            max(before.emitted, seen.emitted) + max(0, known.emitted - stored.emitted),
            max(before.processed, seen.processed) + max(0, known.processed - stored.processed),
        )


def restore_whole(state: OperatorState, whole: Iterable[bytes]) -> None:
    """Restore an operator from all state of one or several others, merged if all of it is by key."""
    for each in whole:
        if state.merges:
            state.put(each, merge=True)
        else:
            state.restore(each)
    if state.merges:
        state.loaded()


def _restore_whole_states(running: BoltExecutor, before: Division, plan: RunPlan, store: Store) -> None:
    name, index = running.executor
    component = plan.topology.component[name]
    sources = {index} if index < before.parallelism else set()
    alone = works_alone(component)
    if index == 0 and not alone:
        sources |= set(range(component.parallelism, before.parallelism))
    removed: dict[Executor, Worked] = {}
    states = []
    for source in sorted(sources):
        snapshot = store.read(plan.spec.restore, Executor(name, source).name)
        if source == index:
            running.worked = snapshot.worked
        else:
            removed[Executor(name, source)] = snapshot.worked
        states.append(snapshot.operator)
    with running.guarded():
        restore_whole(running.state, states)
    _count_again(running, removed, plan)

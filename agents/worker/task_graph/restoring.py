"""Restoring executors from a checkpoint, also from one that has another number of executors of their component.

State that is divided as before is restored as a whole. Otherwise it is divided anew: keyed state by key groups, each
from the executor that owned it at the checkpoint. State that does not depend on keys stays where it is, and that of
removed executors goes to the first one. Behind a global grouping only the first executor works. Sources continue at the
record up to which all of them have emitted the whole input.

What a removed executor had done since the checkpoint is done again by others. It counts as replays of the first one
that takes over from it.
"""

from collections.abc import Collection, Mapping

from agents.protocol import Division, Worked
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.executor import RunningExecutor
from agents.worker.executors.spout import SpoutExecutor
from agents.worker.task_graph.builder import GraphBuilder
from agents.worker.task_graph.interfaces import Store
from agents.worker.task_graph.plan import RunPlan
from inventory.errors import RunError
from workloads.key_groups import owners_of
from workloads.operators import Keyed, Merging, Operator
from workloads.scaling import all_records, single_key, spouts_of, why_fixed, works_alone
from workloads.topology import Executor


def restore(running: RunningExecutor, plan: RunPlan, graph: GraphBuilder, store: Store) -> None:
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
        _restore_bolt(running, before, plan, graph, store)


def _seek(running: SpoutExecutor, before: Division, plan: RunPlan, store: Store) -> None:
    name, index = running.executor
    names = [Executor(name, source).name for source in range(before.parallelism)]
    snapshots = [store.read(plan.spec.restore, source) for source in names]
    records = all_records([snapshot.position for snapshot in snapshots])
    emitted = snapshots[index].worked.emitted if index < before.parallelism else 0
    running.seek(records, max(snapshot.next_tick for snapshot in snapshots), emitted)


def _restore_bolt(running: BoltExecutor, before: Division, plan: RunPlan, graph: GraphBuilder, store: Store) -> None:
    component = plan.topology.component[running.executor.component]
    if isinstance(running.bolt, Keyed) and single_key(component) is not None:
        _restore_groups(running, before, plan, graph, store)
    else:
        _restore_whole_states(running, before, plan, store)


def _restore_groups(running: BoltExecutor, before: Division, plan: RunPlan, graph: GraphBuilder, store: Store) -> None:
    name, index = running.executor
    owned: dict[int, set[int]] = {}
    first: dict[int, int] = {}
    for group, (earlier, now) in enumerate(zip(owners_of(before.owners), plan.owners[name], strict=True)):
        first[earlier] = min(now, first.get(earlier, now))
        if now == index:
            owned.setdefault(earlier, set()).add(group)
    commons = set()
    removed: dict[Executor, Worked] = {}
    for earlier, groups in sorted(owned.items()):
        source = Executor(name, earlier)
        snapshot = store.read(plan.spec.restore, source.name)
        if source == running.executor:
            running.worked = snapshot.worked
        elif source not in plan.number_of and first[earlier] == index:
            removed[source] = snapshot.worked
        operator = graph.opened(plan, source, before.parallelism)
        with running.guarded():
            operator.restore(snapshot.operator)
            common, states = groups_of(operator, groups)
            commons.add(common)
            keyed_operator(running.bolt).restore_groups(common, states)
            operator.close()
    if len(commons) > 1:
        raise RunError(f"{name}: the common state of its executors differs in checkpoint {plan.spec.restore}")
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


def keyed_operator(operator: Operator) -> Keyed:
    """Return the operator.

    Raises:
        RunError: its state cannot be divided by key groups.
    """
    if not isinstance(operator, Keyed):
        raise RunError("only some operators of the component have snapshot_groups() and restore_groups()")
    return operator


def groups_of(operator: Operator, groups: Collection[int]) -> tuple[bytes, Mapping[int, bytes]]:
    """Return the common state of an operator, and that of these key groups.

    Raises:
        RunError: the operator returns other than that.
    """
    state: object = keyed_operator(operator).snapshot_groups(groups)
    match state:
        case (bytes(common), Mapping() as states) if states.keys() <= set(groups):
            return common, states
    raise RunError(f"snapshot_groups() of {type(operator).__name__} returned other than the state of its groups")


def _restore_whole_states(running: BoltExecutor, before: Division, plan: RunPlan, store: Store) -> None:
    name, index = running.executor
    component = plan.topology.component[name]
    sources = {index} if index < before.parallelism else set()
    alone = works_alone(component)
    if index == 0 and not alone:
        sources |= set(range(component.parallelism, before.parallelism))
    removed: dict[Executor, Worked] = {}
    for source in sorted(sources):
        snapshot = store.read(plan.spec.restore, Executor(name, source).name)
        if source == index:
            running.worked = snapshot.worked
        else:
            removed[Executor(name, source)] = snapshot.worked
        with running.guarded():
            if alone:
                running.bolt.restore(snapshot.operator)
            elif isinstance(running.bolt, Merging):
                running.bolt.merge([snapshot.operator])
    _count_again(running, removed, plan)

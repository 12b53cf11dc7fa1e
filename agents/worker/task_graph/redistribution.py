"""The state of a component that is scaled while the topology runs: divided at a barrier among its new executors.

Sources hand over their positions: behind the barrier, the records that follow belong to other ones.

All executors of the component are new ones behind the barrier. At the barrier each of the old ones sends a part of its
state to each new one that takes over from it, which begins to work when it has all its parts. State is divided as
in a restart from a checkpoint (`restoring`), except that an operator whose state is by key goes on in the new executor
of the same name and worker, and that others get only what has not been copied ahead (`state_transfer`).
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from agents.protocol import Division, Worked
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.executor import RunningExecutor, Snapshot
from agents.worker.executors.spout import SpoutExecutor
from agents.worker.task_graph.builder import GraphBuilder
from agents.worker.task_graph.plan import PlanChange
from agents.worker.task_graph.restoring import restore_whole
from agents.worker.task_graph.state_copies import TakenOver
from agents.worker.task_graph.state_transfer import StateTransfer
from agents.worker.wire import frame
from inventory.errors import RunError
from workloads.key_groups import owners_from_runs
from workloads.operator_state import OperatorState
from workloads.operators import Operator
from workloads.scaling import all_records, is_divisible, spouts_of, why_fixed, works_alone
from workloads.topology import Executor


class SourceState(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Position at which a source has stopped: records emitted, its next tick, and the end of its replays."""

    position: int
    next_tick: int
    seen: int


class StatePart(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Part that an executor hands over to one of those that take over from it.

    Attributes:
        cut_ns: end of its last work, on the old node's monotonic clock.
        cpu_ns: CPU time of taking the state; in one part of an executor only.
        worked: its counts.
        state: its whole state; None: it stays with others, or is by key.
        keys: state of keys that has not been copied ahead.
        source: of a source.
    """

    cut_ns: int
    cpu_ns: int
    worked: Worked
    state: bytes | None
    keys: bytes | None = None
    source: SourceState | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StatePart).decode


def state_sources(before: Division, after: Division, is_keyed: bool) -> Sequence[Sequence[int]]:
    """Return, for every new executor of a component, the old ones that it takes over from; each by index, rising.

    Args:
        before, after: division of its state before the barrier and behind it.
        is_keyed: whether its state belongs to key groups.

    >>> state_sources(Division(3), Division(2), False)
    [[0, 2], [1]]
    >>> state_sources(Division(1), Division(2), False)
    [[0], [0]]
    >>> state_sources(Division(2, ((0, 512), (1, 512))), Division(1, ((0, 1024),)), True)
    [[0, 1]]
    """
    if is_keyed:
        givers: list[set[int]] = [set() for _ in range(after.parallelism)]
        for earlier, now in zip(owners_from_runs(before.owners), owners_from_runs(after.owners), strict=True):
            givers[now].add(earlier)
        return [sorted(each) for each in givers]
    sources = [[at if at < before.parallelism else 0] for at in range(after.parallelism)]
    sources[0] += range(after.parallelism, before.parallelism)
    return sources


class Redistribution:
    """The part of one worker in the division of state at a barrier.

    Attributes:
        expected: number of an old executor and of a new one in this worker that takes over from it; both are the same
            for an executor that moves.
    """

    def __init__(
        self, change: PlanChange, arriving: Mapping[int, RunningExecutor], graph: GraphBuilder, transfer: StateTransfer
    ) -> None:
        """Determine what the new executors in this worker wait for.

        Args:
            change: plans before and behind the barrier.
            arriving: executors that arrive in this worker, some by a move.
            graph: of this worker.
            transfer: what is copied ahead.

        Raises:
            RunError: the number of a component's executors cannot change while the topology runs.
        """
        self._change, self._graph, self._transfer = change, graph, transfer
        old, new = self._old, self._new = change.old, change.new
        self._sources: dict[str, Sequence[Sequence[int]]] = {}
        self._parts: dict[int, dict[int, tuple[StatePart, int]]] = {}
        self.expected: set[tuple[int, int]] = set()
        for number, running in arriving.items():
            if number in old.executors:
                self.expected.add((number, number))
                continue
            name, index = running.executor
            reason = why_fixed(new.topology.component[name], running.operator, spouts_of(new.topology))
            if reason:
                raise RunError(f"the number of executors of {name} cannot change: {reason}")
            for source in self._sources_of(name, running.operator)[index]:
                self.expected.add((old.number_of[Executor(name, source)], number))
            self._parts[number] = {}

    def _sources_of(self, component: str, operator: Operator) -> Sequence[Sequence[int]]:
        if component not in self._sources:
            before, after = (plan.spec.divisions[component] for plan in (self._old, self._new))
            entry = self._new.topology.component[component]
            if entry.kind == "spout":
                # Any of them begins behind the last record of all.
                self._sources[component] = [range(before.parallelism)] * after.parallelism
            else:
                by_groups = is_divisible(entry, OperatorState(operator))
                self._sources[component] = state_sources(before, after, by_groups)
        return self._sources[component]

    def parts(
        self, running: RunningExecutor, stored: Snapshot | None, cut_ns: int, cpu_ns: int
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the parts of an executor that has met the barrier: number of the new executor, encoded part.

        Args:
            running: an executor of a component that is scaled.
            stored: its snapshot, if it has been taken.
            cut_ns: end of its work, on this node's monotonic clock.
            cpu_ns: CPU time of taking the snapshot.

        Raises:
            RunError: its operator fails.
        """
        name, index = running.executor
        component = self._new.topology.component[name]
        sources = self._sources_of(name, running.operator)
        takers = [at for at, givers in enumerate(sources) if index in givers]
        if isinstance(running, SpoutExecutor):
            yield from self._parts_of_source(running, len(takers), cut_ns)
            return
        worked = running.worked if isinstance(running, BoltExecutor) else Worked()
        if is_divisible(component, running.state):
            yield from self._parts_of_keys(running, takers, cut_ns, cpu_ns)
            return
        for at in takers:
            state = None
            # A removed executor without input has no state.
            if at == index or (index >= len(sources) and not works_alone(component)):
                state = (stored or running.snapshot()).operator
            part = StatePart(cut_ns, cpu_ns, worked, state)
            yield self._new.number_of[Executor(name, at)], _encode(part)
            cpu_ns = 0

    def _parts_of_source(self, running: SpoutExecutor, takers: int, cut_ns: int) -> Iterator[tuple[int, bytes]]:
        state = SourceState(running.position, running.next_tick, running.seen)
        part = _encode(StatePart(cut_ns, 0, running.worked, None, source=state))
        running.replace()
        for at in range(takers):
            yield self._new.number_of[Executor(running.executor.component, at)], part

    def _parts_of_keys(
        self, running: RunningExecutor, takers: Sequence[int], cut_ns: int, cpu_ns: int
    ) -> Iterator[tuple[int, bytes]]:
        worked = running.worked if isinstance(running, BoltExecutor) else Worked()
        rests, copying_ns = self._transfer.hand_over_keys(running, self._change)
        cpu_ns += copying_ns
        for at in takers:
            number = self._new.number_of[Executor(running.executor.component, at)]
            yield number, _encode(StatePart(cut_ns, cpu_ns, worked, None, rests.get(number)))
            cpu_ns = 0

    def take(self, sender: int, receiver: int, encoded: bytes | bytearray) -> bool:
        """Take a part for a new executor; return whether it has all of them.

        Raises:
            FrameError: this is no part of an executor's state.
        """
        try:
            part = _decode(encoded)
        except msgspec.DecodeError as fault:
            raise frame.FrameError(f"state of executor {sender} that cannot be read: {fault}") from None
        self._parts[receiver][self._old.executors[sender].index] = part, len(encoded)
        name, index = self._new.executors[receiver]
        return len(self._parts[receiver]) == len(self._sources[name][index])

    def restore(self, running: RunningExecutor) -> TakenOver:
        """Restore a new executor from its parts.

        Raises:
            RunError: the operator fails.
        """
        name, index = running.executor
        parts = {at: part for at, (part, _) in sorted(self._parts[running.number].items())}
        nbytes = sum(size for _, size in self._parts.pop(running.number).values())
        if isinstance(running, SpoutExecutor):
            self._seek(running, parts)
            source = index if index in parts else min(parts)
            return TakenOver(Executor(name, source).name, parts[source].cut_ns, 0, nbytes)
        if not isinstance(running, BoltExecutor):
            raise frame.FrameError(f"state of {running.executor.name}, which is neither a bolt nor a source")
        component, cpu_ns = self._new.topology.component[name], 0
        with running.guarded():
            if is_divisible(component, running.state):
                rests = [part.keys for part in parts.values() if part.keys is not None]
                copied, cpu_ns = self._transfer.restore_keys(running, rests)
                nbytes += copied
            else:
                restore_whole(running.state, [part.state for part in parts.values() if part.state is not None])
        if index in parts:
            running.worked = parts[index].worked
        source = index if index in parts else min(parts)
        return TakenOver(Executor(name, source).name, parts[source].cut_ns, parts[source].cpu_ns + cpu_ns, nbytes)

    @staticmethod
    def _seek(running: SpoutExecutor, parts: Mapping[int, StatePart]) -> None:
        states = [part.source for part in parts.values() if part.source is not None]
        if len(states) != len(parts):
            raise frame.FrameError(f"state of {running.executor.name}, which is not all of sources")
        index = running.executor.index
        records = all_records([state.position for state in states])
        emitted = parts[index].worked.emitted if index in parts else 0
        running.seek(records, max(state.next_tick for state in states), emitted)
        running.share_replays(sum(max(state.seen, state.position) for state in states))

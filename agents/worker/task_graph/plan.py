"""The plan of a run: numbers for executors, streams and workers, and the channels between them.

All workers derive the same plan from the same `RunSpec`, so that numbers in frames need no negotiation.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

import msgspec
from msgspec import structs

from agents.protocol import ExecutorSpec, MoveToPlace, RunSpec, Slot
from agents.worker.channels.channel import ChannelId
from inventory.errors import RunError
from workloads.key_groups import KEY_GROUPS, owners_from_runs
from workloads.topology import Component, Executor, Input, Topology

Hop = Literal["intra_worker", "inter_worker", "inter_node"]


def hop(worker: Slot, other: Slot) -> Hop:
    """Return the kind of hop between two workers."""
    if worker == other:
        return "intra_worker"
    return "inter_worker" if worker.node == other.node else "inter_node"


class ChannelPlan(NamedTuple):
    """A channel from one executor to another on one stream; executors and stream by number."""

    sender: int
    receiver: int
    stream: int
    entry: Input

    @property
    def id(self) -> ChannelId:
        """Identity of the channel."""
        return ChannelId(self.sender, self.receiver, self.stream)


class RunPlan:
    """Derived views of a `RunSpec`.

    Every move makes a new one.

    Attributes:
        executors, place, worker: executor, its slot and the number of its worker, by number of the executor. They are
            in the topology's order.
        number_of: number of every executor.
        places: slot of every worker, by its number.

    Its tuples are made from lists: one that is made from a generator shrinks as it is done,
    and each of those leaves a free block more in CPython's store of tuples.
    """

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.topology = msgspec.convert(spec.topology, Topology)
        given = [(entry.component, entry.index) for entry in spec.executors]
        if given != [tuple(executor) for executor in self.topology.executors]:
            raise RunError(f"run {spec.run}: the executors placed are not those of topology {self.topology.id!r}")
        numbers = spec.numbered
        if len(numbers) != len(set(numbers)) or len(numbers) != len(given):
            raise RunError(f"run {spec.run}: {len(given)} executors have the numbers {numbers}")
        self.executors: Mapping[int, Executor] = dict(zip(numbers, self.topology.executors, strict=True))
        self.number_of: Mapping[Executor, int] = {executor: number for number, executor in self.executors.items()}
        self.owners = {component: owners_from_runs(runs) for component, runs in spec.owners.items()}
        for component, parallelism in self.topology.keyed.items():
            owners = self.owners.get(component, ())
            if len(owners) != KEY_GROUPS or not set(owners) <= set(range(parallelism)):
                raise RunError(f"run {spec.run}: the key groups of {component} have no complete table of owners")
        self.place: Mapping[int, Slot] = dict(zip(numbers, [entry.place for entry in spec.executors], strict=True))
        self.places: tuple[Slot, ...] = spec.workers
        unknown = set(self.place.values()) - set(self.places)
        if unknown:
            raise RunError(f"run {spec.run}: executors are placed on {unknown.pop()}, which is none of its workers")
        if spec.gates is not None:
            unscheduled = {place.node for place in self.place.values()} - set(spec.gates.nodes)
            if unscheduled:
                raise RunError(f"node {min(unscheduled)} has no part in the run's communication schedule")

    @cached_property
    def streams(self) -> tuple[tuple[str, str], ...]:
        """(component, stream) of every declared output; a stream's number is its position here."""
        return tuple([(c.id, stream) for c in self.topology.components for stream in c.outputs or {}])

    def schema(self, stream: int) -> Mapping[str, str]:
        """Return field -> type of a stream."""
        component, name = self.streams[stream]
        outputs = self.topology.component[component].outputs or {}
        return outputs[name]

    @cached_property
    def channels(self) -> tuple[ChannelPlan, ...]:
        """All channels: links in declaration order, then sender, then receiver.

        A global grouping has a channel to index 0 only, and an executor that no record can reach has none.

        Raises:
            RunError: a component subscribes to a stream that is not declared, or twice to one.
        """
        channels = (*self._channels(),)
        for channel, times in Counter(channel.id for channel in channels).items():
            if times > 1:
                sender, receiver = (self.executors[number].component for number in channel[:2])
                raise RunError(f"{receiver} subscribes twice to the same stream of {sender}")
        return channels

    @cached_property
    def _by_sender(self) -> Mapping[int, list[ChannelPlan]]:
        by_sender: dict[int, list[ChannelPlan]] = {}
        for channel in self.channels:
            by_sender.setdefault(channel.sender, []).append(channel)
        return by_sender

    def channels_from(self, number: int) -> Sequence[ChannelPlan]:
        """Return the channels that an executor sends on."""
        return self._by_sender.get(number, ())

    def component_of(self, number: int) -> Component:
        """Return the component of an executor."""
        return self.topology.component[self.executors[number].component]

    def is_bolt(self, number: int) -> bool:
        """Return whether an executor is one of a bolt."""
        return self.component_of(number).kind == "bolt"

    @cached_property
    def spouts(self) -> frozenset[str]:
        """Names of the executors of spouts."""
        return frozenset(executor.name for at, executor in self.executors.items() if not self.is_bolt(at))

    @cached_property
    def fan_in(self) -> Mapping[int, int]:
        """Number of incoming channels of every executor that has any, by number of the executor."""
        return Counter(channel.receiver for channel in self.channels)

    def _channels(self) -> Iterator[ChannelPlan]:
        # Links are in no topological order, so repeat until no more executors are reached.
        declared = list(self._declared_channels())
        reached = {at for at in self.executors if not self.is_bolt(at)}
        while True:
            more = {channel.receiver for channel in declared if channel.sender in reached} - reached
            if not more:
                return (channel for channel in declared if channel.sender in reached)
            reached |= more

    def _declared_channels(self) -> Iterator[ChannelPlan]:
        number = self.number_of
        stream_number = {key: at for at, key in enumerate(self.streams)}
        for source, destination, entry in self.topology.links():
            stream = stream_number.get((source.id, entry.stream))
            if stream is None:
                missing = f"the stream {entry.stream!r} of {source.id}"
                declared = ", ".join(source.outputs or {}) or "none"
                raise RunError(f"{destination.id} subscribes to {missing}, which declares {declared}")
            receivers = self.topology.executors_of(destination.id)
            if entry.grouping == "global":
                receivers = receivers[:1]
            for sender in self.topology.executors_of(source.id):
                for receiver in receivers:
                    yield ChannelPlan(number[sender], number[receiver], stream, entry)

    @cached_property
    def worker(self) -> Mapping[int, int]:
        """Number of the worker of every executor."""
        number = {place: at for at, place in enumerate(self.places)}
        return {at: number[place] for at, place in self.place.items()}

    def peers(self, worker: int) -> set[int]:
        """Return the numbers of the workers that share a channel with `worker`."""
        linked = set()
        for channel in self.channels:
            ends = {self.worker[channel.sender], self.worker[channel.receiver]}
            if worker in ends:
                linked |= ends
        return linked - {worker}

    def moved(self, moves: Iterable[MoveToPlace], workers: tuple[Slot, ...]) -> "RunPlan":
        """Return the plan after a barrier at which executors move.

        Raises:
            RunError: there is no such executor or worker.
        """
        to = {move.executor: move.to for move in moves}
        known = {executor.name for executor in self.executors.values()}
        if to.keys() - known:
            raise RunError(f"there is no executor {', '.join(sorted(to.keys() - known))}")
        executors = [
            ExecutorSpec(entry.component, entry.index, to.get(executor.name, entry.place))
            for entry, executor in zip(self.spec.executors, self.executors.values(), strict=True)
        ]
        return RunPlan(structs.replace(self.spec, executors=tuple(executors), workers=workers))


class PlanChange(NamedTuple):
    """A barrier at which the plan changes: its number, and the plans before and behind it."""

    barrier: int
    old: RunPlan
    new: RunPlan

    @property
    def arriving(self) -> list[int]:
        """Executors that have another place or number behind the barrier."""
        return [number for number, place in self.new.place.items() if self.old.place.get(number) != place]

    def moves(self, number: int) -> bool:
        """Return whether an executor only gets another place."""
        return number in self.old.executors and number in self.new.executors

    def kept_from(self, number: int) -> int | None:
        """Return the old executor whose operator a new one of the same worker keeps; None: it keeps no operator."""
        executor = self.new.executors[number]
        before = self.old.number_of.get(executor)
        if before is None or before in self.new.executors or self.old.worker[before] != self.new.worker[number]:
            return None
        return before if before in self._owners_before(executor) else None

    def givers_of(self, number: int) -> dict[int, int]:
        """Return the workers of the old executors that give keys to one that arrives, by number."""
        numbers = {number}
        if not self.moves(number):
            numbers = self._owners_before(self.new.executors[number]) - {self.kept_from(number)}
        return {giver: self.old.worker[giver] for giver in sorted(numbers)}

    def receivers_of(self, number: int) -> Mapping[int, int | None]:
        """Return the new executors, by number, that get the key groups of an old one; None: a group stays."""
        name, index = self.old.executors[number]
        to: dict[int, int | None] = {
            at.index: there for there, at in self.new.executors.items() if at.component == name
        }
        if index in to and self.kept_from(self.new.number_of[self.old.executors[number]]) == number:
            to[index] = None
        return {group: to[now] for group, (before, now) in enumerate(self._owners(name)) if before == index}

    def _owners(self, component: str) -> Iterable[tuple[int, int]]:
        """Return the owners of every key group before the barrier and behind it, by index."""
        return zip(self.old.owners[component], self.new.owners[component], strict=True)

    def _owners_before(self, executor: Executor) -> set[int]:
        """Return the old executors, by number, of the key groups that an executor owns behind the barrier."""
        name, index = executor
        return {self.old.number_of[Executor(name, before)] for before, now in self._owners(name) if now == index}

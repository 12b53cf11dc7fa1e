"""A run as every worker sees it: numbers for executors, streams and places, and the channels between them.

All workers derive the same plan from the same `RunSpec`, so that numbers in frames need no negotiation.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Literal, NamedTuple

import msgspec

from agents.protocol import Place, RunSpec
from inventory.errors import RunError
from workloads.topology import Executor, Input, Topology

Hop = Literal["intra_worker", "inter_worker", "inter_node"]


class ChannelPlan(NamedTuple):
    """From one executor to another on one stream; executors and stream by number."""

    sender: int
    receiver: int
    stream: int
    entry: Input


class RunPlan:
    """Derived views of a `RunSpec`."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.topology = msgspec.convert(spec.topology, Topology)
        self.executors: tuple[Executor, ...] = self.topology.executors
        given = [(entry.component, entry.index) for entry in spec.executors]
        if given != [tuple(executor) for executor in self.executors]:
            raise RunError(f"run {spec.run}: the executors placed are not those of topology {self.topology.id!r}")
        self.place: tuple[Place, ...] = tuple(entry.place for entry in spec.executors)

        # A worker's number is its position here.
        self.places: tuple[Place, ...] = spec.workers
        strangers = set(self.place) - set(self.places)
        if strangers:
            raise RunError(f"run {spec.run}: executors are placed on {strangers.pop()}, which is none of its workers")

    @cached_property
    def streams(self) -> tuple[tuple[str, str], ...]:
        """(component, stream) of every declared output; a stream's number is its position here."""
        return tuple((c.id, stream) for c in self.topology.components for stream in c.outputs or {})

    def schema(self, stream: int) -> Mapping[str, str]:
        """Field -> type of a stream."""
        component, name = self.streams[stream]
        outputs = self.topology.component[component].outputs or {}
        return outputs[name]

    def hop(self, sender: int, receiver: int) -> Hop:
        """What lies between two executors."""
        here, there = self.place[sender], self.place[receiver]
        if here == there:
            return "intra_worker"
        return "inter_worker" if here.node == there.node else "inter_node"

    def channels(self) -> Iterator[ChannelPlan]:
        """All channels: links in declaration order, then sender, then receiver.

        A global grouping has a channel to index 0 only.

        Raises:
            RunError: a component subscribes to a stream that is not declared.
        """
        number = self.topology.number_of
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

    def peers(self, worker: int) -> set[int]:
        """Numbers of the workers that share a channel with `worker`."""
        place_number = {place: at for at, place in enumerate(self.places)}
        found = set()
        for channel in self.channels():
            ends = {place_number[self.place[channel.sender]], place_number[self.place[channel.receiver]]}
            if worker in ends:
                found |= ends
        return found - {worker}

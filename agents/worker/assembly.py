"""Building one worker's executors and channels from the plan."""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agents.protocol import Place
from agents.worker import frame
from agents.worker.channel import (
    Ager,
    Delivery,
    LocalIncoming,
    LocalOutgoing,
    Outgoing,
    RemoteIncoming,
    RemoteOutgoing,
    Wire,
    window,
)
from agents.worker.codec import Codec
from agents.worker.executor import BoltExecutor, Running, SpoutExecutor
from agents.worker.latency import mix
from agents.worker.plan import ChannelPlan, RunPlan
from agents.worker.router import Grouping, Router, grouping_of
from inventory.errors import RunError
from workloads.operators import Bolt, Context, Operator, Spout
from workloads.rates import Schedule
from workloads.topology import ACKER, Executor, Input

ChannelKey = tuple[int, int, int]
"""(sender, receiver, stream), by number."""


@dataclass
class Assembly:
    """What runs in one worker.

    Attributes:
        bolts, spouts: executors, in the topology's order.
        outgoing: channels whose sender is here.
        incoming: channels from other workers whose receiver is here.
    """

    bolts: list[BoltExecutor] = field(default_factory=list)
    spouts: list[SpoutExecutor] = field(default_factory=list)
    outgoing: dict[ChannelKey, Outgoing] = field(default_factory=dict)
    incoming: dict[ChannelKey, RemoteIncoming] = field(default_factory=dict)

    @property
    def executors(self) -> list[Running]:
        """All executors."""
        return [*self.spouts, *self.bolts]

    def take(self, received: frame.Frame, wire: Wire) -> None:
        """Give a frame that `wire`'s other side sent to the channel it belongs to.

        Raises:
            FrameError, CodecError: that side has no such channel to here, or broke a channel's rules.
        """
        key = (received.sender, received.receiver, received.stream)
        end: Outgoing | RemoteIncoming | None
        end = self.outgoing.get(key) if received.kind == frame.CREDIT else self.incoming.get(key)
        if not isinstance(end, RemoteOutgoing | RemoteIncoming) or end.wire is not wire:
            raise frame.FrameError(
                f"a frame of kind {received.kind} for the channel {key}, which does not come this way"
            )
        if isinstance(end, RemoteOutgoing):
            end.credit(received.count, received.length)
        elif received.kind == frame.DATA:
            end.receive(received)
        else:
            end.deliver_end()


class _Idle(Bolt):
    """Storm's acker: placed and counted, without work, because exactness comes from barriers, not from acks."""


def assemble(
    plan: RunPlan,
    place: Place,
    wire: Callable[[Place], Wire],
    ager: Ager,
    operator: Callable[[str], Operator],
    schedule: Schedule | None,
    inputs: Mapping[str, str],
) -> Assembly:
    """Build and open everything that runs at `place`.

    Args:
        plan: the run.
        place: which worker this is.
        wire: gives the link to another worker.
        ager: the loop's clock of waiting batches.
        operator: makes a new operator for a component.
        schedule: of the sources; None when every record is due at once.
        inputs: prepared input files by name, local paths.

    Raises:
        RunError: an operator is of the wrong kind or cannot be opened.
    """
    assembly = Assembly()
    queues: dict[int, deque[Delivery]] = defaultdict(deque)
    channels = [c for c in plan.channels() if place in (plan.place[c.sender], plan.place[c.receiver])]
    fan_in: dict[int, int] = defaultdict(int)
    for channel in plan.channels():
        fan_in[channel.receiver] += 1
    by_input: dict[tuple[int, Input, str], list[Outgoing]] = defaultdict(list)
    for channel in channels:
        outgoing = _connect(plan, place, channel, queues, window(fan_in[channel.receiver]), wire, ager, assembly)
        if outgoing is not None:
            receiver = plan.executors[channel.receiver].component
            by_input[channel.sender, channel.entry, receiver].append(outgoing)
    for number, executor in enumerate(plan.executors):
        if plan.place[number] != place:
            continue
        router = _router(plan, number, executor, by_input)
        made = _Idle() if executor.component == ACKER else operator(executor.component)
        _open(plan, executor, made, inputs)
        component = plan.topology.component[executor.component]
        if component.kind == "spout" and isinstance(made, Spout):
            seed = mix(plan.spec.seed ^ mix(number))
            assembly.spouts.append(SpoutExecutor(executor, made, router, component.parallelism, schedule, seed))
        elif component.kind == "bolt" and isinstance(made, Bolt):
            assembly.bolts.append(BoltExecutor(executor, made, router, queues[number], fan_in[number]))
        else:
            raise RunError(f"{executor.component}: {type(made).__name__} is no {component.kind.title()}")
    return assembly


def _connect(
    plan: RunPlan,
    place: Place,
    channel: ChannelPlan,
    queues: Mapping[int, deque[Delivery]],
    size: tuple[int, int],
    wire: Callable[[Place], Wire],
    ager: Ager,
    assembly: Assembly,
) -> Outgoing | None:
    key = (channel.sender, channel.receiver, channel.stream)
    if key in assembly.outgoing or key in assembly.incoming:
        sender, receiver = plan.executors[channel.sender], plan.executors[channel.receiver]
        raise RunError(f"{receiver.component} subscribes twice to the same stream of {sender.component}")
    here, there = plan.place[channel.sender], plan.place[channel.receiver]
    names = (plan.executors[channel.sender].component, plan.streams[channel.stream][1])
    queue = queues[channel.receiver]
    outgoing: Outgoing
    if here == there:
        incoming = LocalIncoming(*names, queue, size)
        outgoing = LocalOutgoing(key, size, ager, incoming)
    elif here == place:
        codec = Codec(plan.schema(channel.stream))
        outgoing = RemoteOutgoing(key, size, ager, codec, plan.spec.epoch, wire(there))
    else:
        codec = Codec(plan.schema(channel.stream))
        remote = RemoteIncoming(key, names, queue, size, codec, plan.spec.epoch, wire(here))
        assembly.incoming[key] = remote
        return None
    assembly.outgoing[key] = outgoing
    return outgoing


def _router(
    plan: RunPlan, number: int, executor: Executor, by_input: Mapping[tuple[int, Input, str], list[Outgoing]]
) -> Router:
    declared = plan.topology.component[executor.component].outputs or {}
    streams: dict[str, list[Grouping]] = {stream: [] for stream in declared}
    channels: list[Outgoing] = []
    for source, destination, entry in plan.topology.links():
        if source.id == executor.component:
            mine = by_input[number, entry, destination.id]
            streams[entry.stream].append(grouping_of(entry, declared[entry.stream], mine, number))
            channels.extend(mine)
    return Router(executor.name, streams, channels)


def _open(plan: RunPlan, executor: Executor, operator: Operator, inputs: Mapping[str, str]) -> None:
    component = plan.topology.component[executor.component]
    context = Context(
        executor.component, executor.index, component.parallelism, plan.spec.params, plan.spec.seed, inputs
    )
    try:
        operator.open(context)
    except Exception as fault:
        raise RunError(f"{executor.name} cannot be opened: {type(fault).__name__}: {fault}") from fault

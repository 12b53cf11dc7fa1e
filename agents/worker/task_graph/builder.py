"""Creation of executors and their channels from a plan."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agents.worker.channels.channel import (
    COLUMN_BATCHES,
    QUEUE_BYTES,
    ChannelId,
    Incoming,
    Outgoing,
    window,
)
from agents.worker.channels.ends import LocalOutgoing, RemoteIncoming, RemoteOutgoing, Wire, local_channel
from agents.worker.channels.gated import CountingInbox, Gated, GatedLocal, GatedRemote, GatedRouter, Pool
from agents.worker.channels.groupings import Grouping, Router, Shuffle, grouping_of
from agents.worker.channels.input_gate import InputGate
from agents.worker.channels.linger import FlushTimer
from agents.worker.executors.acks import AcknowledgedRouter, AcknowledgedSpout, acknowledging
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.columns import ColumnBoltExecutor, ColumnSpoutExecutor, column_combine
from agents.worker.executors.executor import Histogram, LatencySampler, RunningExecutor, mix
from agents.worker.executors.spout import SpoutExecutor
from agents.worker.task_graph.plan import ChannelPlan, RunPlan
from agents.worker.task_graph.registry import TaskRegistry
from agents.worker.task_graph.time_slots import TimeSlots
from agents.worker.wire.frame import Codec
from inventory.errors import RunError
from inventory.plugins import raised_at
from workloads.acks import ACKED, is_tracked
from workloads.columns import ColumnBolt, ColumnSpout
from workloads.operator_state import OperatorState
from workloads.operators import Bolt, Combine, Combining, Context, Operator, Spout
from workloads.rates import Rate
from workloads.scaling import is_divisible
from workloads.source_clock import source_clock
from workloads.topology import ACKER, DEFAULT_STREAM, Component, Executor


class _Idle(Bolt):
    """Storm's acker without acknowledgements: placed and counted, but idle, as barriers make results exact."""


class Ends(NamedTuple):
    """The ends of a channel that are in this worker; `peer` is the worker of the other end."""

    outgoing: Outgoing | None
    incoming: Incoming | None
    peer: int


class GraphBuilder:
    """Creates the executors and channel ends of one worker.

    Attributes:
        me: number of the worker.
    """

    def __init__(
        self,
        me: int,
        wire: Callable[[int], Wire],
        flush_timer: FlushTimer,
        operator: Callable[[str], Operator],
        rate: Rate,
        inputs: Mapping[str, str],
        slots: TimeSlots | None = None,
    ) -> None:
        """Create a builder.

        Args:
            me: number of this worker.
            wire: returns the link to another worker, by number.
            flush_timer: of the worker's channels.
            operator: creates a new operator for a component.
            rate: of the sources.
            inputs: local paths of prepared input files, by name.
            slots: the worker's time slots in a run with gates.
        """
        self.me = me
        self._wire, self._flush_timer, self._operator = wire, flush_timer, operator
        self._rate, self._inputs = rate, inputs
        self._slots = slots
        self._has_columns: dict[str, bool] = {}

    def concerns(self, plan: RunPlan, channel: ChannelPlan) -> bool:
        """Return whether an end of the channel is in this worker."""
        return self.me in (plan.worker[channel.sender], plan.worker[channel.receiver])

    def ends(self, plan: RunPlan, channel: ChannelPlan, inputs: InputGate | None) -> Ends:
        """Create the ends of a channel that are here; `inputs` are the receiver's, if that is in this worker."""
        sender, receiver = plan.worker[channel.sender], plan.worker[channel.receiver]
        names = (plan.executors[channel.sender].component, plan.streams[channel.stream][1])
        size = window(plan.fan_in[channel.receiver], plan.spec.buffer_bytes or QUEUE_BYTES)
        batches = self._batches(plan, channel)
        size = size._replace(rows=size.rows * batches)
        local, remote = (LocalOutgoing, RemoteOutgoing) if self._slots is None else (GatedLocal, GatedRemote)
        if inputs is None:
            codec = Codec(plan.schema(channel.stream))
            outgoing = remote(
                channel.id, receiver, size, self._flush_timer, codec, plan.spec.epoch, self._wire(receiver), batches
            )
            return Ends(self._gated(outgoing), None, receiver)
        inbox = inputs if self._slots is None else CountingInbox(inputs, self._slots.arrived)
        if sender == receiver:
            both = local_channel(channel.id, self.me, names, inbox, size, self._flush_timer, local, batches)
            return Ends(self._gated(both[0]), both[1], self.me)
        codec = Codec(plan.schema(channel.stream))
        incoming = RemoteIncoming(channel.id, names, inbox, size, codec, plan.spec.epoch, self._wire(sender))
        return Ends(None, incoming, sender)

    def _batches(self, plan: RunPlan, channel: ChannelPlan) -> int:
        """Return how many batches of rows a channel has room for as one."""
        ends = {plan.executors[number].component for number in (channel.sender, channel.receiver)}
        return COLUMN_BATCHES if all(map(self._is_of_columns, ends)) else 1

    def _is_of_columns(self, component: str) -> bool:
        has_columns = self._has_columns.get(component)
        if has_columns is None:
            operator = self._new_operator(component)
            has_columns = self._has_columns[component] = isinstance(operator, ColumnBolt | ColumnSpout)
        return has_columns

    def _gated(self, outgoing: Outgoing) -> Outgoing:
        if isinstance(outgoing, Gated) and self._slots is not None:
            outgoing.part_tuples = self._slots.part_tuples
        return outgoing

    def router(self, plan: RunPlan, number: int, outgoing: Mapping[ChannelId, Outgoing]) -> Router:
        """Create the router of an executor over its channels."""
        executor = plan.executors[number]
        declared = plan.topology.component[executor.component].outputs or {}
        streams: dict[str, list[Grouping]] = {stream: [] for stream in declared}
        channels: list[Outgoing] = []
        by_entry: dict[tuple[Any, str], list[Outgoing]] = {}
        for channel in plan.channels_from(number):
            receiver = plan.executors[channel.receiver].component
            by_entry.setdefault((channel.entry, receiver), []).append(outgoing[channel.id])
        for source, destination, entry in plan.topology.links():
            if source.id == executor.component:
                mine = by_entry.get((entry, destination.id))
                if mine is None:
                    # No record can reach this executor, so it never emits.
                    continue
                shuffle = Shuffle if self._slots is None else Pool
                owners = plan.owners.get(destination.id, ())
                schema = declared[entry.stream]
                # Merged rows would not be those of one record.
                combines = entry.grouping == "fields" and not is_tracked(plan.topology)
                combine = self._combine(destination.id, schema) if combines else None
                grouping = grouping_of(entry, schema, mine, number, owners, shuffle, combine)
                streams[entry.stream].append(grouping)
                channels.extend(mine)
        kind: type[Router] = Router if self._slots is None else GatedRouter
        if is_tracked(plan.topology) and executor.component != ACKER:
            kind = AcknowledgedRouter
        return kind(executor.name, streams, channels)

    def _combine(self, component: str, schema: Mapping[str, str]) -> Combine | None:
        operator = self._operator(component)
        if not isinstance(operator, Combining):
            return None
        return column_combine(operator, schema, component) if isinstance(operator, ColumnBolt) else operator.combine

    def _new_operator(self, component: str) -> Operator:
        return _Idle() if component in (ACKER, ACKED) else self._operator(component)

    def opened(self, plan: RunPlan, executor: Executor, parallelism: int) -> Operator:
        """Create and open an operator for one of `parallelism` executors of its component.

        Raises:
            RunError: it cannot be opened.
        """
        operator = acknowledging(self._new_operator(executor.component), plan.topology, executor)
        params, seed = plan.spec.params, plan.spec.seed
        try:
            operator.open(Context(executor.component, executor.index, parallelism, params, seed, self._inputs))
        except Exception as fault:
            place = raised_at(fault, type(operator))
            raise RunError(f"{executor.name} cannot be opened: {type(fault).__name__}: {fault} ({place})") from fault
        return operator

    def can_be_copied(self, component: Component) -> bool:
        """Return whether the state of a component's executors can be copied while they work."""
        return component.kind == "bolt" and OperatorState(self._new_operator(component.id)).can_be_copied

    def is_divisible(self, component: Component) -> bool:
        """Return whether executors of a component that is scaled keep their operators, and give keys to others."""
        return component.kind == "bolt" and is_divisible(component, OperatorState(self._new_operator(component.id)))

    def executor(
        self, plan: RunPlan, number: int, router: Router, inputs: InputGate | None, operator: Operator | None = None
    ) -> RunningExecutor:
        """Create an executor; `inputs` is None for a spout. Its operator is created and opened, or given.

        Raises:
            RunError: its operator is of the wrong kind or cannot be opened.
        """
        executor = plan.executors[number]
        component = plan.topology.component[executor.component]
        operator = operator or self.opened(plan, executor, component.parallelism)
        if inputs is None and isinstance(operator, Spout):
            # One schedule for the sources of all components, because the rate is their total.
            sources = [at for at in plan.executors if not plan.is_bolt(at)]
            clock = source_clock(self._rate, operator, sources.index(number), len(sources), plan.spec.seed)
            seed = mix(plan.spec.seed ^ mix(number))
            peak = self._rate.peak_per_s
            peak_per_source = None if peak is None else peak / len(sources)
            if isinstance(operator, ColumnSpout):
                schema = (component.outputs or {})[DEFAULT_STREAM]
                sampler = LatencySampler(seed, peak_per_source, ColumnSpoutExecutor.LEAST_STRIDE)
                spout: SpoutExecutor = ColumnSpoutExecutor(number, executor, operator, router, clock, sampler, schema)
            elif is_tracked(plan.topology):
                sampler = LatencySampler(seed, peak_per_source)
                spout = tracking = AcknowledgedSpout(number, executor, operator, router, clock, sampler)
                tracking.track(plan.topology, sources.index(number))
            else:
                spout = SpoutExecutor(number, executor, operator, router, clock, LatencySampler(seed, peak_per_source))
            spout.until = plan.spec.until.get(executor.name)
            return spout
        if inputs is not None and isinstance(operator, Bolt):
            if isinstance(operator, ColumnBolt):
                received = {
                    (entry.source, entry.stream): (plan.topology.component[entry.source].outputs or {})[entry.stream]
                    for entry in component.inputs
                }
                bolt: BoltExecutor = ColumnBoltExecutor(
                    number, executor, operator, router, inputs, received, component.outputs or {}
                )
            else:
                bolt = BoltExecutor(number, executor, operator, router, inputs)
            if is_tracked(plan.topology) and not bolt.idle:
                # What sends nothing but acknowledgements is the end of the records' way.
                receivers = {plan.executors[channel.receiver].component for channel in plan.channels_from(number)}
                bolt.latency = Histogram() if receivers == {ACKER} else None
            bolt.seen = plan.spec.worked.get(executor.name, bolt.seen)
            return bolt
        raise RunError(f"{executor.component}: {type(operator).__name__} is no {component.kind.title()}")


def build_registry(plan: RunPlan, graph: GraphBuilder) -> TaskRegistry:
    """Create and open all executors of a worker and its ends of channels.

    Raises:
        RunError: an operator is of the wrong kind or cannot be opened.
    """
    registry = TaskRegistry()
    here = [number for number, worker in plan.worker.items() if worker == graph.me]
    inputs = {number: InputGate() for number in here if plan.is_bolt(number)}
    for channel in plan.channels:
        if not graph.concerns(plan, channel):
            continue
        outgoing, incoming, peer = graph.ends(plan, channel, inputs.get(channel.receiver))
        if outgoing is not None:
            registry.outgoing[channel.id] = outgoing
            registry.expect(channel.id, peer, outgoing)
        if incoming is not None:
            registry.incoming[channel.id] = incoming
            registry.expect(channel.id, peer, incoming)
            inputs[channel.receiver].join(incoming)
    for number in here:
        router = graph.router(plan, number, registry.outgoing)
        registry.add(graph.executor(plan, number, router, inputs.get(number)))
    return registry

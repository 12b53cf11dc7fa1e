"""Operators with acknowledgements (`workloads.acks`): every record is tracked by the XOR of the ids of its rows.

All ids derive from the record's position by hashes. So the only state is the ackers', and a replay after a recovery
sends the ids of the first time. A row's id is another one for each receiver, because equal ids would cancel out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from agents.worker.channels.groupings import Router
from agents.worker.executors.executor import mix
from agents.worker.executors.spout import SpoutExecutor
from workloads.acks import ACK, ACKED, INIT, is_tracked, receivers
from workloads.operator_state import OperatorState
from workloads.operators import NOTHING, Batch, Bolt, Context, Emitted, Operator, Row
from workloads.topology import ACKER, DEFAULT_STREAM, Component, Executor, Topology

_POSITIVE = (1 << 63) - 1
"""Ids are not negative and fit into a field of 64 bits."""

Copies = Mapping[str, Sequence[int]]
"""Stream -> for each executor that gets a row of it, what distinguishes its id there."""


def _hash(value: int) -> int:
    return mix(value) & _POSITIVE


def _tag(component: int, index: int) -> int:
    return mix(component << 32 | index)


def _copies(topology: Topology, component: Component) -> Copies:
    return {
        stream: [_tag(*receiver) for receiver in receivers(topology, component.id, stream)]
        for stream in component.outputs or {}
    }


class Acker(Bolt):
    """Storm's acker: the XOR of all ids per record, which is 0 once all its rows have been processed."""

    def __init__(self) -> None:
        # Root -> XOR so far, and the number of the source or -1 until that is known.
        self._pending: dict[int, tuple[int, int]] = {}

    def process(self, batch: Batch) -> Emitted:
        """Add ids; tell the sources of records that are complete."""
        pending, done = self._pending, []
        begins = batch.stream == INIT
        for root, value, *source in batch.rows:
            so_far, known = pending.pop(root, (0, -1))
            value ^= so_far
            number = source[0] if begins else known
            # An acknowledgement may overtake the source's tuple.
            if value == 0 and number >= 0:
                done.append((number, root))
            else:
                pending[root] = value, number
        return {ACK: done}

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._pending)

    def restore(self, state: bytes) -> None:
        self._pending = msgspec.msgpack.decode(state, type=dict[int, tuple[int, int]])


class Acked(Bolt):
    """Gets the tuples that an acker sends to a source; its executor counts them."""

    def process(self, batch: Batch) -> Emitted:
        """Take the tuples."""
        return NOTHING


class Acknowledging(Bolt):
    """A bolt that gets its rows one by one, and acknowledges each of them."""

    def __init__(self, bolt: Bolt, topology: Topology, executor: Executor) -> None:
        """Wrap a bolt.

        Args:
            bolt: the operator, which has not been opened.
            topology: the tracked topology.
            executor: the executor.
        """
        self._bolt = bolt
        component = topology.component[executor.component]
        at = topology.components.index(component)
        self._copies = _copies(topology, component)
        self._tags = {
            (entry.source, entry.stream): _tag(at, executor.index if entry.grouping == "all" else 0)
            for entry in component.inputs
        }

    def open(self, context: Context) -> None:
        self._bolt.open(context)

    def close(self) -> None:
        self._bolt.close()

    def snapshot(self) -> bytes:
        return OperatorState(self._bolt).snapshot()

    def restore(self, state: bytes) -> None:
        OperatorState(self._bolt).restore(state)

    def tables(self) -> Iterable[Bolt]:
        return self._bolt.tables()

    def process(self, batch: Batch) -> Emitted:
        """Let the bolt process every row, and acknowledge it with the rows that the bolt emitted for it."""
        source, stream = batch.source, batch.stream
        tag, copies = self._tags[source, stream], self._copies
        acks: list[Row] = []
        emitted: dict[str, list[Row]] = {}
        for row in batch.rows:
            root, edge = row[-2:]
            value = own = _hash(edge ^ tag)
            for name, derived in self._bolt.process(Batch(source, stream, [row[:-2]])).items():
                rows = emitted.setdefault(name, [])
                for each in derived:
                    own += 1
                    edge = _hash(own)
                    rows.append((*each, root, edge))
                    for copy in copies.get(name, ()):
                        value ^= _hash(edge ^ copy)
            if root:
                acks.append((root, value))
        return {**emitted, ACK: acks}

    def on_tick(self, time_ns: int) -> Emitted:
        """Let the bolt handle a tick; no record causes what it emits then."""
        self._bolt.stream_ns = time_ns
        return _untracked(self._bolt.on_tick(time_ns))

    def on_end(self) -> Emitted:
        """Let the bolt handle the end of its input, likewise."""
        return _untracked(self._bolt.on_end())


def _untracked(emitted: Emitted) -> Emitted:
    return {name: [(*row, 0, 0) for row in rows] for name, rows in emitted.items()}


class AcknowledgedSpout(SpoutExecutor):
    """An executor of a spout that tells an acker about each record."""

    source: int
    """Its position among the sources of the topology."""

    copies: Sequence[int]

    def track(self, topology: Topology, source: int) -> None:
        """Begin to track records, as source number `source` of the tracked topology."""
        self.source = source
        self.copies = _copies(topology, topology.component[self.executor.component])[DEFAULT_STREAM]

    def _emitted(self, rows: Sequence[Row]) -> Emitted:
        first = self.source + 1 << 40 | self.position
        tracked: list[Row] = []
        begun: list[Row] = []
        for number, row in enumerate(rows, first):
            root = _hash(number)
            edge = _hash(root)
            tracked.append((*row, root, edge))
            value = 0
            for copy in self.copies:
                value ^= _hash(edge ^ copy)
            begun.append((root, value, self.source))
        return {DEFAULT_STREAM: tracked, INIT: begun}


class AcknowledgedRouter(Router):
    """A router that does not count acknowledgements among the rows that an operator has emitted."""

    def emit(self, emitted: Emitted, stamps: Mapping[str, Sequence[tuple[int, int]]] = {}) -> int:
        return super().emit(emitted, stamps) - len(emitted.get(ACK, ()))


def acknowledging(operator: Operator, topology: Topology, executor: Executor) -> Operator:
    """Return the operator of an executor of a topology, with acknowledgements if that is tracked."""
    if not is_tracked(topology) or not isinstance(operator, Bolt):
        return operator
    special: Mapping[str, Callable[[], Bolt]] = {ACKER: Acker, ACKED: Acked}
    make = special.get(executor.component)
    return make() if make else Acknowledging(operator, topology, executor)

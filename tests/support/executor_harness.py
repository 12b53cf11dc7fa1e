"""Harness for a single executor: trivial operators, and a downstream channel that records what arrives."""

from collections import deque
from collections.abc import Sequence

from agents.worker.channels.channel import ChannelId, CreditWindow, Delivery, Mark
from agents.worker.channels.ends import LocalIncoming, local_channel
from agents.worker.channels.groupings import Global, Router
from agents.worker.channels.input_gate import InputGate
from agents.worker.channels.linger import MAX_LINGER_NS, FlushTimer
from workloads.operators import Batch, Bolt, Emitted, Row, Spout


class EchoBolt(Bolt):
    """Bolt that emits its input and records the batches; it emits a row per tick."""

    def __init__(self, copies: int = 1) -> None:
        self.batches: list[list[Row]] = []
        self.copies = copies

    def process(self, batch: Batch) -> Emitted:
        self.batches.append(list(batch.rows))
        return {"default": list(batch.rows) * self.copies}

    def on_tick(self, time_ns: int) -> Emitted:
        return {"default": [("tick", time_ns)]}

    def snapshot(self) -> bytes:
        return repr(self.batches).encode()


class CountingSpout(Spout):
    """Spout that emits (0,), (1,), ... up to its limit, and records the limits that it is called with."""

    def __init__(self, limit: int = 1 << 60, tick_ns: int = 0) -> None:
        self.next, self.limit = 0, limit
        self.limits: list[int] = []
        self.tick_ns = tick_ns

    def next_batch(self, limit: int) -> Sequence[Row]:
        self.limits.append(limit)
        first, self.next = self.next, min(self.limit, self.next + limit)
        return [(at,) for at in range(first, self.next)]

    def snapshot(self) -> bytes:
        return str(self.next).encode()

    def restore(self, state: bytes) -> None:
        self.next = int(state)


class Downstream:
    """A channel to a downstream executor, and what has arrived there."""

    def __init__(self, window: int = 1 << 20, name: str = "b[1]") -> None:
        self.queue: deque[Delivery] = deque()
        self.flush_timer = FlushTimer(MAX_LINGER_NS)
        size = CreditWindow(window, 1 << 30)
        self.outgoing, self.incoming = local_channel(
            ChannelId(0, 1, 0), 0, ("b", "default"), self.queue, size, self.flush_timer
        )
        self.router = Router(name, {"default": [Global(self.outgoing)]}, [self.outgoing])

    def consume(self) -> None:
        """Consume everything that has arrived."""
        while self.queue:
            _, rows, _, nbytes, _ = self.queue.popleft()
            self.incoming.consumed(len(rows), nbytes)

    def stamped(self) -> list[tuple[Row, int | None]]:
        """Return rows with their time stamps."""
        self.outgoing.flush()
        return [(row, dict(stamps).get(at)) for _, rows, stamps, _, _ in self.queue for at, row in enumerate(rows)]

    @property
    def arrived(self) -> list[Row | Mark]:
        """Rows and marks, in order."""
        found: list[Row | Mark] = []
        for delivery in self.queue:
            found += [delivery.mark] if delivery.mark is not None else delivery.rows
        return found

    @property
    def marks(self) -> list[Mark]:
        """Marks only."""
        return [delivery.mark for delivery in self.queue if delivery.mark is not None]


def input_channel(inputs: InputGate, source: str = "a", number: int = 9) -> LocalIncoming:
    """Add a channel to a bolt's inputs; return its receiving end."""
    _, incoming = local_channel(
        ChannelId(number, 0, 0),
        0,
        (source, "default"),
        inputs,
        CreditWindow(1 << 20, 1 << 30),
        FlushTimer(MAX_LINGER_NS),
    )
    inputs.join(incoming)
    return incoming

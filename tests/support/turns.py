"""One executor alone: operators that do next to nothing, and somebody downstream who remembers what arrives."""

from collections import deque
from collections.abc import Sequence

from agents.worker.channels.channel import ChannelId, Delivery, FlushTimer, Mark, Window
from agents.worker.channels.ends import LocalIncoming, local_channel
from agents.worker.channels.groupings import Global, Router
from agents.worker.channels.input_gate import InputGate
from workloads.operators import Batch, Bolt, Emitted, Row, Spout


class Echo(Bolt):
    """Emits what it gets and remembers the batches; emits a row per tick."""

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


class Count(Spout):
    """Emits (0,), (1,), ... up to its limit."""

    def __init__(self, limit: int = 1 << 60, tick_ns: int = 0) -> None:
        self.next, self.limit = 0, limit
        self.asked: list[int] = []
        self.tick_ns = tick_ns

    def next_batch(self, limit: int) -> Sequence[Row]:
        self.asked.append(limit)
        first, self.next = self.next, min(self.limit, self.next + limit)
        return [(at,) for at in range(first, self.next)]

    def snapshot(self) -> bytes:
        return str(self.next).encode()

    def restore(self, state: bytes) -> None:
        self.next = int(state)


class Below:
    """A channel to somebody downstream, and what has arrived there."""

    def __init__(self, window: int = 1 << 20, name: str = "b[1]") -> None:
        self.queue: deque[Delivery] = deque()
        self.flush_timer = FlushTimer()
        size = Window(window, 1 << 30)
        self.outgoing, self.incoming = local_channel(
            ChannelId(0, 1, 0), 0, ("b", "default"), self.queue, size, self.flush_timer
        )
        self.router = Router(name, {"default": [Global(self.outgoing)]}, [self.outgoing])

    def consume(self) -> None:
        """Let go of all that has arrived."""
        while self.queue:
            _, rows, _, nbytes, _ = self.queue.popleft()
            self.incoming.consumed(len(rows), nbytes)

    def stamped(self) -> list[tuple[Row, int | None]]:
        """Rows with their stamps."""
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
        """Marks alone."""
        return [delivery.mark for delivery in self.queue if delivery.mark is not None]


def channel_into(inputs: InputGate, source: str = "a", number: int = 9) -> LocalIncoming:
    """The receiver's end of one more channel of a bolt."""
    _, incoming = local_channel(
        ChannelId(number, 0, 0), 0, (source, "default"), inputs, Window(1 << 20, 1 << 30), FlushTimer()
    )
    inputs.join(incoming)
    return incoming

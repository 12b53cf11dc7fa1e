"""The time slots of one worker in a run with gates: sending rows at the start of each, and reporting when it is done.

Rows are sent at the start of a time slot only. From the numbers of rows sent and received by all workers the controller
determines when a time slot has ended (`agents.protocol.SlotDone`). A slot also ends with unprocessed parts if only
later slots can unblock them: parts behind a barrier or tick that other channels have not delivered yet, or in front of
an executor whose own outboxes are full. Waiting for those would be a deadlock. If transfers overlap with processing, a
slot ends when all rows have arrived; then what a worker processes in a slot may have arrived in the one before.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from agents.protocol import Gates, Slot, SlotDone
from agents.worker.channels.channel import Outgoing
from agents.worker.channels.gated import Gated, GatedRouter, estimated_bytes
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.task_graph.plan import RunPlan
from agents.worker.task_graph.registry import TaskRegistry


class TimeSlots:
    """One worker's time slots in one epoch.

    Attributes:
        part_tuples: most rows that one executor may send to another per time slot.
    """

    def __init__(self, gates: Gates, plan: RunPlan, place: Slot, now_ns: Callable[[], int]) -> None:
        """Wait for the first time slot.

        Args:
            gates: the communication schedule.
            plan: of the run; `include` has those that follow with other numbers of executors.
            place: of this worker.
            now_ns: this node's monotonic clock.
        """
        self._epoch, self._place, self._now_ns = plan.spec.epoch, place, now_ns
        self._level: dict[int, int] = {}
        self.follow(gates, 0)
        self.include(plan)
        self._number: int | None = None
        self._sent = self._received = 0
        self._parts: dict[int, int] = {}
        self._reported: tuple[int, int, bool] | None = None
        self._processed: dict[BoltExecutor, int] = {}
        self._opened_ns = self._last_ns = 0
        self._arrived_ns: int | None = None
        self._first_ns: dict[BoltExecutor, int] = {}

    def include(self, plan: RunPlan) -> None:
        """Let executors of a plan send, too; those of earlier ones may have rows left."""
        level = plan.topology.level
        self._level |= {at: level[executor.component] for at, executor in plan.executors.items()}
        self._stage = self._stages()

    def _stages(self) -> dict[int, int]:
        return {at: min(level, self._gates.stages - 1) for at, level in self._level.items()}

    def follow(self, gates: Gates, first: int) -> None:
        """Follow a schedule from time slot `first` on, which counts as its slot 0."""
        node = self._place.node
        self._gates, self._first = gates, first
        self.part_tuples = gates.part_tuples
        self._column = gates.nodes.index(node) if node in gates.nodes else None
        self._stage = self._stages()

    def arrived(self, rows: int) -> None:
        """Count rows that have arrived on a channel; none if it is a marker."""
        if rows:
            self._received += rows
            self._arrived_ns = self._now_ns()

    def opened(self, number: int) -> list[str | None]:
        """Return per stage the node to which this node's gates are open in time slot `number`."""
        steps, nodes, column = self._gates.steps, self._gates.nodes, self._column
        targets = (
            None if step is None or column is None else steps[step][column]
            for step in self._gates.steps_in(number - self._first)
        )
        return [None if target is None else nodes[target] for target in targets]

    def open(self, number: int, registry: TaskRegistry, places: Sequence[Slot]) -> None:
        """Send the permitted rows of time slot `number`; `places` are the slots of all workers, by number."""
        self._number, self._opened_ns = number, self._now_ns()
        self._processed = {bolt: bolt.worked.processed for bolt in registry.bolts}
        self._first_ns.clear()
        self._arrived_ns = None
        opened = self.opened(number)

        def is_open(channel: Outgoing) -> bool:
            return places[channel.peer].node == opened[self._stage[channel.id.sender]]

        for running in registry.executors:
            if isinstance(running.router, GatedRouter):
                for pool in running.router.pools:
                    pool.distribute(is_open)
        # Several streams from one executor to another share one part.
        left: Counter[tuple[int, int]] = Counter()
        for channel in registry.senders:
            if isinstance(channel, Gated) and channel.pending and is_open(channel):
                pair = channel.id[:2]
                left[pair] += channel.release(self._gates.part_tuples - left[pair])
        self._sent += left.total()
        self._parts = dict(Counter(receiver for (_, receiver), rows in left.items() if rows))

    def done(self, registry: TaskRegistry) -> SlotDone | None:
        """Return the report after a pass; None while there is more to process, or nothing new to report."""
        self._note_progress(registry)
        idle = not any(bolt.ready for bolt in registry.bolts)
        if self._number is None or self._reported == (self._number, self._received, idle):
            return None
        if not idle and self._gates.overlap == "none":
            return None
        self._reported = self._number, self._received, idle
        outboxes = [channel.pending for channel in registry.senders]
        for running in registry.executors:
            if isinstance(running.router, GatedRouter):
                outboxes += [pool.rows for pool in running.router.pools]
        waiting = [len(rows) for rows in outboxes]
        opened_ns = self._opened_ns
        return SlotDone(
            epoch=self._epoch,
            slot=self._place.index,
            number=self._number,
            sent=self._sent,
            received=self._received,
            parts=self._parts,
            waiting=sum(waiting),
            largest=max(waiting, default=0),
            first_ns=max(self._first_ns.values()) - opened_ns if self._first_ns else None,
            last_ns=self._last_ns - opened_ns if self._first_ns else None,
            arrived_ns=None if self._arrived_ns is None else self._arrived_ns - opened_ns,
            packed_ns=self._now_ns() - opened_ns if self._first_ns and idle else None,
            queued_rows=sum(waiting) + sum(bolt.inputs.rows for bolt in registry.bolts),
            queued_bytes=sum(map(estimated_bytes, outboxes)) + sum(bolt.inputs.nbytes for bolt in registry.bolts),
        )

    def _note_progress(self, registry: TaskRegistry) -> None:
        """Note which executors have processed rows since the last pass."""
        now_ns = None
        for bolt in registry.bolts:
            processed = bolt.worked.processed
            # An executor that has just moved here did its earlier work elsewhere.
            if processed != self._processed.setdefault(bolt, processed):
                self._processed[bolt] = processed
                now_ns = self._now_ns() if now_ns is None else now_ns
                self._first_ns.setdefault(bolt, now_ns)
                self._last_ns = now_ns

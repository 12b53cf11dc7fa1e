"""The time slots of one worker in a run with gates: sending rows at the start of each, and reporting when it is done.

Rows are sent at the start of a time slot only. From the numbers of rows sent and received by all workers the controller
determines when a time slot has ended (`agents.protocol.SlotDone`). A slot also ends with unprocessed parts if only
later slots can unblock them: parts behind a barrier or tick that other channels have not delivered yet, or in front of
an executor whose own outboxes are full. Waiting for those would be a deadlock.
"""

from collections import Counter
from collections.abc import Callable

from agents.protocol import Gates, Place, SlotDone
from agents.worker.channels.channel import Outgoing
from agents.worker.channels.gated import Gated, GatedRouter
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.task_graph.plan import RunPlan
from agents.worker.task_graph.registry import TaskRegistry


class TimeSlots:
    """One worker's time slots in one epoch.

    Attributes:
        part_tuples: most rows that one executor may send to another per time slot.
    """

    def __init__(self, gates: Gates, plan: RunPlan, place: Place, now_ns: Callable[[], int]) -> None:
        """Wait for the first time slot.

        Args:
            gates: the communication schedule.
            plan: of the run; moves do not change the numbers of executors.
            place: of this worker.
            now_ns: this node's monotonic clock.
        """
        self.part_tuples = gates.part_tuples
        self._gates, self._epoch, self._place, self._now_ns = gates, plan.spec.epoch, place, now_ns
        self._column = gates.nodes.index(place.node) if place.node in gates.nodes else None
        level = plan.topology.level
        self._stage = [min(level[executor.component], gates.stages - 1) for executor in plan.executors]
        self._number: int | None = None
        self._sent = self._received = 0
        self._parts: dict[int, int] = {}
        self._reported: tuple[int, int] | None = None
        self._processed: dict[BoltExecutor, int] = {}
        self._opened_ns = self._last_ns = 0
        self._first_ns: dict[BoltExecutor, int] = {}

    def arrived(self, rows: int) -> None:
        """Count rows that have arrived on a channel."""
        self._received += rows

    def opened(self, number: int) -> list[str | None]:
        """Return per stage the node to which this node's gates are open in time slot `number`."""
        steps, nodes, column = self._gates.steps, self._gates.nodes, self._column
        targets = (
            None if step is None or column is None else steps[step][column] for step in self._gates.steps_in(number)
        )
        return [None if target is None else nodes[target] for target in targets]

    def open(self, number: int, registry: TaskRegistry, node_of: Callable[[int], str]) -> None:
        """Send the permitted rows of time slot `number`; `node_of` returns the node of a worker."""
        self._number, self._opened_ns = number, self._now_ns()
        self._processed = {bolt: bolt.worked.processed for bolt in registry.bolts}
        self._first_ns.clear()
        opened = self.opened(number)

        def is_open(channel: Outgoing) -> bool:
            return node_of(channel.peer) == opened[self._stage[channel.id.sender]]

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
        if self._number is None or self._reported == (self._number, self._received):
            return None
        if any(bolt.ready for bolt in registry.bolts):
            return None
        self._reported = self._number, self._received
        waiting = [len(channel.pending) for channel in registry.senders]
        for running in registry.executors:
            if isinstance(running.router, GatedRouter):
                waiting += [len(pool.rows) for pool in running.router.pools]
        return SlotDone(
            epoch=self._epoch,
            slot=self._place.slot,
            number=self._number,
            sent=self._sent,
            received=self._received,
            parts=self._parts,
            waiting=sum(waiting),
            largest=max(waiting, default=0),
            first_ns=max(self._first_ns.values()) - self._opened_ns if self._first_ns else None,
            last_ns=self._last_ns - self._opened_ns if self._first_ns else None,
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

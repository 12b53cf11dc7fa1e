"""Node membership of a run: agents that are gone are restarted; failed restarts are retried periodically."""

import asyncio
from collections.abc import Callable, Set

from controller.coordinator.event_log import EventLog
from controller.coordinator.interfaces import Assignment, Environment
from controller.host.condition import Condition, run_together
from inventory.errors import MillraceError, RunError
from scheduler.online.observation import Happening
from workloads.traffic import Traffic

RESTART_S = 20.0
"""Timeout for the restart of an agent; its node is lost when it is exceeded."""

RETRY_S = 5.0
"""Pause between two attempts to reach lost nodes."""


class NodeMembership:
    """The nodes of a run.

    Attributes:
        gone: node -> reason, for nodes whose agents are gone and have not been restarted yet.
        lost: nodes whose agents cannot be restarted.
        returned: nodes that were lost and are up again, but have not joined the epoch yet.
        withheld: nodes whose agents are up and which get no executors: not added yet, or drained.
    """

    def __init__(
        self,
        environment: Environment,
        event_log: EventLog,
        condition: Condition,
        on_change: Callable[[Happening, str], None],
        withheld: Set[str] = frozenset(),
    ) -> None:
        """Start with all agents up; `condition` is notified when a node has returned.

        `on_change` is called with `node_lost` or `node_returned`, and the node; not for the return of withheld nodes.
        """
        self._environment, self._event_log, self._condition = environment, event_log, condition
        self._on_change = on_change
        self.gone: dict[str, str] = {}
        self.lost: set[str] = set()
        self.returned: set[str] = set()
        self.withheld = set(withheld)
        self._held_until: dict[str, float] = {}

    def hold(self, node: str, until_s: float) -> None:
        """Do not restart the agent of `node` before `until_s` on the event loop's clock."""
        self._held_until[node] = until_s

    @property
    def usable(self) -> set[str]:
        """Nodes whose agents are up."""
        return set(self._environment.nodes) - self.gone.keys() - self.lost

    async def restart(self) -> set[str]:
        """Restart the agents that are gone; return the nodes where that succeeded. The others become lost."""
        up: set[str] = set()

        async def restart(node: str, why: str) -> None:
            try:
                await self._restart(node)
                up.add(node)
            except (MillraceError, TimeoutError) as fault:
                self.lost.add(node)
                self.returned.discard(node)
                reason = str(fault) or f"not up again within {RESTART_S:.0f} s"
                self._event_log.node_lost(node, f"{why}; {reason}")
                self._on_change("node_lost", node)
            del self.gone[node]

        await run_together(restart(node, why) for node, why in list(self.gone.items()))
        return up

    async def _restart(self, node: str) -> None:
        left_s = self._held_until.get(node, 0.0) - asyncio.get_running_loop().time()
        if left_s > 0:
            raise RunError(f"the timeline keeps it away for {left_s:.1f} s more")
        async with asyncio.timeout(RESTART_S):
            await self._environment.restart(node)

    async def retry_lost(self) -> None:
        """Retry to start the agents of lost nodes; never return."""
        while True:
            await asyncio.sleep(RETRY_S)
            for node in sorted(self.lost):
                try:
                    await self._restart(node)
                except (MillraceError, TimeoutError):
                    continue
                self.lost.discard(node)
                self.returned.add(node)
                self._event_log.node_returned(node)
                if node not in self.withheld:
                    self._on_change("node_returned", node)
                self._condition.notify()

    async def reassign(self, assignment: Assignment, traffic: Traffic | None) -> Assignment:
        """Return the same assignment, or a new one without lost and withheld nodes if an executor is on a lost node.

        Args:
            assignment: the assignment.
            traffic: the last observed traffic, if there is any.

        Raises:
            RunError: no placement exists without the lost nodes.
        """
        if not any(place.node in self.lost for place in assignment.places.values()):
            return assignment
        try:
            return await self._environment.place(frozenset(self.lost | self.withheld), assignment.places, traffic)
        except MillraceError as fault:
            raise RunError(f"without {', '.join(sorted(self.lost))}: {fault}") from None

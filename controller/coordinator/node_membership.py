"""Which nodes a run can use: agents that are gone are started again; where that fails, it is tried now and then."""

import asyncio

from controller.coordinator.event_log import EventLog
from controller.coordinator.interfaces import Environment, Seats
from controller.host.condition import Condition, all_of
from inventory.errors import MillraceError, RunError

RESTART_S = 20.0
"""How long an agent may take to be up again before its node is lost."""

CALL_EVERY_S = 5.0
"""Pause between two tries to reach lost nodes."""


class NodeMembership:
    """The nodes of a run.

    Attributes:
        gone: nodes whose agents are gone and have not been started again yet.
        lost: nodes whose agents cannot be started.
        returned: nodes that were lost and are up again, but take no part in the epoch yet.
    """

    def __init__(self, environment: Environment, event_log: EventLog, condition: Condition) -> None:
        """Begin with all agents up; `condition` is told when a node has returned."""
        self._environment, self._event_log, self._condition = environment, event_log, condition
        self.gone: dict[str, str] = {}
        self.lost: set[str] = set()
        self.returned: set[str] = set()

    @property
    def usable(self) -> set[str]:
        """Nodes whose agents are up."""
        return set(self._environment.nodes) - self.gone.keys() - self.lost

    async def restart(self) -> set[str]:
        """Start the agents again that are gone; return the nodes where they are up. The others are lost now."""
        up: set[str] = set()

        async def restart(node: str, why: str) -> None:
            try:
                async with asyncio.timeout(RESTART_S):
                    await self._environment.restart(node)
                up.add(node)
            except (MillraceError, TimeoutError) as fault:
                self.lost.add(node)
                self.returned.discard(node)
                reason = str(fault) or f"not up again within {RESTART_S:.0f} s"
                self._event_log.node_lost(node, f"{why}; {reason}")
            del self.gone[node]

        await all_of(restart(node, why) for node, why in list(self.gone.items()))
        return up

    async def call_lost(self) -> None:
        """Try again and again to start the agents of lost nodes."""
        while True:
            await asyncio.sleep(CALL_EVERY_S)
            for node in sorted(self.lost):
                try:
                    async with asyncio.timeout(RESTART_S):
                        await self._environment.restart(node)
                except (MillraceError, TimeoutError):
                    continue
                self.lost.discard(node)
                self.returned.add(node)
                self._event_log.node_returned(node)
                self._condition.tell()

    async def place_again(self, seats: Seats) -> Seats:
        """The places that executors have from now on: the same, unless one of them is on a lost node.

        Raises:
            RunError: there is no placement without the lost nodes.
        """
        if not any(place.node in self.lost for place in seats.places.values()):
            return seats
        try:
            return await self._environment.place(frozenset(self.lost))
        except MillraceError as fault:
            raise RunError(f"without {', '.join(sorted(self.lost))}: {fault}") from None

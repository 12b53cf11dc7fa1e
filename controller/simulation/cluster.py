"""Cluster of nodes in memory under a real coordinator: clocks, disks, replicas, and messages with delays.

Time is that of the event loop (`virtual_loop`). What agents do is left to subclasses, see `agents`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from agents.protocol import Message, Report, RunSpec
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.coordinator import Coordinator
from controller.coordinator.interfaces import Environment, Offset
from controller.coordinator.online_loop import OnlineSettings
from inventory.errors import RunError
from inventory.times import NS

DAY_NS = 86_400 * NS
DRIFTS = (20e-6, -35e-6, 50e-6)
"""Drifts of nodes' clocks, in seconds per second, in turn: of the size of those of real quartzes."""

M = TypeVar("M", bound=Message)


class NodeClock(NamedTuple):
    """Monotonic clock of a node: its lead over the controller's at time 0, and its drift in seconds per second.

    Example:
        >>> NodeClock(5 * NS, drift=0.001).read(1000 * NS) / NS
        1006.0
    """

    lead_ns: int = 0
    drift: float = 0.0

    def lead(self, now_ns: int) -> int:
        """Return the lead at `now_ns` of the controller's clock, in nanoseconds."""
        return self.lead_ns + round(self.drift * now_ns)

    def read(self, now_ns: int) -> int:
        """Return the time of this clock at `now_ns` of the controller's clock, in nanoseconds."""
        return now_ns + self.lead(now_ns)


def differing_clocks(nodes: Iterable[str]) -> dict[str, NodeClock]:
    """Return node -> clock; clocks differ by days, as those of machines that booted at different times, and drift."""
    return {node: NodeClock((1 + 3 * at) * DAY_NS, DRIFTS[at % len(DRIFTS)]) for at, node in enumerate(nodes)}


class MessageQueue(Generic[M]):
    """Messages in one direction between the controller and an agent, which arrive in order.

    Iteration yields those that have not arrived, the oldest first.

    Args:
        receive: handles a message that arrives.
        delay_s: time from `put` to the arrival; None: messages arrive when `deliver` is called.
    """

    def __init__(self, receive: Callable[[M], None], delay_s: float | None) -> None:
        self._receive, self._delay_s = receive, delay_s
        self._waiting: deque[M] = deque()
        self._connection = 0

    def __iter__(self) -> Iterator[M]:
        return iter(self._waiting)

    def put(self, message: M) -> None:
        """Send a message."""
        self._waiting.append(message)
        if self._delay_s is not None:
            asyncio.get_running_loop().call_later(self._delay_s, self._arrive, self._connection)

    def _arrive(self, connection: int) -> None:
        if connection == self._connection:
            self.deliver()

    def deliver(self) -> bool:
        """Let the oldest message arrive; return whether there was one."""
        if not self._waiting:
            return False
        self._receive(self._waiting.popleft())
        return True

    def clear(self) -> None:
        """Lose all messages that have not arrived."""
        self._connection += 1
        self._waiting.clear()


class SimulatedNode:
    """A node: its clock, the files on its disk, and its agent.

    Attributes:
        files: file, relative to the node's folder -> its content.
        reachable: whether an agent can be started.
        up: whether the agent runs.
        epoch: epoch of the agent's workers; 0: it has none.
        commands, reports: messages to the agent, and from it.
    """

    def __init__(self, clock: NodeClock, commands: MessageQueue[Message], reports: MessageQueue[Report]) -> None:
        self.clock, self.commands, self.reports = clock, commands, reports
        self.files: dict[str, Any] = {}
        self.reachable = self.up = True
        self.epoch = 0

    def end_agent(self) -> None:
        """End the agent and its workers; messages that have not arrived are lost."""
        self.up, self.epoch = False, 0
        self.commands.clear()
        self.reports.clear()


class MemoryReplicas:
    """Replicas in memory of nodes' files; see `controller.coordinator.interfaces.ReplicaStore`.

    Args:
        nodes: the nodes, by id.
        delay_s: time that a copy takes.
    """

    def __init__(self, nodes: Mapping[str, SimulatedNode], delay_s: float = 0.0) -> None:
        self._nodes, self._delay_s = nodes, delay_s
        self.files: dict[str, Any] = {}

    async def replicate(self, node: str, file: str, name: str) -> None:
        await asyncio.sleep(self._delay_s)
        if not self._nodes[node].up or file not in self._nodes[node].files:
            raise RunError(f"{file} of {node} cannot be read")
        self.files[name] = self._nodes[node].files[file]

    async def restore(self, name: str, node: str, file: str) -> None:
        await asyncio.sleep(self._delay_s)
        if not self._nodes[node].reachable:
            raise RunError(f"{node} cannot be reached")
        self._nodes[node].files[file] = self.files[name]

    async def drop(self, folder: str) -> None:
        for name in [name for name in self.files if name.startswith(f"{folder}/")]:
            del self.files[name]


class SimulatedCluster(ABC):
    """Nodes in memory, and the coordinator that controls them.

    Args:
        spec: the run.
        settings: settings of the coordinator.
        clocks: node -> its clock.
        delay_s: time from sending to arrival of a message, of copies and of inputs; None: messages arrive when they
            are delivered by hand, and the rest takes no time.
        environment: the other fields of the coordinator's `Environment`, such as `place`.
        online: settings of an online scheduler.

    Attributes:
        nodes: node -> its state.
        events: events of the coordinator: kind, subject, detail, value.
        restart_s: time that the start of an agent takes.
    """

    restart_s = 0.1

    def __init__(
        self,
        spec: RunSpec,
        settings: ControlSettings,
        clocks: Mapping[str, NodeClock],
        delay_s: float | None,
        environment: Mapping[str, Any],
        online: OnlineSettings | None = None,
    ) -> None:
        self._delay_s = delay_s
        self.nodes = {name: self._node(name, clocks[name]) for name in clocks}
        self.replicas = MemoryReplicas(self.nodes, delay_s or 0.0)
        self.events: list[tuple[str, str, str, float | None]] = []
        self.coordinator = Coordinator(
            spec,
            Environment(
                nodes=tuple(self.nodes),
                send=self.send,
                restart=self.restart,
                supply=self.supply,
                offset=self.offset,
                replicas=self.replicas,
                note=self._note,
                **environment,
            ),
            settings,
            online,
        )

    def _node(self, name: str, clock: NodeClock) -> SimulatedNode:
        commands = MessageQueue[Message](partial(self.handle, name), self._delay_s)
        return SimulatedNode(clock, commands, MessageQueue[Report](partial(self._receive, name), self._delay_s))

    def _receive(self, node: str, report: Report) -> None:
        self.coordinator.handle_report(node, report)

    def _note(self, kind: str, subject: str, detail: str, value: float | None) -> None:
        self.events.append((kind, subject, detail, value))

    @abstractmethod
    def handle(self, node: str, message: Message) -> None:
        """Let a node's agent handle a command of the controller."""

    # --- environment of the coordinator ----------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """Time of the controller's clock."""
        return round(asyncio.get_running_loop().time() * NS)

    def offset(self, node: str) -> Offset:
        """Return the lead of a node's clock over the controller's."""
        return Offset(self.nodes[node].clock.lead(self.now_ns), 0)

    async def send(self, node: str, message: Message) -> None:
        """Send a message to an agent.

        Raises:
            RunError: the agent is gone.
        """
        if not self.nodes[node].up:
            raise RunError(f"the agent of {node} is gone")
        self.nodes[node].commands.put(message)
        await asyncio.sleep(0)

    async def restart(self, node: str) -> None:
        """Start a node's agent again; its workers end.

        Raises:
            RunError: the node cannot be reached.
        """
        await asyncio.sleep(self.restart_s)
        if not self.nodes[node].reachable:
            raise RunError(f"{node} cannot be reached")
        self.end_agent(node)
        self.nodes[node].up = True

    async def supply(self, node: str) -> None:
        """Copy the inputs to a node.

        Raises:
            RunError: the node cannot be reached.
        """
        await asyncio.sleep(self._delay_s or 0.0)
        if not self.nodes[node].reachable:
            raise RunError(f"{node} cannot be reached")

    # --- faults ----------------------------------------------------------------------------------------------------

    def end_agent(self, node: str) -> None:
        """End an agent and its workers; the coordinator does not notice."""
        self.nodes[node].end_agent()

    def kill_agent(self, node: str) -> None:
        """Kill an agent, and with it its workers."""
        if self.nodes[node].up:
            self.end_agent(node)
            self.coordinator.handle_agent_gone(node, f"the agent of {node} was killed")

    def lose_node(self, node: str) -> None:
        """Lose a node and everything stored on it."""
        self.nodes[node].reachable = False
        self.kill_agent(node)
        self.nodes[node].files.clear()

    def return_node(self, node: str) -> None:
        """Bring a node back, with an empty disk."""
        self.nodes[node].reachable = True

"""Events of a run that an agenda scripts."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from agents.protocol import MoveToPlace, Slot


@dataclass(frozen=True)
class NodeUp:
    """A node may be used from `at_s` seconds after the start of the sources on, as the times of all events are."""

    at_s: float
    node: str


@dataclass(frozen=True)
class NodeDown:
    """A node may not be used any longer: its executors leave, its agent keeps running."""

    at_s: float
    node: str


@dataclass(frozen=True)
class SetCpu:
    """CPU settings of a node change; `settings` is a document of `agents.cpu.request.CpuRequest`."""

    at_s: float
    node: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class KillWorker:
    """A worker is killed."""

    at_s: float
    place: Slot


@dataclass(frozen=True)
class KillAgent:
    """The agent of a node is killed, and its node cannot return within `for_s` seconds."""

    at_s: float
    node: str
    for_s: float


@dataclass(frozen=True)
class AskScheduler:
    """An online scheduler is asked, whenever it would be asked next."""

    at_s: float


@dataclass(frozen=True)
class ScaleComponents:
    """These components have another number of executors each."""

    at_s: float
    components: tuple[str, ...]
    to: int


class MoveRequest(NamedTuple):
    """Request to move an executor, by name, to a node: to the given slot, or to one chosen by `chosen_slot`."""

    executor: str
    node: str
    slot: int | None = None

    @property
    def target(self) -> str:
        """The requested target, `node` or `node/slot`."""
        return self.node if self.slot is None else f"{self.node}/{self.slot}"

    def is_met_by(self, place: Slot | None) -> bool:
        """Return whether an executor at `place` is at its target."""
        return place is not None and place.node == self.node and self.slot in (None, place.index)


@dataclass(frozen=True)
class MoveExecutors:
    """Executors move at one barrier, together or not at all."""

    at_s: float
    requests: tuple[MoveRequest, ...]

    def moves(self, places: Mapping[str, Slot], workers: Collection[Slot]) -> tuple[MoveToPlace, ...]:
        """Return the moves of executors that are not at their targets; `places` are the slots of all executors."""
        return tuple(
            MoveToPlace(
                each.executor, Slot(each.node, chosen_slot(each.node, workers) if each.slot is None else each.slot)
            )
            for each in self.requests
            if not each.is_met_by(places.get(each.executor))
        )


def chosen_slot(node: str, workers: Collection[Slot]) -> int:
    """Return the lowest slot of a node that has a worker, or 0 when none has one."""
    return min((place.index for place in workers if place.node == node), default=0)


ScriptedEvent = NodeUp | NodeDown | SetCpu | KillWorker | KillAgent | AskScheduler | ScaleComponents | MoveExecutors


def withheld_nodes(events: Iterable[ScriptedEvent]) -> frozenset[str]:
    """Return the nodes that are not used at the start: those that come up before they go down.

    Args:
        events: events of a run, ordered by time.
    """
    first: dict[str, ScriptedEvent] = {}
    for event in events:
        if isinstance(event, NodeUp | NodeDown):
            first.setdefault(event.node, event)
    return frozenset(node for node, event in first.items() if isinstance(event, NodeUp))

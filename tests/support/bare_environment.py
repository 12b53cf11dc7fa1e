"""An environment of a coordinator that can do nothing but what a test gives it."""

from collections.abc import Mapping, Sequence, Set
from typing import Any

from agents.protocol import MoveToPlace, Slot
from controller.coordinator.interfaces import Environment, SlotRecord
from inventory.errors import RunError
from scheduler.problem import CommunicationSchedule


async def set_clocks(clocks: Mapping[str, int | None]) -> Mapping[str, str]:
    """Set no clock."""
    return dict.fromkeys(clocks, "clocks cannot be set here")


async def set_cpus(node: str, _settings: Mapping[str, Any]) -> None:
    """Refuse."""
    raise RunError(f"the CPUs of {node} cannot be set here")


def drain(_places: Mapping[str, Slot], _nodes: Set[str]) -> Sequence[MoveToPlace]:
    """Move no executor."""
    return ()


def enlarge(_places: Mapping[str, Slot], _nodes: Set[str], _sizes: Mapping[str, int]) -> Mapping[str, Slot]:
    """Add no executor."""
    return {}


async def schedule(_places: Mapping[str, Slot], _nodes: Set[str]) -> CommunicationSchedule | None:
    """Return no schedule."""
    return None


def note_slot(_record: SlotRecord) -> None:
    """Write nothing."""


WITHOUT_CONTROL: Mapping[str, Any] = {
    "set_clocks": set_clocks,
    "set_cpus": set_cpus,
    "drain": drain,
    "enlarge": enlarge,
    "schedule": schedule,
    "note_slot": note_slot,
}
"""Fields of an environment without control of clocks, CPUs and placements."""


def bare_environment(**given: Any) -> Environment:
    """Return an environment with what is given, and without control otherwise."""
    return Environment(**(WITHOUT_CONTROL | given))

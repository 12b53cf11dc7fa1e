"""The sensor interface: probe, read, close."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from inventory.energy_model import EnergyModel, MeterLag

GROUP = "millrace.sensors"
"""Entry-point group of sensors."""


class Row(NamedTuple):
    """One row for a trace table (`agents.trace.TABLES`).

    Attributes:
        table: the table's name.
        t_ns: the node's monotonic clock.
        values: the columns after `run, node, worker, t_ns`, in order; None where a value is not available.
    """

    table: str
    t_ns: int
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Host:
    """What a sensor may know of the node that it measures.

    Attributes:
        node: the node's id.
        address: its data address.
        shared: whether the machine carries other nodes too, so that its totals are not this node's alone.
        agent: process id of the node agent.
        workers: gives slot -> process id of the workers alive now.
        power: the node's energy model, where one is known; never of a node that shares its machine.
        meter_lag: how late the machine's meter is, where that is known.
    """

    node: str
    address: str
    shared: bool
    agent: int
    workers: Callable[[], Mapping[int, int]]
    power: EnergyModel | None = None
    meter_lag: MeterLag | None = None


class Sensor:
    """Measures one thing. All calls come from one thread, in the order probe, read (many times), close.

    A subclass must not block, or touch anything that changes what it measures. What once a second is too seldom for
    may have a thread of its own, which must be gone when `close` returns: its rows wait for the next `read`. It may
    raise from `read` whenever it likes: the sample is then missing, the event is recorded, the next read is tried.
    It must never report 0 for a value that it does not know: it leaves the row out, or the value None.
    """

    summary: ClassVar[str] = ""
    """One line for `millrace list sensors`."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def probe(self) -> str | None:
        """Return why this sensor cannot work on this host, or None when it can."""
        return None

    def read(self, now_ns: int) -> Iterable[Row]:
        """Measure.

        Args:
            now_ns: the monotonic clock when this sample began; rows of one sample share it, unless the sensor
                knows a time of its own.

        Returns:
            The rows of this sample. A rate is the mean since the same row was last returned, so that a value
            times the distance to its predecessor adds up over any interval; the first read gives no rate.
        """
        raise NotImplementedError("a sensor implements read")

    def awaits(self, t_ns: int) -> bool:
        """Whether rows about a moment that has passed are still to come; then `read` is called for a while longer."""
        return False

    def close(self) -> None:
        """Release what was taken; called once, also when `probe` gave a reason or `read` failed."""

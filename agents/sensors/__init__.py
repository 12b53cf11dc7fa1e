"""Sensors: measurements of a node, once a second; and their interface: probe, read, close.

`sampler` is the thread that reads all sensors. Most other files are sensors, registered under the entry-point group
`millrace.sensors` like third-party ones.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from inventory.values import EnergyModel, MeterLag

GROUP = "millrace.sensors"
"""Entry-point group of sensors."""


class Row(NamedTuple):
    """One row for a trace table (`agents.trace.COLUMNS`).

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
    """The node that a sensor measures.

    Attributes:
        node: the node's id.
        address: its data address.
        shared: whether the machine hosts other nodes too, so that its totals are not those of this node.
        agent: process id of the node agent; None if there is none.
        workers: returns slot -> process id of the live workers.
        power: the node's energy model, if known; None for a node that shares its machine.
        meter_lag: delay of the machine's external meter, if known.
        root: root of the node's files; not `/` if the node consists of namespaces and the sensors run outside of them.
    """

    node: str
    address: str
    shared: bool
    agent: int | None
    workers: Callable[[], Mapping[int, int]]
    power: EnergyModel | None = None
    meter_lag: MeterLag | None = None
    root: Path = Path("/")


class Sensor:
    """Base class of sensors. All calls come from one thread, in the order probe, read (many times), close.

    A subclass must not block, or disturb what it measures. If it has to measure more than once a second, it may start a
    thread, which must have ended when `close` returns; its rows are returned by the next `read`. If `read` raises, the
    sample is missing, an event is recorded, and the next read is tried. A sensor must never report 0 for an unknown
    value: it omits the row, or returns None for the value.
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
            now_ns: the monotonic clock at the start of this sample; rows of one sample share it, unless the sensor
                has more precise times.

        Returns:
            The rows of this sample. A rate is the mean since the previous row, so that the sum of rate times interval
            is the total over any period; the first read returns no rate.
        """
        raise NotImplementedError("a sensor implements read")

    def awaits(self, t_ns: int) -> bool:
        """Return whether rows about the past moment `t_ns` are still pending; if so, `read` is called again."""
        return False

    def close(self) -> None:
        """Release all resources; called once, also if `probe` returned a reason or `read` failed."""

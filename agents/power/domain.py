"""Metered domains, their readings, and the interface of readers."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple

from msgspec import Struct

from agents.host_files import Finding
from agents.power.host import MeteredHost
from agents.power.settings import PowerSettings

Role = Literal["package", "dram", "core", "uncore", "platform", "board", "outlet"]

MOST_WATTS = 1000.0
"""Default of the highest power that a domain can draw."""


class Domain(Struct, frozen=True):
    """One thing that a reader meters.

    Attributes:
        name: the kernel's name with its index: `package-1`, `dram/package-1`.
        role: kind of domain; `package` includes `core` and `uncore`, `platform` includes all of them.
        source: name of the reader.
        path: file or device that is read.
        in_total: whether it is a term of the node's total.
        joules_per_count: unit of an energy counter; None for a sensor that reports watts.
        raw_max: the highest value of the counter before it wraps to 0; None when unknown.
        unit: smallest increment of the counter in counts; None when unknown.
        most_watts: readings with a higher mean power are rejected.
        longest_s: longest time between readings of a sensor; energy over a longer gap is unknown.
        flags: flags of all its samples: `mirror`, `filtered`, `modelled`.
        reason: why it cannot be read; empty when it can.
    """

    name: str
    role: Role
    source: str
    path: str
    in_total: bool
    joules_per_count: float | None = None
    raw_max: int | None = None
    unit: float | None = None
    most_watts: float = MOST_WATTS
    longest_s: float = 1.0
    flags: tuple[str, ...] = ()
    reason: str = ""


class Reading(NamedTuple):
    """Reading of a domain.

    Attributes:
        domain: the domain.
        t_ns: time on the monotonic clock, in the middle of the read.
        half_ns: half the duration of the read: the uncertainty of the time.
        value: counts of a counter, or watts; None when there is no valid value.
        reason: why there is no value.
        bound_watts: error of the watts as stated by the sensor.
        charging: whether there is no value because a battery is being charged.
    """

    domain: Domain
    t_ns: int
    half_ns: int
    value: int | float | None
    reason: str = ""
    bound_watts: float = 0.0
    charging: bool = False


class Reader(ABC):
    """One kind of meter on one host. Calls are in the order probe, open, read (many times), close, from any thread.

    `open` and `read` must not change the metered hardware. `read` must not raise: a domain that cannot be read has a
    reading without a value and with its reason.
    """

    name: ClassVar[str]

    def __init__(self, host: MeteredHost, settings: PowerSettings) -> None:
        self.host, self.settings = host, settings

    @abstractmethod
    def probe(self) -> Finding:
        """Check whether it can be used on this host, without opening anything and without waiting."""

    @abstractmethod
    def open(self) -> None:
        """Open the meter.

        Raises:
            OSError: it does not work; the message is the reason.
        """

    @property
    @abstractmethod
    def domains(self) -> tuple[Domain, ...]:
        """Metered domains, available after `open`; a reader of messages discovers them one by one."""

    @property
    def trouble(self) -> str:
        """Last error of a reader without any domain yet; empty when there is none."""
        return ""

    @abstractmethod
    def read(self) -> list[Reading]:
        """Read its domains now; those without a new value since the last call are left out."""

    def close(self) -> None:  # noqa: B027 - a reader that holds nothing has nothing to do
        """Release everything; called once, also after `open` has failed."""

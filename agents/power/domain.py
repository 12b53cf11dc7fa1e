"""What is metered: domains, and what a reader says of them."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple

from msgspec import Struct

from agents.host_files import Finding
from agents.power.host import MeteredHost
from agents.power.settings import PowerSettings

Role = Literal["package", "dram", "core", "uncore", "platform", "board", "outlet"]

MOST_WATTS = 1000.0
"""What a domain can draw at most, where nothing better is known."""


class Domain(Struct, frozen=True):
    """One thing that a reader meters.

    Attributes:
        name: as the kernel calls it, with its index: `package-1`, `dram/package-1`.
        role: what it is; `core` and `uncore` are inside `package`, `platform` holds all of them.
        source: the reader.
        path: where it is read.
        in_total: whether it is one of the terms of the node's total.
        joules_per_count: of an energy counter; None for a sensor that tells watts.
        raw_max: the highest value of the counter, after which it begins at 0 again; None when that is not known.
        unit: counts by which the counter goes up at least; None when that is not known.
        most_watts: a mean power above this is not believed.
        longest_s: a sensor's word holds for so long at most; what was drawn over a longer silence is not known.
        flags: of all its samples: `mirror`, `filtered`, `modelled`.
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
    """What a domain said at one moment.

    Attributes:
        domain: which.
        t_ns: monotonic clock, the middle between before and after.
        half_ns: half the distance of the two: how far the moment may be off.
        value: counts of a counter, or watts; None when it said nothing of use.
        reason: why not.
        bound_watts: how far the watts may be off by the sensor's own account.
        charging: whether it said nothing because a battery is being charged.
    """

    domain: Domain
    t_ns: int
    half_ns: int
    value: int | float | None
    reason: str = ""
    bound_watts: float = 0.0
    charging: bool = False


class Reader(ABC):
    """One kind of meter on one host. Calls come in the order probe, open, read (many times), close, from any thread.

    `open` and `read` never change what is metered. `read` does not raise: what cannot be read is a reading without a
    value and with its reason.
    """

    name: ClassVar[str]

    def __init__(self, host: MeteredHost, settings: PowerSettings) -> None:
        self.host, self.settings = host, settings

    @abstractmethod
    def probe(self) -> Finding:
        """Whether it can be used on this host; opens nothing and does not wait."""

    @abstractmethod
    def open(self) -> None:
        """Begin.

        Raises:
            OSError: it does not work, in words.
        """

    @property
    @abstractmethod
    def domains(self) -> tuple[Domain, ...]:
        """What it meters, from `open` on; a reader of messages learns of its domains one by one."""

    @property
    def trouble(self) -> str:
        """What went wrong last where there is no domain yet that could say so; empty when nothing did."""
        return ""

    @abstractmethod
    def read(self) -> list[Reading]:
        """What its domains say now; those that have said nothing new since the last call are left out."""

    def close(self) -> None:  # noqa: B027 - a reader that holds nothing has nothing to do
        """Let go of everything; called once, also when `open` has failed half-way."""

"""What a campaign asks of the nodes of its cluster, however it reaches them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Protocol, Self

from msgspec import Struct

from controller.host.cleanup_log import CleanupLog
from controller.nodes.agents import Member
from inventory.ansible_hosts import Hosts


class Calibrated(Struct, frozen=True):
    """One property of a node, or of the link from it to another.

    Attributes:
        node: id of the node; for a link, the sender.
        to: id of the receiver; None where the property is the node's own.
        what: `cpu` in cores, `link` in Mbit/s of wire bytes, `rtt` in ms, `memory` in MB.
        asked: what the inventory asks for.
        got: what was measured.
        unit: of both.
    """

    node: str
    to: str | None
    what: Literal["cpu", "link", "rtt", "memory"]
    asked: float
    got: float
    unit: str

    @property
    def error(self) -> float:
        """By which part of what was asked the measurement is off; negative when it is too small."""
        return self.got / self.asked - 1


class Calibration(NamedTuple):
    """What nodes and links turned out to be when they were measured.

    Attributes:
        rows: what was asked for, and what was got.
        shortfall: what was got so little of that a run would tell nothing of this cluster, in words; empty: nothing.
    """

    rows: Sequence[Calibrated] = ()
    shortfall: str = ""


class Operator(NamedTuple):
    """What backends ask of the operator's desk.

    Attributes:
        provision: provision the hosts of an inventory.
        progress: show how far something is.
        notice: show what the operator must know.
    """

    provision: Callable[[Hosts], None]
    progress: Callable[[str], None]
    notice: Callable[[str], None]


class Backend(Protocol):
    """The nodes of a cluster, as the campaign that has them reaches them.

    An asynchronous context manager around all that is done with them: inside it they are the campaign's own.
    """

    @property
    def tier(self) -> int:
        """What the nodes are: 0 machines, 1 addresses of this host, 2 namespaces of this host."""
        ...

    @property
    def lock(self) -> str:
        """The name of what only one campaign can have at a time."""
        ...

    @property
    def processes(self) -> Sequence[int] | None:
        """Processes of this host from which all that works for the campaign descends; None: it works elsewhere, too.

        Asked inside `up`.
        """
        ...

    def check(self) -> None:
        """Find out what can be known without touching a node; to be called before anything else.

        Raises:
            MillraceError: the cluster cannot be used from here.
        """
        ...

    def up(self, state: CleanupLog) -> AbstractContextManager[None]:
        """Have nodes on this host, where the cluster is made of such, as long as the block lasts.

        Args:
            state: is told of whatever is made on this host for that.

        Raises:
            MillraceError: they cannot be made.
        """
        ...

    async def __aenter__(self) -> Self:
        """Take all nodes, which are free of whatever an earlier campaign has left.

        Raises:
            MillraceError: some cannot be reached or used, and why.
        """
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def members(self, name: str, work: Path) -> Mapping[str, Member]:
        """All available nodes, each with a folder of its own for one attempt.

        Args:
            name: of the attempt.
            work: a folder of this host, for what belongs to the attempt here.
        """
        ...

    async def check_room(self, input_bytes: int) -> None:
        """Find out whether every node has room for inputs of this size and for what a run writes.

        Raises:
            MillraceError: one has not, or cannot be reached.
        """
        ...

    async def calibrate(self) -> Calibration:
        """Measure what nodes and links are, just before a run; nothing where they are what they are.

        Raises:
            MillraceError: it cannot be measured.
        """
        ...

    async def look_back(self) -> None:
        """Find out whether something happened since `calibrate` that makes what was measured since worthless.

        Raises:
            RunError: it did, and what.
        """
        ...

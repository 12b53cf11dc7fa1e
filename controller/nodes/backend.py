"""Interface of backends: how a campaign reaches and uses the nodes of its cluster."""

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
    """One measured property of a node or of a link.

    Attributes:
        node: id of the node; for a link, the sender.
        to: id of the receiver; None where the property is the node's own.
        what: `cpu` in cores, `link` in Mbit/s of wire bytes, `rtt` in ms, `memory` in MB.
        asked: value in the inventory.
        got: measured value.
        unit: unit of both.
    """

    node: str
    to: str | None
    what: Literal["cpu", "link", "rtt", "memory"]
    asked: float
    got: float
    unit: str

    @property
    def error(self) -> float:
        """Relative error of the measured value; negative when it is too small."""
        return self.got / self.asked - 1


class Calibration(NamedTuple):
    """Measured properties of nodes and links.

    Attributes:
        rows: requested and measured values.
        shortfall: message that names values too small for runs to be valid on this cluster; empty if there are none.
    """

    rows: Sequence[Calibrated] = ()
    shortfall: str = ""


class Operator(NamedTuple):
    """Callbacks of backends to the command line.

    Attributes:
        provision: provisions the hosts of an inventory.
        progress: shows progress.
        notice: shows a notice to the operator.
    """

    provision: Callable[[Hosts], None]
    progress: Callable[[str], None]
    notice: Callable[[str], None]


class Backend(Protocol):
    """Access to the nodes of a cluster.

    An asynchronous context manager; inside it, the nodes are reserved for the campaign.
    """

    @property
    def tier(self) -> int:
        """Kind of nodes: 0 machines, 1 addresses of this host, 2 namespaces of this host."""
        ...

    @property
    def lock(self) -> str:
        """Name of the lock that only one campaign can hold at a time."""
        ...

    @property
    def processes(self) -> Sequence[int] | None:
        """Ancestors on this host of all processes of the campaign; None if some run on other machines.

        Only valid inside `up`.
        """
        ...

    def check(self) -> None:
        """Check everything that can be checked without reaching a node; called before any other method.

        Raises:
            MillraceError: the cluster cannot be used from this host.
        """
        ...

    def up(self, state: CleanupLog) -> AbstractContextManager[None]:
        """Create the nodes for the duration of the block, if the cluster consists of nodes on this host.

        Args:
            state: records everything created on this host.

        Raises:
            MillraceError: they cannot be created.
        """
        ...

    async def __aenter__(self) -> Self:
        """Reserve all nodes and remove what earlier campaigns left there.

        Raises:
            MillraceError: nodes that cannot be reached or used, with the reason for each.
        """
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def members(self, name: str, work: Path) -> Mapping[str, Member]:
        """Return all available nodes by id, each with a new folder for one attempt.

        Args:
            name: name of the attempt.
            work: folder on this host for files of the attempt.
        """
        ...

    async def check_room(self, input_bytes: int) -> None:
        """Check that every node has disk space for inputs of this size and for the files of a run.

        Raises:
            MillraceError: a node has too little space or cannot be reached.
        """
        ...

    async def calibrate(self) -> Calibration:
        """Measure nodes and links just before a run; empty if the backend does not emulate them.

        Raises:
            MillraceError: the measurement failed.
        """
        ...

    async def check_since_calibration(self) -> None:
        """Check that nothing has happened since `calibrate` that invalidates the measurements of the run.

        Raises:
            RunError: something has; the message names it.
        """
        ...

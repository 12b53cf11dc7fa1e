"""Nodes made of namespaces and control groups of this host, which processes other than agents can join, too."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class LocalNode:
    """A node, or the controller, as processes of this host can join it.

    Attributes:
        address: its address in its network namespace.
        network: file of that namespace.
        groups: `cgroup.procs` files of its control group; the controller has none.
        cores: number of its cores; None: those of the host.
        memory_mb: its memory limit in MiB; None: that of the host.
        root: root of its files, seen from the host.
        account: file with the CPU time of its control group; None without one.
    """

    address: str
    network: Path
    groups: Sequence[Path] = ()
    cores: int | None = None
    memory_mb: int | None = None
    root: Path = Path("/")
    account: Path | None = None

    def command(self, command: Sequence[str]) -> tuple[str, ...]:
        """Return the command that runs another one in the network namespace and the control group of the node.

        The process has the id of the command that is returned, and files and process ids of its caller.
        """
        # The kernel takes 0 for the writing process, whatever its process namespace is.
        joins = "".join(f"echo 0 > {shlex.quote(str(group))} && " for group in self.groups)
        return ("nsenter", f"--net={self.network}", "sh", "-c", f'{joins}exec "$@"', "sh", *command)


class LocalNodes(Protocol):
    """The nodes of a cluster that is up on this host, and their limits."""

    @property
    def nodes(self) -> Mapping[str, LocalNode]:
        """The nodes by id."""
        ...

    @property
    def controller(self) -> LocalNode:
        """The controller, which reaches all nodes and has no limits."""
        ...

    async def limit(self) -> Mapping[str, float]:
        """Apply all limits of CPU time and memory; return node -> CPU quota in cores of this host.

        Raises:
            RunError: the kernel refuses one of them, or a node has ended.
        """
        ...

    async def lift(self) -> None:
        """Lift all limits of CPU time and memory.

        Raises:
            RunError: the cluster does not answer.
        """
        ...

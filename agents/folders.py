"""Where things lie on a node.

    <node folder>/                the folder of the controller's `Welcome`
        inputs/<file>             prepared inputs, put there by the controller before `Start`
        logs/agent.log            what the agent and its sensors printed
        <run>.<epoch>/            one start of a topology
            traces/               Arrow stream files of the agent and of all workers of this node
            logs/worker-<k>.log   what the worker of slot k printed, its tracebacks included
            slot<k>/              working folder of slot k's worker, the folder of its `Welcome`: its answers lie here

A start has a folder of its own, so that a second start of the same run never mixes with what the first one left.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from inventory.errors import RunError

_PLAIN = re.compile(r"[A-Za-z0-9_+=,@-][A-Za-z0-9_.+=,@-]{0,199}")
"""Names that can be one path component and nothing else: no separator, no leading dot."""


def plain_name(kind: str, name: str) -> str:
    """Return `name` when it can safely be one path component.

    Raises:
        RunError: it cannot; `kind` says in the message what it is the name of.
    """
    if not _PLAIN.fullmatch(name):
        raise RunError(f"the {kind} {name!r} cannot be a file name: letters, digits and _.+=,@- only, no leading dot")
    return name


@dataclass(frozen=True)
class NodeFolder:
    """The folder of one node."""

    path: Path

    @property
    def log(self) -> Path:
        """Log of the agent."""
        return self.path / "logs" / "agent.log"

    def input(self, file: str) -> Path:
        """A prepared input by its file name."""
        return self.path / "inputs" / plain_name("input file", file)

    def start(self, run: str, epoch: int) -> "StartFolder":
        """Folder of one start of a topology."""
        return StartFolder(self, self.path / f"{plain_name('run', run)}.{epoch}")


@dataclass(frozen=True)
class StartFolder:
    """The folder of one start of a topology on one node."""

    node: NodeFolder
    path: Path

    @classmethod
    def of_slot(cls, folder: Path) -> Self:
        """The same, from the folder that a worker was told."""
        return cls(NodeFolder(folder.parent.parent), folder.parent)

    @property
    def traces(self) -> Path:
        """Trace files of all processes; their names hold node and slot."""
        return self.path / "traces"

    def slot(self, slot: int) -> Path:
        """Working folder of a slot's worker."""
        return self.path / f"slot{slot}"

    def log(self, slot: int) -> Path:
        """Log of a slot's worker."""
        return self.path / "logs" / f"worker-{slot}.log"

    def make(self, slots: list[int]) -> None:
        """Make what is missing.

        Raises:
            OSError: it cannot be made.
        """
        for folder in (self.traces, self.path / "logs", *(self.slot(slot) for slot in slots)):
            folder.mkdir(parents=True, exist_ok=True)

"""A node of an emulated cluster as its keeper has it: a process that is the node's first, and its end."""

import os
import subprocess
import sys
from pathlib import Path
from typing import IO, cast

import msgspec

from controller.emulation.node_init import READY, NodePlan
from inventory.errors import UnfitError

_CHILDREN = "/proc/{pid}/task/{pid}/children"


class EmulatedNode:
    """A node that is being started; `wait` until it can be reached."""

    def __init__(self, plan: NodePlan, log: Path) -> None:
        """Start it; what goes wrong in it goes to `log`."""
        self.plan = plan
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "controller.emulation.node_init"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._input = cast("IO[bytes]", self._process.stdin)
        self._input.write(msgspec.json.encode(plan) + b"\n")
        self._input.flush()

    @property
    def process(self) -> int:
        """The process that waits for the node's first."""
        return self._process.pid

    def wait(self) -> int:
        """Return the pid of its first process, as this host counts, once its SSH server answers.

        Raises:
            UnfitError: it could not be made; the message is its own.
        """
        with cast("IO[bytes]", self._process.stdout) as output:
            said = output.readline().decode(errors="replace").strip()
        if said != READY:
            self.stop()
            raise UnfitError(f"node {self.plan.name}: {said or 'it ended without a word'}")
        return int(Path(_CHILDREN.format(pid=self._process.pid)).read_text().split()[0])

    def stop(self) -> None:
        """End it, with everything that runs in it."""
        self._input.close()
        self._process.wait()

    @property
    def ended(self) -> bool:
        """Whether it has ended by itself, or somebody ended it."""
        return self._process.poll() is not None


def files_of_node(pid: int) -> Path:
    """The file system of the node whose first process is `pid`, as it is reached from outside."""
    return Path(os.sep) / "proc" / str(pid) / "root"

"""Handle of the emulation daemon on one node: start, init process, stop."""

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
    """A node that is starting; `wait` returns once it is reachable."""

    def __init__(self, plan: NodePlan, log: Path) -> None:
        """Start the node; its errors are written to `log`."""
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
        """Pid of the parent of the node's init process."""
        return self._process.pid

    def wait(self) -> int:
        """Wait until its SSH server answers; return the pid of its init process on this host.

        Raises:
            UnfitError: the node could not be started; the message is the node's own.
        """
        with cast("IO[bytes]", self._process.stdout) as output:
            line = output.readline().decode(errors="replace").strip()
        if line != READY:
            self.stop()
            raise UnfitError(f"node {self.plan.name}: {line or 'it ended without a message'}")
        return int(Path(_CHILDREN.format(pid=self._process.pid)).read_text().split()[0])

    def stop(self) -> None:
        """Stop the node with all its processes."""
        self._input.close()
        self._process.wait()

    @property
    def ended(self) -> bool:
        """Whether it has ended, for whatever reason."""
        return self._process.poll() is not None


def files_of_node(pid: int) -> Path:
    """Return the path of a node's root file system from outside; `pid` is its init process."""
    return Path(os.sep) / "proc" / str(pid) / "root"

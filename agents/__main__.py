"""`python -P -m agents`: a node agent, controlled over standard input and output.

The fork server is forked once a worker's modules are imported, and then the agent's own. A worker inherits the memory
of its fork server. The agent's own modules (asyncio, TLS, meters) take 5 MB there, so they are imported after the fork.
"""

import os
import select
import sys
from collections.abc import Sequence
from pathlib import Path

from agents.protocol import SILENCE_S
from agents.worker.process.fork_server import name_process, start_fork_server
from inventory.errors import UnfitError
from inventory.foreign import printable
from inventory.parent_death import end_with

GROUPS = "groups"
"""Name of the file with the paths of the control groups to enter."""

_UNFIT = 3
"""Exit status without a control channel, or when limits do not hold."""


def main(silence_s: float = SILENCE_S, command: Sequence[str] | None = None) -> int:
    """Run an agent on standard input and output; return the exit status.

    Args:
        silence_s: longest time to run without a heartbeat.
        command: starts a fork server of workers; None: this process forks the first one itself.
    """
    end_with(os.getppid())()
    try:
        with select.epoll() as probe:
            probe.register(0, 0)
            # The kernel always reports a hang-up.
            if probe.poll(0):
                return _unfit("the controller ended before its agent had started")
    except OSError:
        return _unfit("a node agent is started by a controller, with pipes as standard input and output")
    try:
        enter_groups(Path(sys.prefix).parent)
    except UnfitError as fault:
        return _unfit(str(fault))
    # Arrow reads this when it is loaded. Its own pool is for columns of many MB and holds 4 MB for a few trace rows.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    from agents.arrow_import import skip_pandas_import
    from agents.worker.__main__ import main as run_worker

    skip_pandas_import()
    # Fork before the process has resources that a fork server must not inherit: protocol pipes, event loop, threads.
    first = start_fork_server(run_worker) if command is None else None
    name_process("agent")
    from agents.agent.agent import run_agent
    from agents.agent.spawner import WORKER, Spawner

    return run_agent(silence_s, Spawner(command or WORKER, first))


def enter_groups(home: Path) -> None:
    """Enter the control groups that provisioning made for agents; processes started later inherit them.

    On hosts without systemd the role `limits` writes the file `groups` beside the agents' environment. Each line is
    the path of a file that takes the id of a process which enters the group.

    Args:
        home: folder of the environment; without the file there are no groups to enter.

    Raises:
        UnfitError: a group is gone or does not admit this user, so that the limits would not hold.
    """
    try:
        paths = (home / GROUPS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return
    for path in paths:
        try:
            Path(path).write_text(f"{os.getpid()}\n", encoding="ascii")
        except OSError as fault:
            raise UnfitError(
                f"{path}: {fault.strerror}: this node's limits do not hold, perhaps since a reboot: provision it again"
            ) from None


def _unfit(reason: str) -> int:
    sys.stderr.write(f"{printable(reason)}\n")
    return _UNFIT


if __name__ == "__main__":
    sys.exit(main())

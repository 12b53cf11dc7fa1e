"""How a node agent begins: a fork server is split off as soon as there is what a worker needs, then comes the rest.

A worker has in its memory all that was there when its server was split off, whether it needs it or not: an agent's own
modules (asyncio, TLS, meters) are 5 MB. So what is imported here comes in an order.
"""

import os
import select
import sys
from collections.abc import Sequence

from agents.agent.cgroups import enter_groups, home_of_environment
from agents.protocol import SILENCE_S
from agents.worker.process.fork_server import name_process, split_off
from inventory.errors import UnfitError
from inventory.foreign import printable
from inventory.parent_death import end_with

_UNFIT = 3
"""Exit status when there is no channel to speak on."""


def main(silence_s: float = SILENCE_S, command: Sequence[str] | None = None) -> int:
    """Be an agent on standard input and output; return the exit status.

    Args:
        silence_s: how long to live without a heartbeat.
        command: starts a fork server of workers; None: this process splits off the first one itself.
    """
    end_with(os.getppid())()
    try:
        with select.epoll() as probe:
            probe.register(0, 0)
            # The kernel reports a hang-up without having been asked.
            if probe.poll(0):
                return _unfit("the controller was gone before its agent had begun")
    except OSError:
        return _unfit("a node agent is started by a controller, which talks to it on standard input and output: pipes")
    try:
        enter_groups(home_of_environment())
    except UnfitError as fault:
        return _unfit(str(fault))
    # Arrow asks when it is loaded. Its own pool is for columns of many MB: for a few rows of traces it keeps 4 MB.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    from agents.trace import settle_without_pandas
    from agents.worker.__main__ import main as work

    settle_without_pandas()
    # Before there is anything that a fork server should not have: the protocol's descriptors, an event loop, threads.
    first = split_off(work) if command is None else None
    name_process("agent")
    from agents.agent.agent import live
    from agents.agent.spawner import WORKER, Spawner

    return live(silence_s, Spawner(command or WORKER, first))


def _unfit(reason: str) -> int:
    sys.stderr.write(f"{printable(reason)}\n")
    return _UNFIT

"""A process that has imported all modules of a worker, and forks a worker on each request of its agent.

Importing a worker's modules costs a fifth of a second of CPU time and 26 MB. Arrow and NumPy cost as much again and are
imported once a worker with column operators is requested, because others do not need them. Forking a process that has
imported them costs milliseconds and shares the memory. The first server is forked from the agent before it starts
threads. If that server dies, a separate program replaces it, because a process with threads must not be forked.

The server's standard input is a sequenced-packet socket to the agent. The server sends `READY` once. Each request is
one byte, `REQUEST` or `ARROW_REQUEST`, with four descriptors (standard input, output and error, and working directory).
The answer is the process id of a new worker, or `FAILED` and the reason.

The server forks a worker through an intermediate process that ends at once, while the agent (`agents.agent.spawner`)
is the subreaper of its descendants. So the worker becomes a child of the agent: the agent gets its exit status, and a
server that dies takes no worker with it. Before a worker runs anything else, it starts a session of its own and sets
its parent-death signal, so that the kernel kills it when the agent dies.

The libraries that run threads in this process (OpenBLAS, jemalloc) have handlers that make them safe to fork.
"""

import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path

from inventory.libc import PARENT_DEATH_SIGNAL, PROCESS_NAME, set_property

READY = b"ready"
FAILED = b"not "
REQUEST, ARROW_REQUEST = b"w", b"a"
"""Requests for a worker, and for one whose operators process columns."""

DESCRIPTORS = 4

MAX_ANSWER_BYTES = 1024
"""Bytes of the longest answer."""

_POLL_S = 0.0005


def start_fork_server(work: Callable[[], int]) -> tuple[int, socket.socket] | None:
    """Fork a server from this process, which must not have threads yet; the server does not use its standard output.

    Args:
        work: runs a worker; returns its exit status.

    Returns:
        The server's process id, and the agent's end of the socket to it; None if the fork failed, in which case the
        next request for a worker tries again and reports the reason.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        server = os.fork()
    except OSError:
        ours.close()
        theirs.close()
        return None
    if server:
        theirs.close()
        return server, ours
    ours.close()
    os.setsid()
    os.dup2(theirs.detach(), 0)
    os.dup2(2, 1)
    run_fork_server()
    sys.exit(work())


def name_process(role: str) -> None:
    """Set the process name for `ps` and `top`; the command line is that of the process it was forked from."""
    set_property(PROCESS_NAME, f"millrace-{role}".encode())


def run_fork_server() -> None:
    """Serve requests until the agent is gone, then exit; return only in the forked workers.

    A worker has its pipes and its log as descriptors 0 to 2, and its folder as working directory. It has no other
    descriptors: a worker that held the server's socket would keep it open after the server's death, and the agent would
    wait for an answer.
    """
    agent = os.getppid()
    _close_from_3()
    set_property(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    name_process("server")
    # Ctrl-C goes to the agent's process group; the agent then ends server and workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Existing objects are never garbage, and the collector's writes to them would only unshare their pages.
    gc.collect()
    gc.freeze()
    descriptors = _serve(socket.socket(fileno=0))
    os.setsid()
    set_property(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != agent:
        # The agent died before the parent-death signal was set.
        os._exit(1)
    os.fchdir(descriptors[-1])
    for number, descriptor in enumerate(descriptors[:-1]):
        os.dup2(descriptor, number)
    # The server has no others, and looking for them would take every worker a third of a millisecond.
    os.closerange(3, max(descriptors) + 1)
    name_process("worker")


def _serve(channel: socket.socket) -> list[int]:
    """Answer requests; return only in a worker, with the descriptors of its request."""
    try:
        channel.send(READY)
        while True:
            request, descriptors, _flags, _address = socket.recv_fds(channel, len(REQUEST), DESCRIPTORS)
            if not request:
                sys.exit(0)
            if request == ARROW_REQUEST:
                _import_arrow()
            answer = _fork()
            if not answer:
                channel.detach()
                return descriptors
            for descriptor in descriptors:
                os.close(descriptor)
            channel.send(answer)
    except ConnectionError:
        sys.exit(0)


def _import_arrow() -> None:
    # With all that works on columns; workers then find it in their memory.
    import agents.worker.channels.column_groupings
    import agents.worker.wire.columns  # noqa: F401

    gc.freeze()


def _fork() -> bytes:
    """Fork a worker whose parent ends at once; return the answer to the request, and b"" in the worker."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as source, os.fdopen(writing, "wb", buffering=0) as target:
        try:
            intermediate = os.fork()
        except OSError as fault:
            return FAILED + str(fault).encode()
        if intermediate == 0:
            _fork_again(target)
            return b""
        # Until it is reaped, the intermediate process remains the worker's parent.
        os.waitpid(intermediate, 0)
        target.close()
        answer = source.read(MAX_ANSWER_BYTES)
    if not answer:
        # It was killed, possibly after forking a worker with unknown id: the agent must start over, with new pipes.
        sys.exit("the process that forks a worker was killed")
    return answer


def _fork_again(target: FileIO) -> None:
    """Fork the worker, write its process id to `target` and exit; return in the worker, once it has a new parent."""
    intermediate = os.getpid()
    try:
        worker = os.fork()
    except OSError as fault:
        target.write(FAILED + str(fault).encode())
        os._exit(1)
    if worker:
        target.write(str(worker).encode())
        os._exit(0)
    while os.getppid() == intermediate:
        time.sleep(_POLL_S)


def _close_from_3() -> None:
    """Close all descriptors except standard input, output and error."""
    for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if number >= 3:
            # The descriptor used to list the folder is closed already.
            with suppress(OSError):
                os.close(number)

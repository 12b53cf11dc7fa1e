"""A process that has everything imported, and forks a worker whenever its agent wants one.

To import a worker's program costs a quarter of a second of CPU time and 70 MB; a copy of a process that has done it
costs milliseconds, and shares that memory. So the server is itself a copy of the agent, made before that has threads;
when it dies, a program of its own takes its place, for an agent with threads must not be copied. The server's standard
input is a socket to the agent that keeps messages apart. It says `READY` once. Then each request, one byte with four
descriptors (standard input, output and error, and working directory), is answered by the process id of a new worker, or
by `NOT` and the reason why there is none.

A worker is forked by a process in between that ends at once, while the agent (`agents.agent.spawner`) is the reaper of
its descendants: so it becomes a child of the agent itself. The agent hears at once how it ended, and a server that
dies takes no worker with it. Before a worker runs anything, it leads a session of its own and the kernel has promised
to kill it when the agent dies.

The libraries that keep threads in here (OpenBLAS, jemalloc) have handlers that make them fit for fork.
"""

import ctypes
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

READY = b"ready"
NOT = b"not "
REQUEST = b"w"
DESCRIPTORS = 4

MOST_BYTES = 1024
"""Bytes of the longest answer."""

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_POLL_S = 0.0005


def split_off(work: Callable[[], int]) -> tuple[int, socket.socket] | None:
    """Fork a server off this process, which has no threads yet, and whose standard output is not the server's affair.

    Args:
        work: a worker's life; returns its exit status.

    Returns:
        The server's process id, and our end of the socket to it; None where this process cannot be forked now: who
        wants a worker tries again, and says what is wrong.
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
    become_worker()
    sys.exit(work())


def name_process(role: str) -> None:
    """Let `ps` and `top` show what this process is; its command line is that of the process that it was forked from."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, f"millrace-{role}".encode(), 0, 0, 0)


def become_worker() -> None:
    """Serve until the agent is gone, then exit; returns in every worker that is forked.

    A worker finds its pipes and its log as descriptors 0 to 2, and its folder as working directory. It has no others:
    one that held the server's socket would keep it open when the server dies, and the agent would wait for an answer.
    """
    agent = os.getppid()
    _close_from(3)
    _die_with_parent()
    name_process("server")
    # The agent's process group gets Ctrl-C; server and workers end when they are told to.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What is there now is never garbage, and the collector's marks would only make copies of its pages.
    gc.collect()
    gc.freeze()
    descriptors = _serve(socket.socket(fileno=0))
    os.setsid()
    _die_with_parent()
    if os.getppid() != agent:
        # It was gone before the kernel knew.
        os._exit(1)
    os.fchdir(descriptors[-1])
    for number, descriptor in enumerate(descriptors[:-1]):
        os.dup2(descriptor, number)
    _close_from(3)
    name_process("worker")


def _serve(channel: socket.socket) -> list[int]:
    """Answer requests; return in a worker only, with the descriptors that it was given."""
    try:
        channel.send(READY)
        while True:
            request, descriptors, _flags, _address = socket.recv_fds(channel, len(REQUEST), DESCRIPTORS)
            if not request:
                sys.exit(0)
            answer = _fork()
            if not answer:
                channel.detach()
                return descriptors
            for descriptor in descriptors:
                os.close(descriptor)
            channel.send(answer)
    except ConnectionError:
        sys.exit(0)


def _fork() -> bytes:
    """Fork a worker whose parent ends at once; return the answer to the request, and nothing in the worker."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as heard, os.fdopen(writing, "wb", buffering=0) as told:
        try:
            between = os.fork()
        except OSError as fault:
            return NOT + str(fault).encode()
        if between == 0:
            _fork_again(told)
            return b""
        # Only a process that has been waited for is a parent no more.
        os.waitpid(between, 0)
        told.close()
        answer = heard.read(MOST_BYTES)
    if not answer:
        # It was killed, and may have forked a worker that nobody knows of: the agent must begin anew, with new pipes.
        sys.exit("the process that forks a worker was killed")
    return answer


def _fork_again(told: FileIO) -> None:
    """Fork the worker, tell its process id and end; returns in the worker, when that has another parent."""
    between = os.getpid()
    try:
        worker = os.fork()
    except OSError as fault:
        told.write(NOT + str(fault).encode())
        os._exit(1)
    if worker:
        told.write(str(worker).encode())
        os._exit(0)
    while os.getppid() == between:
        time.sleep(_POLL_S)


def _close_from(first: int) -> None:
    """Close all descriptors from this number on."""
    for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if number >= first:
            # The list itself was read from one that is closed by now.
            with suppress(OSError):
                os.close(number)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

"""CPU load generator: one process per CPU, pinned to it, spins for a share of every 50 ms."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

PERIOD_S = 0.05


class Load:
    """Context manager of the load processes; they end with their parent, also when it is killed."""

    def __init__(self, cpus: Sequence[int] | None = None) -> None:
        """Store the CPUs; by default those that this process may use."""
        self._cpus = sorted(os.sched_getaffinity(0)) if cpus is None else list(cpus)
        self._children: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        for cpu in self._cpus:
            command = [sys.executable, "-P", "-m", "agents.power.load", str(cpu)]
            self._children.append(subprocess.Popen(command, stdin=subprocess.PIPE, text=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._children:
            child.kill()
            child.communicate()

    def set(self, share: float) -> None:
        """Keep each CPU busy for this share of the time from now on.

        Raises:
            OSError: a process has ended.
        """
        for child in self._children:
            if child.stdin is not None:
                child.stdin.write(f"{share}\n")
                child.stdin.flush()


def spin(cpu: int, source: int) -> None:
    """Spin on a CPU with the shares read as lines from the file descriptor `source`, until its end."""
    # Pinning fails if the CPU has gone offline.
    with suppress(OSError):
        os.sched_setaffinity(0, {cpu})
    share, text = 0.0, b""
    while True:
        rest_s = PERIOD_S * (1 - share)
        if select.select([source], [], [], rest_s if share else None)[0]:
            read = os.read(source, 4096)
            if not read:
                return
            *lines, text = (text + read).split(b"\n")
            share = float(lines[-1]) if lines else share
        end = time.monotonic() + PERIOD_S * share
        while time.monotonic() < end:
            pass


if __name__ == "__main__":
    spin(int(sys.argv[1]), sys.stdin.fileno())

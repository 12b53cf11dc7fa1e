"""Keeps CPUs busy to a given share: a process per CPU, pinned to it, spins for a part of every twentieth second."""

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
    """The processes, as a context manager; they end with the one that has made them, however that ends."""

    def __init__(self, cpus: Sequence[int] | None = None) -> None:
        """Describe it; without `cpus`, those that this process may use."""
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
        """Have each CPU busy for this share of the time, from now on.

        Raises:
            OSError: a process is gone.
        """
        for child in self._children:
            if child.stdin is not None:
                child.stdin.write(f"{share}\n")
                child.stdin.flush()


def spin(cpu: int, source: int) -> None:
    """Spin on a CPU as the lines that come from `source` say, until there are no more."""
    # A CPU that has been turned off since leaves the process where it is.
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

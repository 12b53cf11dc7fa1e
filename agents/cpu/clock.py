"""The clock that busy cores really have, which can be another than the files say.

Cores spin while the processor counts their cycles (perf). Where it does not, the kernel's own estimate is read while
they spin. A node with files of its own for `/sys` says in them what its clock is.
"""

import os
import signal
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from agents.cpu.policies import POLICIES
from agents.host_files import HostFiles
from agents.perf_event import open_event

SPIN_S = 1.0
SETTLE_S = 0.1
"""What governors and processors need to notice that a core is busy."""

HARDWARE, CYCLES = 0, 0
"""`PERF_TYPE_HARDWARE` and `PERF_COUNT_HW_CPU_CYCLES`; halted cycles are not counted."""

ESTIMATES = ("cpuinfo_avg_freq", "scaling_cur_freq")


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of one busy CPU: in Hz, None when nothing tells; and what told it, or why nothing does."""

    hz: float | None
    source: str


def busy_clocks(host: HostFiles, cpus: Sequence[int], is_real: bool) -> dict[int, Clock]:
    """Spin on these CPUs for a second, all at once, and tell the clock of each.

    Args:
        host: the host that runs this process.
        cpus: one CPU per core.
        is_real: whether its files are those of the machine's kernel, whose cycles then count.
    """
    counters: dict[int, int] = {}
    refused = "the files are this node's own"
    with _spinning(cpus), _closing(counters):
        time.sleep(SETTLE_S)
        begins: dict[int, float] = {}
        for cpu in cpus if is_real else ():
            try:
                counters[cpu] = open_event(HARDWARE, CYCLES, cpu)
                begins[cpu] = time.monotonic()
            except OSError as fault:
                refused = f"cycles cannot be counted: {fault.strerror or fault}"
        time.sleep(SPIN_S)
        clocks = {}
        for cpu in cpus:
            if cpu in counters:
                (cycles,) = struct.unpack("q", os.read(counters[cpu], 8))
                hz = cycles / (time.monotonic() - begins[cpu])
                # Virtual machines offer counters that stand still.
                clocks[cpu] = Clock(hz, "perf cycles") if cycles else _estimate(host, cpu, "no cycle was counted")
            else:
                clocks[cpu] = _estimate(host, cpu, refused)
        return clocks


def _estimate(host: HostFiles, cpu: int, refused: str) -> Clock:
    for file in ESTIMATES:
        for path in (f"sys/devices/system/cpu/cpu{cpu}/cpufreq/{file}", f"{POLICIES}/policy{cpu}/{file}"):
            said = host.read_if_there(path)
            if said and said.isdigit() and int(said):
                return Clock(int(said) * 1000.0, file)
    return Clock(None, refused)


@contextmanager
def _spinning(cpus: Sequence[int]) -> Iterator[None]:
    """One process per CPU that does nothing but spin, pinned to it."""
    children = []
    try:
        for cpu in cpus:
            child = os.fork()
            if child == 0:
                _spin(cpu)
            children.append(child)
        yield
    finally:
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _spin(cpu: int) -> None:
    # It ends by itself, should its parent be killed.
    end = time.monotonic() + 10 * SPIN_S
    try:
        os.sched_setaffinity(0, {cpu})
        while time.monotonic() < end:
            pass
    finally:
        os._exit(0)


@contextmanager
def _closing(counters: dict[int, int]) -> Iterator[None]:
    try:
        yield
    finally:
        for descriptor in counters.values():
            os.close(descriptor)

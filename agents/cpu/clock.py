"""Measured clock of busy cores, which can differ from the cpufreq files.

Cores spin while the processor counts their cycles (perf). Where cycles cannot be counted, the kernel's estimate is read
while they spin. For a node with its own copy of `/sys`, the clock is read from these files.
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
"""Time for governors and processors to react to a busy core."""

HARDWARE, CYCLES = 0, 0
"""`PERF_TYPE_HARDWARE` and `PERF_COUNT_HW_CPU_CYCLES`; halted cycles are not counted."""

ESTIMATES = ("cpuinfo_avg_freq", "scaling_cur_freq")


@dataclass(frozen=True, slots=True)
class Clock:
    """Clock of one busy CPU in Hz, None when unknown; and its source, or the reason why it is unknown."""

    hz: float | None
    source: str


def busy_clocks(host: HostFiles, cpus: Sequence[int], is_real: bool) -> dict[int, Clock]:
    """Spin on these CPUs for a second, all at once, and return the clock of each.

    Args:
        host: the host that runs this process.
        cpus: one CPU per core.
        is_real: whether its files are those of the machine's kernel, so that perf cycles apply.
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
                # Virtual machines may offer counters that never advance.
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
    """Run one spinning process per CPU, pinned to it."""
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
    # End without help if the parent is killed.
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

"""Calibration of an emulated cluster before a run: CPU time and memory of nodes, rates and round trips of links.

A quota is an upper limit: on a busy host a node gets less without being throttled. Therefore a busy loop runs in every
node's control group at the same time, and the CPU time that the kernel accounts is compared with the nodes' settings.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from time import monotonic, sleep

import psutil

from controller.emulation.daemon_client import ask
from controller.emulation.description import Description
from controller.emulation.link_calibration import calibrate_links
from controller.host.cgroups import Group, find_hierarchy
from controller.nodes.backend import Calibrated
from inventory.errors import RunError

LEAST = 0.95
"""Smallest acceptable share of a requested value; below it, results describe this host rather than the cluster."""

FORWARDING_MS = 0.3
"""Round-trip time allowed in addition to the requested delays, because nodes share this host's processors."""

_ATTEMPTS = 3
_SETTLING_S = 0.2
_WINDOW_S = 1.0
_SMALL_SHARE, _SMALL_WINDOW_S = 0.1, 4.0
"""Below this share the CFS period is longer, and the window must contain enough periods."""

_BUSY_LOOP = """
import os, sys
for path in sys.argv[1:]:
    with open(path, "w") as entrance:
        entrance.write(str(os.getpid()))
print("in", flush=True)
while True:
    pass
"""


def calibrate(description: Description) -> list[Calibrated]:
    """Apply the nodes' limits and measure all nodes, then the links.

    Raises:
        RunError: the cluster does not reply, or a node has ended.
    """
    found = [*calibrate_cpu(description), *calibrate_memory(description)]
    return [*found, *calibrate_links(description.network)]


def shortfall_of(calibrated: Iterable[Calibrated], least: float = LEAST) -> str:
    """Return a message that names all insufficient values, round trips that take too long included; empty if none."""
    parts = []
    for one in calibrated:
        least_got, most_got = one.asked * least, one.asked / least + FORWARDING_MS
        if one.got > most_got if one.what == "rtt" else one.got < least_got:
            to = f" to {one.to}" if one.to else ""
            parts.append(f"{one.node}{to}: {one.what} {one.got:.3g} of {one.asked:.3g} {one.unit}")
    return "; ".join(parts)


def calibrate_cpu(description: Description) -> list[Calibrated]:
    """Measure the cores of this host that every node gets while all are busy; return the best of up to three attempts.

    Raises:
        RunError: the cluster does not reply, or a node has ended.
    """
    reply = ask(Path(description.request.folder), "limit")
    if reply.faults:
        raise RunError("; ".join(reply.faults))
    groups = groups_of(description)
    best: list[Calibrated] = []
    for _ in range(_ATTEMPTS):
        got = measure_busy_cores(groups, reply.shares)
        found = [Calibrated(name, None, "cpu", share, got[name], "cores") for name, share in reply.shares.items()]
        best = max(best, found, key=lambda these: min((one.error for one in these), default=-1.0))
        if not shortfall_of(best):
            break
    return best


def calibrate_memory(description: Description) -> list[Calibrated]:
    """Return the MiB that every node may use: its limit, or less if this host has less memory than the limits' sum."""
    groups = groups_of(description)
    limits = {name: group.memory_limit() or 0 for name, group in groups.items()}
    open_bytes = {name: max(0, limits[name] - group.memory_used()) for name, group in groups.items()}
    part = min(1.0, psutil.virtual_memory().available / max(1, sum(open_bytes.values())))
    return [
        Calibrated(
            name,
            None,
            "memory",
            member.machine.memory_mb,
            (limits[name] - open_bytes[name] * (1 - part)) / (1 << 20),
            "MB",
        )
        for name, member in description.members.items()
    ]


def groups_of(description: Description) -> dict[str, Group]:
    """Return the control groups of all nodes."""
    hierarchy = find_hierarchy()
    return {name: Group(hierarchy, member.group) for name, member in description.members.items()}


def measure_busy_cores(groups: Mapping[str, Group], shares: Mapping[str, float]) -> dict[str, float]:
    """Return the cores that each group gets while all are busy, from the CPU time accounted by the kernel.

    Args:
        groups: groups of the nodes that take part.
        shares: node -> its CPU quota in cores.
    """
    small = min(shares[name] for name in groups) < _SMALL_SHARE
    # One process can use no more than one core.
    loops = [group for name, group in groups.items() for _ in range(max(1, ceil(shares[name])))]
    with _busy(loops):
        sleep(_SETTLING_S)
        begin = {name: (group.cpu_seconds(), monotonic()) for name, group in groups.items()}
        sleep(_SMALL_WINDOW_S if small else _WINDOW_S)
        end = {name: (group.cpu_seconds(), monotonic()) for name, group in groups.items()}
    return {name: (end[name][0] - begin[name][0]) / (end[name][1] - begin[name][1]) for name in groups}


@contextmanager
def _busy(groups: Sequence[Group]) -> Iterator[None]:
    """Run a busy loop in each group during the block."""
    loops = [
        subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _BUSY_LOOP, *map(str, group.entrances)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        for group in groups
    ]
    try:
        for loop in loops:
            if loop.stdout is None or not loop.stdout.readline():
                raise RunError("a process cannot enter the control group of its node")
        yield
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.communicate()

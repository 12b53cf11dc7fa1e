"""Measuring what an emulated cluster is before a run: CPU time and memory of nodes, rates and round trips of links.

A quota is a ceiling, not a promise: on a busy host a node gets less without ever being throttled. So a process burns in
every node's group at once, and what the kernel says they got is compared with what the nodes' settings are worth.
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
"""Below this part of what was asked for, a result says more about this host than about the cluster."""

FORWARDING_MS = 0.3
"""What a round trip may take beside the delays that were asked for: nodes share this host's processors."""

_ATTEMPTS = 3
_SETTLING_S = 0.2
_WINDOW_S = 1.0
_SMALL_SHARE, _SMALL_WINDOW_S = 0.1, 4.0
"""Below this share the kernel accounts in longer periods, and the window must hold enough of them."""

_BURN = """
import os, sys
for path in sys.argv[1:]:
    with open(path, "w") as entrance:
        entrance.write(str(os.getpid()))
print("in", flush=True)
while True:
    pass
"""


def calibrate(description: Description) -> list[Calibrated]:
    """Hold the nodes to their limits and measure all of them, then the links.

    Raises:
        RunError: the cluster does not answer, or a node has ended.
    """
    found = [*calibrate_cpu(description), *calibrate_memory(description)]
    return [*found, *calibrate_links(description.network)]


def short_of(calibrated: Iterable[Calibrated], least: float = LEAST) -> str:
    """What fell short, in words; empty when nothing did. A round trip falls short when it takes too long."""
    parts = []
    for one in calibrated:
        least_got, most_got = one.asked * least, one.asked / least + FORWARDING_MS
        if one.got > most_got if one.what == "rtt" else one.got < least_got:
            to = f" to {one.to}" if one.to else ""
            parts.append(f"{one.node}{to}: {one.what} {one.got:.3g} of {one.asked:.3g} {one.unit}")
    return "; ".join(parts)


def calibrate_cpu(description: Description) -> list[Calibrated]:
    """Cores of this host that every node gets while all want all they can get; the best of up to three attempts.

    Raises:
        RunError: the cluster does not answer, or a node has ended.
    """
    answer = ask(Path(description.request.folder), "limit")
    if answer.faults:
        raise RunError("; ".join(answer.faults))
    groups = groups_of(description)
    best: list[Calibrated] = []
    for _ in range(_ATTEMPTS):
        got = burnt(groups, answer.shares)
        found = [Calibrated(name, None, "cpu", share, got[name], "cores") for name, share in answer.shares.items()]
        best = max(best, found, key=lambda these: min((one.error for one in these), default=-1.0))
        if not short_of(best):
            break
    return best


def calibrate_memory(description: Description) -> list[Calibrated]:
    """MiB that every node may use: the limit in force, or less where this host has less left than all limits allow."""
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
    """The control groups of all nodes."""
    hierarchy = find_hierarchy()
    return {name: Group(hierarchy, member.group) for name, member in description.members.items()}


def burnt(groups: Mapping[str, Group], shares: Mapping[str, float]) -> dict[str, float]:
    """Cores that each group gets, by the kernel's account of its CPU time, while all of them want all they can get.

    Args:
        groups: of the nodes that burn.
        shares: node -> cores that it is worth.
    """
    small = min(shares[name] for name in groups) < _SMALL_SHARE
    # One process can use no more than one core.
    burners = [group for name, group in groups.items() for _ in range(max(1, ceil(shares[name])))]
    with _burning(burners):
        sleep(_SETTLING_S)
        begin = {name: (group.cpu_seconds(), monotonic()) for name, group in groups.items()}
        sleep(_SMALL_WINDOW_S if small else _WINDOW_S)
        end = {name: (group.cpu_seconds(), monotonic()) for name, group in groups.items()}
    return {name: (end[name][0] - begin[name][0]) / (end[name][1] - begin[name][1]) for name in groups}


@contextmanager
def _burning(groups: Sequence[Group]) -> Iterator[None]:
    """A process in each of the groups that wants all CPU time it can get; they end with the block."""
    burners = [
        subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _BURN, *map(str, group.entrances)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        for group in groups
    ]
    try:
        for burner in burners:
            if burner.stdout is None or not burner.stdout.readline():
                raise RunError("a process cannot enter the control group of its node")
        yield
    finally:
        for burner in burners:
            burner.kill()
        for burner in burners:
            burner.communicate()

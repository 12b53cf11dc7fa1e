"""CPU utilisation and clock of a host, the inputs of the power model."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from agents.cpu.policies import Policy, read_policies
from agents.cpu.topology import read_topology
from agents.power.host import MeteredHost

STAT = "proc/stat"


class Usage(NamedTuple):
    """CPU usage since the previous reading.

    Attributes:
        seconds: time since then.
        busy: busy share of all present CPUs; offline CPUs are idle.
        hz: mean clock, weighted by busy time; None when unknown.
    """

    seconds: float
    busy: float
    hz: float | None


class CpuUsage:
    """Repeated reading of a host's CPU usage."""

    def __init__(self, host: MeteredHost) -> None:
        """Take the first reading.

        Raises:
            OSError: CPU times cannot be read.
        """
        self._host = host
        topology = read_topology(host)
        self._policies = read_policies(host, topology.online)
        self._policy_of = {cpu: policy for policy in self._policies for cpu in policy.cpus}
        self._t_ns, self._busy_s = host.monotonic_ns(), busy_seconds(host)
        self._cpus = max(len(topology.present), len(self._busy_s))

    @property
    def highest_hz(self) -> float | None:
        """The highest clock of any CPU; None when unknown."""
        return highest_hz(self._policies)

    def look(self) -> Usage:
        """Return the usage since the previous reading.

        Raises:
            OSError: CPU times cannot be read.
        """
        t_ns, busy_s = self._host.monotonic_ns(), busy_seconds(self._host)
        seconds = (t_ns - self._t_ns) / 1e9
        used = {cpu: max(0.0, now - self._busy_s.get(cpu, now)) for cpu, now in busy_s.items()}
        self._t_ns, self._busy_s = t_ns, busy_s
        return Usage(seconds, min(1.0, sum(used.values()) / seconds / self._cpus), self._clock(used))

    def _clock(self, used_s: Mapping[int, float]) -> float | None:
        clocks: dict[str, float] = {}
        for policy in self._policies:
            text = self._host.read_if_there(policy.file("scaling_cur_freq"))
            if text and text.isdigit() and int(text):
                clocks[policy.name] = int(text) * 1000.0
        weights = {cpu: policy.name for cpu, policy in self._policy_of.items() if policy.name in clocks}
        if not weights:
            return None
        busy_s = sum(used_s.get(cpu, 0.0) for cpu in weights)
        if not busy_s:
            return sum(clocks.values()) / len(clocks)
        return sum(used_s.get(cpu, 0.0) * clocks[name] for cpu, name in weights.items()) / busy_s


def highest_hz(policies: tuple[Policy, ...]) -> float | None:
    """Return the highest clock of all policies; None when unknown."""
    known = [policy.highest * 1000.0 for policy in policies if policy.highest]
    return max(known, default=None)


def busy_seconds(host: MeteredHost) -> dict[int, float]:
    """Return CPU -> busy seconds since boot: user, nice, system and interrupts, without idle, iowait and steal.

    Raises:
        OSError: CPU times cannot be read.
    """
    ticks = os.sysconf("SC_CLK_TCK")
    found: dict[int, float] = {}
    for line in host.read(STAT).splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and len(fields) >= 7:
            user, nice, system, _idle, _iowait, irq, softirq = map(int, fields[:7])
            found[int(name[3:])] = (user + nice + system + irq + softirq) / ticks
    if not found:
        raise OSError(f"/{STAT} lists no CPU")
    return found

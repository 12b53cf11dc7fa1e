"""Division of a machine's energy, second by second, among executors, transport, the rest and idle power."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from agents.power.attribution import attribute, spread
from agents.trace import AGENT
from campaign.agenda.machines import Machine, Metered
from campaign.results.cpu_times import CpuTimes
from campaign.results.curves import steps
from workloads.rates import NS

CLAMPED = "clamped"
"""Flag of a step with less than idle power, or with more CPU time of workers than of the whole machine."""

_OF_PACKAGE = ("package", "dram", "core", "uncore")
_PACKAGE = re.compile(r"package-(\d+)")


class EnergyShare(NamedTuple):
    """Row of the table `energy`: columns from `node` on."""

    node: str
    worker: int
    t_ns: int
    since_ns: int
    domain: str
    source: str
    consumer: str
    name: str
    cpu_ns: int | None
    joules: float
    flags: str


def divide(
    machine: Machine,
    domains: Sequence[Metered],
    idle_watts: Mapping[str, float],
    times: CpuTimes,
    start_ns: int,
    end_ns: int,
) -> Iterator[EnergyShare]:
    """Yield all shares of the energy of these domains; an inactive consumer has no share in a step.

    Args:
        machine: the machine.
        domains: the terms of its total, with known energy.
        idle_watts: domain -> idle power.
        times: CPU times of workers and executors.
        start_ns, end_ns: the measured interval in the machine's time.
    """
    workers = sorted(times.workers)
    packages = packages_of(domains)
    apart = not times.why_together(set(packages.values()))
    for since_ns, t_ns in steps(start_ns, end_ns, times.moments):
        everywhere = [times.work(worker, since_ns, t_ns) for worker in workers]
        all_ns = times.all_ns(since_ns, t_ns)
        on_package = times.packages_ns(since_ns, t_ns)
        places = spread([times.places_ns(worker, since_ns, t_ns) for worker in workers], on_package)
        for each in domains:
            package = packages.get(each.domain.name) if apart else None
            if package is None:
                work, here_ns = everywhere, all_ns
            else:
                work = [done.part(place[package]) for done, place in zip(everywhere, places, strict=True)]
                here_ns = on_package[package]
            joules = each.curve.between(since_ns, t_ns)
            parts = attribute(joules, idle_watts[each.domain.name] * (t_ns - since_ns) / NS, here_ns, work)
            flags = ",".join([CLAMPED] * parts.clamped + list(each.domain.flags))
            what = (t_ns, since_ns, each.domain.name, each.domain.source)
            for (node, slot), done, share in zip(workers, everywhere, parts.workers, strict=True):
                for name, used in share.executors.items():
                    if done.busy_ns[name]:
                        yield EnergyShare(node, slot, *what, "executor", name, round(done.busy_ns[name]), used, flags)
                outside_ns = max(0, round(done.cpu_ns - sum(done.busy_ns.values())))
                if outside_ns or share.transport:
                    yield EnergyShare(node, slot, *what, "transport", "", outside_ns, share.transport, flags)
            rest_ns = max(0, round(all_ns - sum(done.cpu_ns for done in everywhere)))
            yield EnergyShare(machine.metered, AGENT, *what, "rest", "", rest_ns, parts.rest, flags)
            yield EnergyShare(machine.metered, AGENT, *what, "idle", "", None, parts.idle, flags)


def packages_of(domains: Iterable[Metered]) -> dict[str, int]:
    """Return domain -> its package; domains of the whole machine are left out."""
    found = {each.domain.name: _PACKAGE.search(each.domain.name) for each in domains if each.domain.role in _OF_PACKAGE}
    return {name: int(match[1]) for name, match in found.items() if match}

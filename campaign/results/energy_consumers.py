"""Who used a machine's energy: its domains, second by second, divided among executors, transport, the rest and idle."""

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
"""Flag of a step in which a domain drew less than when idle, or more CPU time was used than there was."""

_OF_PACKAGE = ("package", "dram", "core", "uncore")
_PACKAGE = re.compile(r"package-(\d+)")


class EnergyShare(NamedTuple):
    """A row of the table `energy`: columns from `node` on."""

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
    """All parts of the energy of these domains, which are known; a consumer that did nothing in a step has none.

    Args:
        machine: whose.
        domains: the terms of its total.
        idle_watts: domain -> what it draws without work.
        times: who ran.
        start_ns, end_ns: the measured interval in its time.
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
    """Domain -> the package that it is, or is the memory of; those of the whole machine are left out."""
    found = {each.domain.name: _PACKAGE.search(each.domain.name) for each in domains if each.domain.role in _OF_PACKAGE}
    return {name: int(match[1]) for name, match in found.items() if match}

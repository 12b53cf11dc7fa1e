"""Facts about a host's CPUs, for inventories and run records."""

from collections.abc import Iterable
from typing import Any

from agents.cpu import driver, epp, frequency, governor, hotplug, smt, turbo
from agents.cpu.feature import read_view
from agents.cpu.policies import Policy
from agents.cpu.topology import Core
from agents.host_files import HostFiles

PROBES = {
    "cores": hotplug,
    "governor": governor,
    "clock": frequency,
    "turbo": turbo,
    "epp": epp,
    "smt": smt,
    "driver_mode": driver,
}


def facts(host: HostFiles, known: tuple[Core, ...] = ()) -> dict[str, Any]:
    """Return facts as JSON: clocks in Hz, null for values that the kernel does not report.

    `frequencies_hz` lists the clocks that every CPU can be fixed at: the driver's table, else both ends of the range.
    `unavailable` maps every setting that this process cannot change to the reason.
    """
    view = read_view(host, known)
    topology = view.topology
    modes = {path.split("/")[-2]: host.read_if_there(path) or "" for path in driver.paths(host)}
    drivers = sorted({policy.driver for policy in view.policies})
    found = {name: feature.probe(host) for name, feature in PROBES.items()}
    return {
        "sockets": len(topology.sockets),
        "cores": len(topology.cores),
        "cores_online": len(topology.cores_online),
        "threads": len(topology.present),
        "online": sorted(topology.online),
        "cores_of_sockets": {
            str(socket): [list(core.cpus) for core in topology.cores if core.socket == socket]
            for socket in topology.sockets
        },
        "driver": " ".join(drivers) or None,
        "driver_mode": " ".join(modes.values()) or None,
        "driver_notes": [driver.NOTES[name] for name in drivers if name in driver.NOTES],
        "governors": _common(policy.governors for policy in view.policies),
        "governor": _same([policy.governor for policy in view.policies]),
        "epps": _common(policy.epps for policy in view.policies),
        "epp": _same([policy.epp for policy in view.policies]),
        "frequencies_hz": frequency.choices_hz(view.policies),
        "turbo": turbo.state(host),
        "smt": host.read_if_there(smt.CONTROL),
        "policies": [_policy(policy) for policy in view.policies],
        "unavailable": {name: finding.reason for name, finding in found.items() if finding.status != "ok"},
    }


def _policy(policy: Policy) -> dict[str, Any]:
    def hz(khz: int | None) -> int | None:
        return None if khz is None else khz * 1000

    return {
        "name": policy.name,
        "cpus": list(policy.cpus),
        "driver": policy.driver,
        "governor": policy.governor,
        "min_hz": hz(policy.low),
        "max_hz": hz(policy.high),
        "hardware_min_hz": hz(policy.lowest),
        "hardware_max_hz": hz(policy.highest),
        "base_hz": hz(policy.base),
        "epp": policy.epp,
    }


def _common(choices: Iterable[tuple[str, ...]]) -> list[str]:
    """Return the choices that all policies offer."""
    sets = [set(choice) for choice in choices]
    return sorted(set.intersection(*sets)) if sets else []


def _same(values: list[str | None]) -> str | None:
    """Return the value that all policies share; None when they differ or there is none."""
    return values[0] if len(set(values)) == 1 else None

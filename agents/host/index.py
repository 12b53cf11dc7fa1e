"""`python -P -m agents.host.index`: facts about a host as JSON, for its computing-power index.

The facts come from the host's files, including the overlaid ones of a namespace, and from a measurement of its core.
They are gathered when a host is provisioned, stored beside the inventory, and independent of runs.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agents.cpu.facts import facts as cpu_facts
from agents.host.facts import gather
from agents.host.flops import measure
from agents.host_files import HostFiles
from inventory.flops import isa_flops

COUNTERS = "sys/class/powercap"


def index_facts(host: HostFiles) -> dict[str, Any]:
    """Return facts about this host, JSON types only; None for unknown ones.

    `ghz` is the highest clock that cpufreq allows now; without cpufreq, the measured one. `flops_per_cycle` is derived
    from the CPU's flags. `frequencies_hz` are the entries of the driver's table within the current limits.
    """
    about, cpu = gather(), cpu_facts(host)
    flags = about["isa"] or []
    measured = measure(about["architecture"], flags)
    limits = [(policy["max_hz"], len(policy["cpus"])) for policy in cpu["policies"] if policy["max_hz"]]
    clock = sum(hz * cpus for hz, cpus in limits) / sum(cpus for _, cpus in limits) / 1e9 if limits else measured.ghz
    on_line = set(cpu["online"])
    in_use = [cores for cores in cpu["cores_of_sockets"].values() if any(on_line.intersection(core) for core in cores)]
    return {
        "gathered_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "hostname": about["hostname"],
        "kernel": about["kernel"],
        "boot_id": host.read_if_there("proc/sys/kernel/random/boot_id"),
        "architecture": about["architecture"],
        "cpu_model": about["cpu_model"],
        "virtualisation": about["virtualisation"],
        "python": sys.version.split()[0],
        "sockets": len(in_use),
        "cores": cpu["cores_online"],
        "threads": len(on_line),
        "ghz": None if clock is None else round(clock, 3),
        "ghz_source": "cpufreq" if limits else "measured" if measured.ghz else None,
        "ram_gb": round(about["memory_bytes"] / 1024**3, 2),
        "isa": about["isa"],
        "bogomips": about["bogomips"],
        "flops_per_cycle": isa_flops(flags),
        "measured_flops_per_cycle": measured.flops_per_cycle,
        "measured_ghz": measured.ghz,
        "not_measured": measured.reason or None,
        "driver": cpu["driver"],
        "governor": cpu["governor"],
        "governors": cpu["governors"],
        "turbo": cpu["turbo"],
        "smt": cpu["smt"],
        "frequencies_hz": _allowed(cpu) or None,
        "unavailable": cpu["unavailable"],
        "energy_counters": [name for name in host.names(COUNTERS) if host.exists(f"{COUNTERS}/{name}/energy_uj")],
        "powertop": shutil.which("powertop", path=f"{os.environ.get('PATH', '')}:/usr/sbin"),
    }


def _allowed(cpu: Mapping[str, Any]) -> list[int]:
    low = max((policy["min_hz"] or 0 for policy in cpu["policies"]), default=0)
    high = min((policy["max_hz"] or sys.maxsize for policy in cpu["policies"]), default=sys.maxsize)
    return [hz for hz in cpu["frequencies_hz"] if low <= hz <= high]


if __name__ == "__main__":
    json.dump(index_facts(HostFiles(Path("/"))), sys.stdout)

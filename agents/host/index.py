"""`python -P -m agents.host.index`: facts of a host as JSON, for its computing-power index.

What its files say, the layered ones of a namespace too, and what its core was measured to do. Gathered when a host is
provisioned and kept beside the inventory; nothing here is about a run.
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
    """Facts of this host, JSON types only; None is what cannot be known.

    `ghz` is the highest clock that the cores may have now, by cpufreq; where there is none, the one that was measured.
    `flops_per_cycle` follows from the processor's flags. `frequencies_hz` are those of the driver's table that the
    range in force allows.
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

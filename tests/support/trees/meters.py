"""Energy meters as kernels show them: one function per machine returns path below the root -> text.

Files follow the kernel's documentation of powercap, hwmon, power_supply and the event sources. Counters have their
initial values; scripts advance them.
"""

from collections.abc import Mapping
from pathlib import Path

POWERCAP = "sys/class/powercap"
PMU = "sys/bus/event_source/devices/power"
HWMON = "sys/class/hwmon"
SUPPLIES = "sys/class/power_supply"

RANGE_61 = 262143328850
"""`max_energy_range_uj` of a register of 32 bits in units of 61.035 uJ."""
UNIT_61 = 61.035
RANGE_15 = 65712999613
"""The same for DRAM in units of 15.3 uJ."""
UNIT_15 = 15.3

Files = dict[str, str]


def plant(root: Path, files: Mapping[str, str]) -> Path:
    """Write a tree below `root`."""
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n")
    return root


def zone(
    folder: str, name: str, raw_max: int | None = RANGE_61, most_uw: int | None = None, start: int = 1000
) -> Files:
    """One powercap zone, flat, as class/powercap lists all of them."""
    path = f"{POWERCAP}/{folder}"
    files = {f"{path}/name": name, f"{path}/energy_uj": str(start), f"{path}/enabled": "1"}
    if raw_max is not None:
        files[f"{path}/max_energy_range_uj"] = str(raw_max)
    if most_uw is not None:
        files[f"{path}/constraint_0_name"] = "long_term"
        files[f"{path}/constraint_0_power_limit_uw"] = str(most_uw)
        files[f"{path}/constraint_0_max_power_uw"] = str(most_uw)
    return files


def client() -> Files:
    """One socket, with core, uncore and the platform."""
    return {
        f"{POWERCAP}/intel-rapl/enabled": "1",
        **zone("intel-rapl:0", "package-0", most_uw=65_000_000),
        **zone("intel-rapl:0:0", "core"),
        **zone("intel-rapl:0:1", "uncore"),
        **zone("intel-rapl:1", "psys"),
    }


def server() -> Files:
    """Two sockets with DRAM, and the platform between them."""
    return {
        **zone("intel-rapl:0", "package-0", most_uw=205_000_000),
        **zone("intel-rapl:0:0", "dram", RANGE_15),
        **zone("intel-rapl:1", "psys"),
        **zone("intel-rapl:2", "package-1", most_uw=205_000_000),
        **zone("intel-rapl:2:0", "dram", RANGE_15),
    }


def two_trees() -> Files:
    """The package by model-specific registers (MSR) and by memory-mapped ones (MMIO)."""
    return {
        **zone("intel-rapl-mmio:0", "package-0"),
        **zone("intel-rapl:0", "package-0"),
        **zone("intel-rapl:0:0", "core"),
    }


def dies() -> Files:
    """One socket of two dies, each with DRAM; only their values show whether they are mirrors."""
    return {
        **zone("intel-rapl:0", "package-0-die-0"),
        **zone("intel-rapl:0:0", "dram", RANGE_15),
        **zone("intel-rapl:1", "package-0-die-1"),
        **zone("intel-rapl:1:0", "dram", RANGE_15),
    }


def four_mirrored_dies() -> Files:
    """Two sockets of two dies; each die shows its socket's register."""
    return {
        **zone("intel-rapl:0", "package-0-die-0"),
        **zone("intel-rapl:1", "package-0-die-1"),
        **zone("intel-rapl:2", "package-1-die-0"),
        **zone("intel-rapl:3", "package-1-die-1"),
    }


def amd() -> Files:
    """A package with its cores, and no other zones."""
    return {**zone("intel-rapl:0", "package-0"), **zone("intel-rapl:0:0", "core")}


def odd_ranges() -> Files:
    """A counter of 64 bits, and one without a range."""
    return {**zone("intel-rapl:0", "package-0", 2**63 - 1), **zone("intel-rapl:1", "package-1", None)}


def many() -> Files:
    """Eleven sockets; the number of the last one is hexadecimal."""
    files: Files = {}
    for number in range(11):
        files |= zone(f"intel-rapl:{number:x}", f"package-{number}")
    return {**files, **zone("intel-rapl:a:0", "dram", RANGE_15)}


def power_meter() -> Files:
    """A server with an ACPI power meter, and a network card with a sensor of its own."""
    board, card = f"{HWMON}/hwmon0", f"{HWMON}/hwmon1"
    return {
        f"{board}/name": "power_meter",
        f"{board}/power1_average": "180000000",
        f"{board}/power1_average_interval": "1000",
        f"{board}/power1_cap": "500000000",
        f"{card}/name": "nfp",
        f"{card}/power1_input": "9000000",
    }


def amd_energy() -> Files:
    """Two sockets and a core, in the format of the driver `amd_energy`."""
    chip = f"{HWMON}/hwmon2"
    labels = {1: "Ecore000", 2: "Ecore001", 3: "Esocket0", 4: "Esocket1"}
    files = {f"{chip}/name": "amd_energy"}
    for number, label in labels.items():
        files[f"{chip}/energy{number}_label"] = label
        files[f"{chip}/energy{number}_input"] = "5000000"
    return files


def laptop(status: str = "Discharging", **files: str) -> Files:
    """A laptop battery and a mouse battery; `files` belong to the laptop's."""
    battery, mouse = f"{SUPPLIES}/BAT0", f"{SUPPLIES}/hidpp_battery_0"
    files = files or {"power_now": "8200000"}
    return {
        f"{SUPPLIES}/AC/type": "Mains",
        f"{SUPPLIES}/AC/online": "0",
        f"{battery}/type": "Battery",
        f"{battery}/status": status,
        **{f"{battery}/{name}": text for name, text in files.items()},
        f"{mouse}/type": "Battery",
        f"{mouse}/scope": "Device",
        f"{mouse}/status": "Discharging",
    }


def virtual_machine() -> Files:
    """A virtual machine without a meter, recognisable as such."""
    return {"proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu sse2 hypervisor\n"}


def perf_server() -> Files:
    """The PMU in addition to the zones of `server`: one CPU per socket."""
    return {
        **server(),
        f"{PMU}/type": "24",
        f"{PMU}/cpumask": "0,18",
        f"{PMU}/format/event": "config:0-7",
        f"{PMU}/events/energy-pkg": "event=0x02",
        f"{PMU}/events/energy-pkg.scale": "2.3283064365386962890625e-10",
        f"{PMU}/events/energy-pkg.unit": "Joules",
        f"{PMU}/events/energy-ram": "event=0x03",
        f"{PMU}/events/energy-ram.scale": "2.3283064365386962890625e-10",
        f"{PMU}/events/energy-ram.unit": "Joules",
        "sys/devices/system/cpu/cpu0/topology/physical_package_id": "0",
        "sys/devices/system/cpu/cpu18/topology/physical_package_id": "1",
        "proc/sys/kernel/perf_event_paranoid": "0",
    }

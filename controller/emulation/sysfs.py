"""Files of `/sys` that describe a `EmulatedMachine`, as a kernel with the driver acpi-cpufreq and RAPL shows them.

They hide the host's files in the folders `COVERED`; all others below `/sys` stay the host's. The effects of a node's
writes are emulated from outside (`controller.emulation.sysfs_effects`).
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from agents.cpu.topology import as_list
from agents.power.rapl import MODELLED
from inventory.emulation import EmulatedMachine

GOVERNORS = ("conservative", "ondemand", "userspace", "powersave", "performance", "schedutil")
DRIVER = "acpi-cpufreq"

CPU = "devices/system/cpu"
_POWERCAP = "devices/virtual/powercap/intel-rapl"
_MEMORY_NODES = "devices/system/node"

COVERED = (CPU, _MEMORY_NODES, "devices/virtual/powercap", "class/powercap", "class/power_supply", "class/hwmon",
           "bus/event_source/devices")  # fmt: skip
"""Folders that would show the host's processors, clocks and energy."""

ENERGY_RANGE_UJ = 262_143_328_850
NO_SPEED = "<unsupported>"
"""Content of `scaling_setspeed` unless the governor is userspace."""


def as_mask(cpus: Iterable[int]) -> str:
    """Return CPU numbers in the kernel's mask format: groups of 32 bits, highest first."""
    bits = sum(1 << cpu for cpu in cpus)
    groups: list[str] = []
    while bits or not groups:
        groups.append(f"{bits & 0xFFFFFFFF:08x}")
        bits >>= 32
    return ",".join(reversed(groups))


def policy(cpu: int) -> str:
    """Return the folder of a CPU's cpufreq policy; every CPU has its own."""
    return f"{CPU}/cpufreq/policy{cpu}"


def zone(socket: int) -> str:
    """Return the folder of a socket's energy counter."""
    return f"{_POWERCAP}/intel-rapl:{socket}"


def energy_of(socket: int) -> str:
    """Return the file of a socket's energy counter, in uJ."""
    return f"{zone(socket)}/energy_uj"


def topology_files(machine: EmulatedMachine, cpu: int, online: Iterable[int]) -> dict[str, str]:
    """Return the topology files of an online CPU: the CPUs that share its core, die and socket."""
    socket = machine.socket_of(cpu)
    together = [other for other in online if machine.socket_of(other) == socket]
    first = next(other for other in range(machine.cores) if machine.socket_of(other) == socket)
    files = {"physical_package_id": f"{socket}", "die_id": "0", "core_id": f"{cpu - first}"}
    for names, cpus in ((_OF_A_CORE, [cpu]), (_OF_A_SOCKET, together)):
        files |= {name: as_mask(cpus) for name in names} | {f"{name}_list": as_list(cpus) for name in names}
    return {f"{CPU}/cpu{cpu}/topology/{name}": text for name, text in files.items()}


_OF_A_CORE = ("core_cpus", "thread_siblings")
_OF_A_SOCKET = ("package_cpus", "core_siblings", "die_cpus")


def policy_files(machine: EmulatedMachine, cpu: int) -> dict[str, str]:
    """Return the files of a policy with the driver's defaults, as for a CPU that has just come online."""
    folder, top = policy(cpu), machine.top_khz
    highest = machine.turbo_khz or top
    files = {
        "affected_cpus": f"{cpu}",
        "related_cpus": f"{cpu}",
        "cpuinfo_max_freq": f"{highest}",
        "cpuinfo_min_freq": f"{machine.khz[-1]}",
        "cpuinfo_transition_latency": "10000",
        "scaling_available_frequencies": " ".join(map(str, machine.khz)),
        "scaling_available_governors": " ".join(GOVERNORS),
        "scaling_cur_freq": f"{highest}",
        "scaling_driver": DRIVER,
        "scaling_governor": "performance",
        "scaling_max_freq": f"{highest}",
        "scaling_min_freq": f"{machine.khz[-1]}",
        "scaling_setspeed": NO_SPEED,
    }
    if machine.turbo_khz is not None:
        files["scaling_boost_frequencies"] = f"{machine.turbo_khz}"
    return {f"{folder}/{name}": text for name, text in files.items()}


def sysfs_files(machine: EmulatedMachine) -> dict[str, str]:
    """Return path below `/sys` -> text without the final newline, for a machine that has just booted."""
    everything = range(machine.cores)
    files = {
        f"{CPU}/online": as_list(everything),
        f"{CPU}/present": as_list(everything),
        f"{CPU}/possible": as_list(everything),
        f"{CPU}/offline": "",
        f"{CPU}/isolated": "",
        f"{CPU}/kernel_max": "8191",
        f"{CPU}/smt/control": "notsupported",
        f"{CPU}/smt/active": "0",
        f"{_MEMORY_NODES}/online": "0",
        f"{_MEMORY_NODES}/possible": "0",
        f"{_MEMORY_NODES}/node0/cpulist": as_list(everything),
        f"{_MEMORY_NODES}/node0/cpumap": as_mask(everything),
        f"{_POWERCAP}/enabled": "1",
        f"{_POWERCAP}/{MODELLED}": "1",
    }
    if machine.turbo_khz is not None:
        files[f"{CPU}/cpufreq/boost"] = "1"
    for cpu in everything:
        files |= topology_files(machine, cpu, everything)
        # CPU 0 of a PC cannot be taken offline and has no such file.
        if cpu:
            files[f"{CPU}/cpu{cpu}/online"] = "1"
        files |= policy_files(machine, cpu)
    for socket in range(machine.sockets):
        counter = {"name": f"package-{socket}", "enabled": "1", "energy_uj": "0"}
        counter["max_energy_range_uj"] = f"{ENERGY_RANGE_UJ}"
        files |= {f"{zone(socket)}/{name}": text for name, text in counter.items()}
    return files


def sysfs_links(machine: EmulatedMachine) -> dict[str, str]:
    """Return path below `/sys` -> target of the symbolic link there."""
    links = {f"{CPU}/cpu{cpu}/cpufreq": f"../cpufreq/policy{cpu}" for cpu in range(machine.cores)}
    links |= {f"{_MEMORY_NODES}/node0/cpu{cpu}": f"../../cpu/cpu{cpu}" for cpu in range(machine.cores)}
    for folder in (_POWERCAP, *map(zone, range(machine.sockets))):
        links[f"class/powercap/{folder.rpartition('/')[2]}"] = f"../../{folder}"
    return links


def write_tree(machine: EmulatedMachine, root: Path) -> None:
    """Write the files below `root`, the upper layer of an overlay over the host's `/sys`.

    Raises:
        OSError: they cannot be written, or the file system does not support opaque folders.
    """
    for folder in COVERED:
        (root / folder).mkdir(parents=True)
        os.setxattr(root / folder, "trusted.overlay.opaque", b"y")
    for path, text in sysfs_files(machine).items():
        write_file(root / path, text)
    for path, target in sysfs_links(machine).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(target)


def write_file(path: Path, text: str) -> None:
    """Write a file with a final newline, as the kernel's files have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    overwrite(path, text + "\n")


def overwrite(path: Path, text: str) -> None:
    """Write a file in its place, because other mounts may show it; who reads it meanwhile never finds it empty."""
    content = text.encode()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.pwrite(file, content, 0)
        os.ftruncate(file, len(content))
    finally:
        os.close(file)


def cpuinfo(machine: EmulatedMachine, khz: Mapping[int, int], host: str) -> str:
    """Return `/proc/cpuinfo` of a machine.

    Args:
        machine: the machine; its class is the model name.
        khz: online CPU -> its clock.
        host: `/proc/cpuinfo` of the host, from which vendor and flags are taken.
    """
    first = host.partition("\n\n")[0]
    kept = [line for line in first.splitlines() if line.partition("\t")[0] in _OF_THE_HOST]
    parts = []
    for cpu, clock in khz.items():
        socket = machine.socket_of(cpu)
        together = [other for other in range(machine.cores) if machine.socket_of(other) == socket]
        fields = {
            "processor": f"{cpu}",
            "model name": f"{machine.kind} (emulated) @ {machine.ghz:.2f}GHz",
            "cpu MHz": f"{clock / 1000:.3f}",
            "physical id": f"{socket}",
            "siblings": f"{len(together)}",
            "core id": f"{cpu - together[0]}",
            "cpu cores": f"{len(together)}",
            "bogomips": f"{machine.ghz * 2000:.2f}",
        }
        parts.append("\n".join([*(f"{name}\t: {text}" for name, text in fields.items()), *kept]))
    return "\n\n".join(parts) + "\n\n"


def meminfo(machine: EmulatedMachine, used: int) -> str:
    """Return `/proc/meminfo` of a machine with `used` bytes of memory in use."""
    total = machine.memory_mb << 10
    free = max(0, total - (used >> 10))
    amounts = {"MemTotal": total, "MemFree": free, "MemAvailable": free}
    amounts |= dict.fromkeys(("Buffers", "Cached", "Active", "Inactive", "Shmem", "Slab", "SReclaimable"), 0)
    amounts |= {"SwapTotal": 0, "SwapFree": 0}
    return "".join(f"{name + ':':<16}{amount:>8} kB\n" for name, amount in amounts.items())


_OF_THE_HOST = ("vendor_id", "cpu family", "model", "stepping", "microcode", "cache size", "fpu", "flags", "Features")

"""Facts about a node for its `Hello`; None for unknown ones."""

import os
import platform
from pathlib import Path
from typing import Any

import psutil

_CONTAINER_SIGNS = (Path("/.dockerenv"), Path("/run/.containerenv"), Path("/run/systemd/container"))
_CPUINFO = Path("/proc/cpuinfo")
_DMI = Path("/sys/class/dmi/id")


def gather() -> dict[str, Any]:
    """Return facts about this machine, JSON types only.

    `clock` identifies the monotonic clock: agents with the same value read the same clock, so that their times can be
    compared directly. `bogomips` and `isa` are as in `inventory.cluster.Facts`.
    """
    cpu = _first_cpu(_text(_CPUINFO) or "")
    flags = (cpu.get("flags") or cpu.get("Features") or "").split()
    bogomips = float(cpu.get("bogomips") or cpu.get("BogoMIPS") or 0)
    return {
        "hostname": platform.node(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cores_online": os.sysconf("SC_NPROCESSORS_ONLN"),
        "cpu_model": cpu.get("model name"),
        "bogomips": bogomips or None,
        "isa": flags or None,
        "memory_bytes": psutil.virtual_memory().total,
        "clock": _clock(),
        "virtualisation": _virtualisation("hypervisor" in flags),
    }


def _clock() -> str | None:
    boot = _text(Path("/proc/sys/kernel/random/boot_id"))
    if boot is None:
        return None
    try:
        # A time namespace shifts CLOCK_MONOTONIC; kernels without time namespaces have a single clock.
        space = str(Path("/proc/self/ns/time").readlink())
    except OSError:
        space = "time:[initial]"
    return f"monotonic {boot} {space}"


def _virtualisation(hypervisor: bool) -> str | None:
    """Return a description of virtualisation: the firmware's name of a virtual machine, and whether in a container."""
    hints = []
    if hypervisor:
        names = (_text(_DMI / name) for name in ("sys_vendor", "product_name"))
        hints.append(" ".join(["virtual machine", *filter(None, names)]))
    if any(sign.exists() for sign in _CONTAINER_SIGNS):
        hints.append("container")
    return ", ".join(hints) or None


def _first_cpu(cpuinfo: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in cpuinfo.partition("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None

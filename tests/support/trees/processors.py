"""Machines as kernels show them below /sys/devices/system/cpu, one function per machine.

Written from the kernel's documentation (admin-guide/pm, ABI/testing/sysfs-devices-system-cpu). `kernel.json` beside the
files tells `fake_kernel.FakeKernel` how the machine reacts to writes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CPU = "sys/devices/system/cpu"
GENERIC = "conservative ondemand userspace powersave performance schedutil"
OWN = "performance powersave"
EPPS = "default performance balance_performance balance_power power"

Files = Mapping[str, str]


@dataclass
class Machine:
    """One machine: its cores (socket, CPUs), its policies (CPUs), and the files of a policy per driver mode."""

    cores: Sequence[tuple[int, tuple[int, ...]]]
    policies: Sequence[tuple[int, ...]] = ()
    modes: Mapping[str, Files] = field(default_factory=dict)
    mode: str = ""
    status: str = ""
    files: Files = field(default_factory=dict)
    grain: int = 1
    fixed: Sequence[int] = (0,)
    smt: str = "on"
    off: Sequence[int] = ()
    clocks: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    def build(self, root: Path, **changes: Any) -> Path:
        """Write the tree below `root` and return it.

        `changes` replace attributes; with `keeps_policies` a policy stays, and reads fail with EBUSY, while its CPUs
        are offline.
        """
        keeps_policies = changes.pop("keeps_policies", False)
        for name, value in changes.items():
            setattr(self, name, value)
        cpus = sorted(cpu for _, core in self.cores for cpu in core)
        kernel = {
            "fixed": list(self.fixed),
            "cores": [[socket, list(core)] for socket, core in self.cores],
            "policies": {f"policy{min(group)}": list(group) for group in self.policies},
            "modes": {name: dict(files) for name, files in self.modes.items()},
            "clocks": {str(cpu): list(pair) for cpu, pair in self.clocks.items()},
            "status": self.status,
            "grain": self.grain,
            "keeps_policies": keeps_policies,
        }
        (root / "kernel.json").write_text(json.dumps(kernel))
        write(root, "proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555")
        write(root, "proc/mounts", "sysfs /sys sysfs rw,nosuid,nodev,noexec,relatime 0 0")
        (root / CPU / "cpufreq").mkdir(parents=True)
        write(root, f"{CPU}/smt/control", self.smt)
        write(root, f"{CPU}/present", f"{cpus[0]}-{cpus[-1]}")
        for cpu in cpus:
            (root / CPU / f"cpu{cpu}").mkdir()
            if cpu not in self.fixed:
                write(root, f"{CPU}/cpu{cpu}/online", "0" if cpu in self.off else "1")
        if self.status:
            write(root, f"{CPU}/{self.status}/status", self.mode)
        for path, text in self.files.items():
            write(root, f"{CPU}/{path}", text)
        from fake_kernel import FakeKernel

        FakeKernel(root).boot()
        return root


def write(root: Path, path: str, text: str) -> None:
    """Write one file of a tree, with a trailing newline as kernels do."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text + "\n")


def _policy(driver: str, governor: str, governors: str, low: int, high: int, **more: str) -> dict[str, str]:
    return {
        "scaling_driver": driver,
        "scaling_governor": governor,
        "scaling_available_governors": governors,
        "scaling_min_freq": str(low),
        "scaling_max_freq": str(high),
        "cpuinfo_min_freq": str(low),
        "cpuinfo_max_freq": str(high),
        **more,
    }


def _intel_modes(low: int = 800_000, high: int = 4_000_000, base: int = 2_400_000) -> dict[str, dict[str, str]]:
    epp = {"energy_performance_preference": "balance_performance", "energy_performance_available_preferences": EPPS}
    return {
        "active": _policy("intel_pstate", "powersave", OWN, low, high, base_frequency=str(base), **epp),
        "passive": _policy("intel_cpufreq", "schedutil", GENERIC, low, high, base_frequency=str(base)),
    }


def acpi_shared() -> Machine:
    """Four CPUs without SMT under acpi-cpufreq: two policies of two CPUs, a table of clocks, boost."""
    steps = (800_000, 1_200_000, 1_600_000, 2_000_000, 2_400_000)
    table = {
        "scaling_available_frequencies": " ".join(map(str, reversed(steps))),
        "scaling_boost_frequencies": "3000000",
        "scaling_setspeed": "<unsupported>",
    }
    return Machine(
        cores=[(0, (cpu,)) for cpu in range(4)],
        policies=[(0, 1), (2, 3)],
        modes={"": _policy("acpi-cpufreq", "ondemand", GENERIC, 800_000, 3_000_000, **table)},
        files={"cpufreq/boost": "1"},
        smt="notsupported",
    )


def intel_active() -> Machine:
    """A client with four cores of two threads (i and i+4) under intel_pstate in mode active."""
    return Machine(
        cores=[(0, (cpu, cpu + 4)) for cpu in range(4)],
        policies=[(cpu,) for cpu in range(8)],
        modes=_intel_modes(),
        mode="active",
        status="intel_pstate",
        files={"intel_pstate/no_turbo": "0"},
        grain=100_000,
    )


def intel_passive() -> Machine:
    """The same with the generic governors of mode passive."""
    machine = intel_active()
    machine.mode = "passive"
    return machine


def two_sockets() -> Machine:
    """A server of two sockets with four cores each; even cores are in socket 0, odd ones in socket 1."""
    return Machine(
        cores=[(cpu % 2, (cpu, cpu + 8)) for cpu in range(8)],
        policies=[(cpu,) for cpu in range(16)],
        modes=_intel_modes(1_000_000, 3_800_000, 2_100_000),
        mode="active",
        status="intel_pstate",
        files={"intel_pstate/no_turbo": "0"},
        grain=100_000,
    )


def amd_epp() -> Machine:
    """Four cores of two threads (2i and 2i+1) under amd-pstate in mode active."""
    epp = {"energy_performance_preference": "performance", "energy_performance_available_preferences": EPPS}
    low, high = 400_000, 4_500_000
    return Machine(
        cores=[(0, (2 * core, 2 * core + 1)) for core in range(4)],
        policies=[(cpu,) for cpu in range(8)],
        modes={
            "active": _policy("amd-pstate-epp", "powersave", OWN, low, high, **epp),
            "passive": _policy("amd-pstate", "schedutil", GENERIC, low, high),
            "guided": _policy("amd-pstate", "schedutil", GENERIC, low, high),
        },
        mode="active",
        status="amd_pstate",
        files={"cpufreq/boost": "1"},
    )


def amd_passive() -> Machine:
    """The same in mode passive."""
    machine = amd_epp()
    machine.mode = "passive"
    return machine


def cppc() -> Machine:
    """An ARM server: one policy for four CPUs, each of which can go offline; no SMT, no turbo switch."""
    return Machine(
        cores=[(0, (cpu,)) for cpu in range(4)],
        policies=[(0, 1, 2, 3)],
        modes={"": _policy("cppc_cpufreq", "schedutil", GENERIC, 1_000_000, 3_000_000)},
        fixed=(),
        smt="notimplemented",
    )


def hybrid() -> Machine:
    """Two fast cores with two threads each and four slow cores with one, with different limits."""
    return Machine(
        cores=[(0, (0, 1)), (0, (2, 3)), *[(0, (cpu,)) for cpu in range(4, 8)]],
        policies=[(cpu,) for cpu in range(8)],
        modes=_intel_modes(800_000, 5_000_000, 2_600_000),
        mode="active",
        status="intel_pstate",
        files={"intel_pstate/no_turbo": "0"},
        grain=100_000,
        clocks=dict.fromkeys(range(4, 8), (800_000, 3_800_000)),
    )


def core_off() -> Machine:
    """The client with its last core offline from the start."""
    machine = intel_active()
    machine.off = (3, 7)
    return machine


def smt_off() -> Machine:
    """The client with SMT turned off."""
    machine = intel_active()
    machine.smt, machine.off = "off", (4, 5, 6, 7)
    return machine


def half_policy() -> Machine:
    """Shared policies, one of which has one of its two CPUs offline."""
    machine = acpi_shared()
    machine.off = (3,)
    return machine


def virtual() -> Machine:
    """A virtual machine: two CPUs, and an empty folder `cpufreq`."""
    return Machine(cores=[(0, (0,)), (0, (1,))], smt="notsupported")


MACHINES = (
    acpi_shared,
    intel_active,
    intel_passive,
    two_sockets,
    amd_epp,
    amd_passive,
    cppc,
    hybrid,
    core_off,
    smt_off,
    half_policy,
    virtual,
)
"""All machines."""

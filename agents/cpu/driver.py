"""Mode of the cpufreq driver (`intel_pstate/status`, `amd_pstate/status`), and properties of each driver.

Sources: Linux, Documentation/admin-guide/pm/{cpufreq,intel_pstate,amd-pstate}.rst.
"""

from collections.abc import Mapping

from agents.cpu.feature import SettingChange, View, differing, settable
from agents.cpu.policies import Policy
from agents.cpu.request import CpuRequest
from agents.cpu.result import Refusal
from agents.cpu.snapshot import Snapshot
from agents.cpu.topology import FOLDER
from agents.host_files import Finding, HostFiles
from inventory.errors import nearest

MODES: Mapping[str, tuple[str, ...]] = {
    f"{FOLDER}/intel_pstate/status": ("active", "passive"),
    f"{FOLDER}/amd_pstate/status": ("active", "passive", "guided"),
}
"""File -> modes. `off` and `disable` unload the driver and are never requested."""

GENERIC = ("conservative", "ondemand", "performance", "powersave", "schedutil", "userspace")
"""The kernel's governors, which choose the clock for drivers that do not choose it themselves."""

OWN = ("performance", "powersave")
"""Governors of drivers that choose the clock themselves: hints, not the generic governors of the same names."""

OF_OWN_CHOICE = ("intel_pstate", "amd-pstate-epp")
"""The drivers of mode `active`."""

NOTES: Mapping[str, str] = {
    "acpi-cpufreq": "clocks from a table; a policy may span several CPUs",
    "intel_pstate": "the processor chooses the clock: `powersave` is dynamic, `performance` keeps to the upper"
    " limit and locks the EPP; above the base clock it follows no limit exactly",
    "intel_cpufreq": "any clock in the range, chosen by the governor",
    "amd-pstate-epp": "the processor chooses the clock: `powersave` is dynamic, `performance` locks the EPP",
    "amd-pstate": "any clock in the range; in mode `guided` the processor chooses within it",
}
"""Driver -> note for users who set clocks."""


def probe(host: HostFiles) -> Finding:
    """Check whether the driver has modes."""
    return settable(host, paths(host), "the cpufreq driver has no modes (only intel_pstate and amd_pstate do)")


def paths(host: HostFiles) -> list[str]:
    """Return the existing status files; both drivers may be built in, with one of them `off`."""
    return [path for path in MODES if host.read_if_there(path) in MODES[path]]


def refusals(request: CpuRequest, view: View) -> list[Refusal]:
    """Refuse a mode that the driver does not have."""
    if request.driver_mode is None:
        return []
    found = probe(view.host)
    if found.status != "ok":
        return [Refusal("driver_mode", request.driver_mode, "", found.reason)]
    modes = {mode for path in paths(view.host) for mode in MODES[path]}
    if request.driver_mode in modes:
        return []
    near = nearest(request.driver_mode, modes)
    return [Refusal("driver_mode", request.driver_mode, ", ".join(sorted(modes)), f"there is no such mode{near}")]


def changes(request: CpuRequest, view: View) -> list[SettingChange]:
    """Return the change of the mode, which resets all policies."""
    if request.driver_mode is None:
        return []
    return [
        SettingChange(
            "driver mode", path, view.host.read_if_there(path) or "", request.driver_mode, request.driver_mode
        )
        for path in paths(view.host)
    ]


def changes_back(before: Snapshot, view: View) -> list[SettingChange]:
    """Return the change back to the old mode; it must precede the restoration of policies."""
    return differing("driver mode", list(MODES), before, view)


def is_switched(before: Snapshot, host: HostFiles) -> bool:
    """Return whether the mode differs from the original one."""
    return any(path in before.values and before.values[path] != host.read_if_there(path) for path in MODES)


def governors(request: CpuRequest, policy: Policy, view: View) -> tuple[str, ...]:
    """Return the governors that a policy will offer in the requested driver mode."""
    switching = request.driver_mode is not None and any(
        view.host.read_if_there(p) != request.driver_mode for p in paths(view.host)
    )
    if not switching:
        return policy.governors
    return OWN if request.driver_mode == "active" else GENERIC


def chooses_itself(request: CpuRequest, policy: Policy) -> bool:
    """Return whether the processor, not the governor, will choose the policy's clock."""
    return policy.driver in OF_OWN_CHOICE if request.driver_mode is None else request.driver_mode == "active"

"""The mode of the cpufreq driver (`intel_pstate/status`, `amd_pstate/status`), and what each driver means.

Sources: Linux, Documentation/admin-guide/pm/{cpufreq,intel_pstate,amd-pstate}.rst.
"""

from collections.abc import Mapping

from agents.cpu.answer import Refusal
from agents.cpu.policies import Policy
from agents.cpu.snapshot import Snapshot
from agents.cpu.step import Step, View, differing, settable
from agents.cpu.topology import FOLDER
from agents.cpu.wish import CpuRequest
from agents.host_files import Finding, HostFiles
from inventory.errors import nearest

MODES: Mapping[str, tuple[str, ...]] = {
    f"{FOLDER}/intel_pstate/status": ("active", "passive"),
    f"{FOLDER}/amd_pstate/status": ("active", "passive", "guided"),
}
"""File -> modes. `off` and `disable` unload the driver and are never asked for."""

GENERIC = ("conservative", "ondemand", "performance", "powersave", "schedutil", "userspace")
"""Governors of the kernel, which drivers that choose no clock themselves leave the choice to."""

OWN = ("performance", "powersave")
"""What drivers offer that choose the clock themselves: hints to them, not the generic governors of these names."""

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
"""Driver -> what to know of it when clocks are set."""


def probe(host: HostFiles) -> Finding:
    """Whether the driver has modes."""
    return settable(host, paths(host), "the cpufreq driver has no modes (only intel_pstate and amd_pstate do)")


def paths(host: HostFiles) -> list[str]:
    """The status files there are; both drivers may be built in, and one of them is `off`."""
    return [path for path in MODES if host.read_if_there(path) in MODES[path]]


def refusals(wish: CpuRequest, view: View) -> list[Refusal]:
    """A mode that the driver does not have."""
    if wish.driver_mode is None:
        return []
    found = probe(view.host)
    if found.status != "ok":
        return [Refusal("driver_mode", wish.driver_mode, "", found.reason)]
    modes = {mode for path in paths(view.host) for mode in MODES[path]}
    if wish.driver_mode in modes:
        return []
    near = nearest(wish.driver_mode, modes)
    return [Refusal("driver_mode", wish.driver_mode, ", ".join(sorted(modes)), f"there is no such mode{near}")]


def steps(wish: CpuRequest, view: View) -> list[Step]:
    """The mode itself; all policies begin anew with it."""
    if wish.driver_mode is None:
        return []
    return [
        Step("driver mode", path, view.host.read_if_there(path) or "", wish.driver_mode, wish.driver_mode)
        for path in paths(view.host)
    ]


def steps_back(before: Snapshot, view: View) -> list[Step]:
    """The mode that was; it comes before all that the policies of that mode hold."""
    return differing("driver mode", list(MODES), before, view)


def is_switched(before: Snapshot, host: HostFiles) -> bool:
    """Whether another mode is in force than was found."""
    return any(path in before.values and before.values[path] != host.read_if_there(path) for path in MODES)


def governors(wish: CpuRequest, policy: Policy, view: View) -> tuple[str, ...]:
    """The governors that a policy will offer once the wished driver mode is in force."""
    switching = wish.driver_mode is not None and any(
        view.host.read_if_there(p) != wish.driver_mode for p in paths(view.host)
    )
    if not switching:
        return policy.governors
    return OWN if wish.driver_mode == "active" else GENERIC


def chooses_itself(wish: CpuRequest, policy: Policy) -> bool:
    """Whether the processor, not the governor, will choose the policy's clock."""
    return policy.driver in OF_OWN_CHOICE if wish.driver_mode is None else wish.driver_mode == "active"

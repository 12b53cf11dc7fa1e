"""The choice of a clock: driver mode, governor and energy-performance preference.

The mode of the cpufreq driver (`intel_pstate/status`, `amd_pstate/status`) decides which governors there are, and
whether the processor chooses the clock itself. The preference (EPP) is a hint to such processors. Sources: Linux,
Documentation/admin-guide/pm/{cpufreq,intel_pstate,amd-pstate}.rst.
"""

from collections.abc import Mapping

from agents.cpu.feature import CpuView, Feature, SettingChange, differing, settable
from agents.cpu.journal import CpuSnapshot
from agents.cpu.request import CpuRequest, Refusal
from agents.cpu.topology import FOLDER, POLICIES, Policy, no_policy
from agents.host_files import HostFiles, ProbeResult
from inventory.errors import nearest

MODES: Mapping[str, tuple[str, ...]] = {
    f"{FOLDER}/intel_pstate/status": ("active", "passive"),
    f"{FOLDER}/amd_pstate/status": ("active", "passive", "guided"),
}
"""File -> modes. `off` and `disable` unload the driver and are never requested."""

_GENERIC_GOVERNORS = ("conservative", "ondemand", "performance", "powersave", "schedutil", "userspace")
"""The kernel's governors, which choose the clock for drivers that do not choose it themselves."""

_OWN_GOVERNORS = ("performance", "powersave")
"""Governors of drivers that choose the clock themselves: hints, not the generic governors of the same names."""

_OWN_CHOICE = ("intel_pstate", "amd-pstate-epp")
"""The drivers of mode `active`."""

DRIVER_NOTES: Mapping[str, str] = {
    "acpi-cpufreq": "clocks from a table; a policy may span several CPUs",
    "intel_pstate": "the processor chooses the clock: `powersave` is dynamic, `performance` keeps to the upper"
    " limit and locks the EPP; above the base clock it follows no limit exactly",
    "intel_cpufreq": "any clock in the range, chosen by the governor",
    "amd-pstate-epp": "the processor chooses the clock: `powersave` is dynamic, `performance` locks the EPP",
    "amd-pstate": "any clock in the range; in mode `guided` the processor chooses within it",
}
"""Driver -> note for users who set clocks."""

_GOVERNOR, _SPEED = "scaling_governor", "scaling_setspeed"
_HOLDING = "userspace"
_EPP = "energy_performance_preference"

_PREFERENCES = ("default", "performance", "balance_performance", "balance_power", "power")
"""The kernel's names of preferences."""

_LOCKED = "performance"
"""Governor that locks the preference, and the preference that it locks."""


class DriverMode(Feature):
    """Mode of the cpufreq driver."""

    def probe(self, host: HostFiles) -> ProbeResult:
        """Check whether the driver has modes."""
        return settable(host, self.paths(host), "the cpufreq driver has no modes (only intel_pstate and amd_pstate do)")

    def paths(self, host: HostFiles) -> list[str]:
        """Return the existing status files; both drivers may be built in, with one of them `off`."""
        return [path for path in MODES if host.read_if_there(path) in MODES[path]]

    def refusals(self, request: CpuRequest, view: CpuView) -> list[Refusal]:
        """Refuse a mode that the driver does not have."""
        if request.driver_mode is None:
            return []
        probed = self.probe(view.host)
        if probed.status != "ok":
            return [Refusal("driver_mode", request.driver_mode, "", probed.reason)]
        modes = {mode for path in self.paths(view.host) for mode in MODES[path]}
        if request.driver_mode in modes:
            return []
        near = nearest(request.driver_mode, modes)
        return [Refusal("driver_mode", request.driver_mode, ", ".join(sorted(modes)), f"there is no such mode{near}")]

    def changes(self, request: CpuRequest, view: CpuView) -> list[SettingChange]:
        """Return the change of the mode, which resets all policies."""
        if request.driver_mode is None:
            return []
        return [
            SettingChange(
                "driver mode", path, view.host.read_if_there(path) or "", request.driver_mode, request.driver_mode
            )
            for path in self.paths(view.host)
        ]

    def changes_back(self, before: CpuSnapshot, view: CpuView) -> list[SettingChange]:
        """Return the change back to the old mode; it must precede the restoration of policies."""
        return differing("driver mode", list(MODES), before, view)

    def governors(self, request: CpuRequest, policy: Policy, view: CpuView) -> tuple[str, ...]:
        """Return the governors that a policy will offer in the requested driver mode."""
        switching = request.driver_mode is not None and any(
            view.host.read_if_there(p) != request.driver_mode for p in self.paths(view.host)
        )
        if not switching:
            return policy.governors
        return _OWN_GOVERNORS if request.driver_mode == "active" else _GENERIC_GOVERNORS


class Governor(Feature):
    """cpufreq governor of every policy (`scaling_governor`), and the clock set for the governor `userspace`.

    Millrace never sets that clock (`scaling_setspeed`): a range with equal ends has the same effect with every driver.
    But an operator may have set it, and the kernel drops it when the governor changes.
    """

    def probe(self, host: HostFiles) -> ProbeResult:
        """Check whether governors can be set."""
        return settable(host, _governors(host), f"{no_policy(host)}: there is no governor")

    def paths(self, host: HostFiles) -> list[str]:
        """Return one file per policy, and one more for the governor `userspace`."""
        return _governors(host) + _speeds(host)

    def refusals(self, request: CpuRequest, view: CpuView) -> list[Refusal]:
        """Refuse a governor that some policy does not offer."""
        if request.governor is None:
            return []
        if not view.policies:
            return [Refusal("governor", request.governor, "", self.probe(view.host).reason)]
        for policy in view.policies:
            choices = DriverMode().governors(request, policy, view)
            if request.governor not in choices:
                reason = (
                    f"{policy.name} (driver {policy.driver}) has no such governor{nearest(request.governor, choices)}"
                )
                return [Refusal("governor", request.governor, ", ".join(choices), reason)]
        return []

    def changes(self, request: CpuRequest, view: CpuView) -> list[SettingChange]:
        """Return the change of every online policy's governor."""
        if request.governor is None:
            return []
        return [
            SettingChange(
                f"governor of {policy.name}",
                policy.file(_GOVERNOR),
                policy.governor or "",
                request.governor,
                request.governor,
            )
            for policy in view.policies
        ]

    def changes_back(self, before: CpuSnapshot, view: CpuView) -> list[SettingChange]:
        """Return the changes back to the old governors."""
        return differing("governor", _governors(view.host), before, view)

    def held_clocks_back(self, before: CpuSnapshot, view: CpuView) -> list[SettingChange]:
        """Return the changes back to `userspace` clocks, once their governor and range are restored."""
        return differing("held clock", _speeds(view.host), before, view)


class Epp(Feature):
    """Energy-performance preference of every policy."""

    def probe(self, host: HostFiles) -> ProbeResult:
        """Check whether preferences can be set."""
        return settable(host, self.paths(host), "no cpufreq policy with an energy_performance_preference")

    def paths(self, host: HostFiles) -> list[str]:
        """Return one file per policy that has a preference."""
        return [path for name in host.names(POLICIES) if host.exists(path := f"{POLICIES}/{name}/{_EPP}")]

    def refusals(self, request: CpuRequest, view: CpuView) -> list[Refusal]:
        """Refuse a preference that is unknown or locked by the governor."""
        if request.epp is None:
            return []
        able = [policy for policy in view.policies if policy.epp is not None]
        if not able and request.driver_mode == "active" and (request.epp in _PREFERENCES or request.epp.isdigit()):
            # The preference appears with the mode.
            return []
        if not able:
            return [Refusal("epp", request.epp, "", self.probe(view.host).reason)]
        for policy in able:
            if request.epp not in policy.epps and not request.epp.isdigit():
                reason = f"{policy.name} has no such preference{nearest(request.epp, policy.epps)}"
                return [Refusal("epp", request.epp, ", ".join(policy.epps), reason)]
            governor = request.governor or policy.governor
            if governor == _LOCKED and chooses_itself(request, policy) and request.epp not in {_LOCKED, "0"}:
                reason = f"the governor {_LOCKED} of driver {policy.driver} locks it"
                return [
                    Refusal(
                        "epp",
                        request.epp,
                        f"{_LOCKED}, or with the governor powersave: {', '.join(policy.epps)}",
                        reason,
                    )
                ]
        return []

    def changes(self, request: CpuRequest, view: CpuView) -> list[SettingChange]:
        """Return the change of every policy that has a preference."""
        if request.epp is None:
            return []
        return [
            SettingChange(f"EPP of {policy.name}", policy.file(_EPP), policy.epp, request.epp, request.epp)
            for policy in view.policies
            if policy.epp is not None
        ]

    def changes_back(self, before: CpuSnapshot, view: CpuView) -> list[SettingChange]:
        """Return the changes back to the old preferences; those locked by a governor are restored with it."""
        return differing("EPP", self.paths(view.host), before, view)


def is_switched(before: CpuSnapshot, host: HostFiles) -> bool:
    """Return whether the mode differs from the original one."""
    return any(path in before.values and before.values[path] != host.read_if_there(path) for path in MODES)


def chooses_itself(request: CpuRequest, policy: Policy) -> bool:
    """Return whether the processor, not the governor, will choose the policy's clock."""
    return policy.driver in _OWN_CHOICE if request.driver_mode is None else request.driver_mode == "active"


def _governors(host: HostFiles) -> list[str]:
    return [path for name in host.names(POLICIES) if host.exists(path := f"{POLICIES}/{name}/{_GOVERNOR}")]


def _speeds(host: HostFiles) -> list[str]:
    return [
        path
        for name in host.names(POLICIES)
        if host.read_if_there(f"{POLICIES}/{name}/{_GOVERNOR}") == _HOLDING
        and host.exists(path := f"{POLICIES}/{name}/{_SPEED}")
    ]

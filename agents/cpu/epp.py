"""Energy-performance preference of every policy: a hint to processors that choose the clock themselves."""

from agents.cpu import driver
from agents.cpu.feature import SettingChange, View, differing, settable
from agents.cpu.policies import POLICIES
from agents.cpu.request import CpuRequest
from agents.cpu.result import Refusal
from agents.cpu.snapshot import Snapshot
from agents.host_files import Finding, HostFiles
from inventory.errors import nearest

FILE = "energy_performance_preference"
WORDS = ("default", "performance", "balance_performance", "balance_power", "power")
"""The kernel's names of preferences."""

LOCKED = "performance"
"""Governor that locks the preference, and the preference that it locks."""


def probe(host: HostFiles) -> Finding:
    """Check whether preferences can be set."""
    return settable(host, paths(host), "no cpufreq policy with an energy_performance_preference")


def paths(host: HostFiles) -> list[str]:
    """Return one file per policy that has a preference."""
    return [path for name in host.names(POLICIES) if host.exists(path := f"{POLICIES}/{name}/{FILE}")]


def refusals(request: CpuRequest, view: View) -> list[Refusal]:
    """Refuse a preference that is unknown or locked by the governor."""
    if request.epp is None:
        return []
    able = [policy for policy in view.policies if policy.epp is not None]
    if not able and request.driver_mode == "active" and (request.epp in WORDS or request.epp.isdigit()):
        # The preference appears with the mode.
        return []
    if not able:
        return [Refusal("epp", request.epp, "", probe(view.host).reason)]
    for policy in able:
        if request.epp not in policy.epps and not request.epp.isdigit():
            reason = f"{policy.name} has no such preference{nearest(request.epp, policy.epps)}"
            return [Refusal("epp", request.epp, ", ".join(policy.epps), reason)]
        governor = request.governor or policy.governor
        if governor == LOCKED and driver.chooses_itself(request, policy) and request.epp not in {LOCKED, "0"}:
            reason = f"the governor {LOCKED} of driver {policy.driver} locks it"
            return [
                Refusal(
                    "epp", request.epp, f"{LOCKED}, or with the governor powersave: {', '.join(policy.epps)}", reason
                )
            ]
    return []


def changes(request: CpuRequest, view: View) -> list[SettingChange]:
    """Return the change of every policy that has a preference."""
    if request.epp is None:
        return []
    return [
        SettingChange(f"EPP of {policy.name}", policy.file(FILE), policy.epp, request.epp, request.epp)
        for policy in view.policies
        if policy.epp is not None
    ]


def changes_back(before: Snapshot, view: View) -> list[SettingChange]:
    """Return the changes back to the old preferences; those locked by a governor are restored with it."""
    return differing("EPP", paths(view.host), before, view)

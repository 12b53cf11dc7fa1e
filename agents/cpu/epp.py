"""The energy-performance preference of every policy: a hint to processors that choose the clock themselves."""

from agents.cpu import driver
from agents.cpu.answer import Refusal
from agents.cpu.policies import POLICIES
from agents.cpu.snapshot import Snapshot
from agents.cpu.step import Step, View, differing, settable
from agents.cpu.wish import CpuRequest
from agents.host_files import Finding, HostFiles
from inventory.errors import nearest

FILE = "energy_performance_preference"
WORDS = ("default", "performance", "balance_performance", "balance_power", "power")
"""The kernel's words for preferences."""

LOCKED = "performance"
"""The governor under which the preference is locked, and the preference it is locked at."""


def probe(host: HostFiles) -> Finding:
    """Whether preferences can be chosen."""
    return settable(host, paths(host), "no cpufreq policy with an energy_performance_preference")


def paths(host: HostFiles) -> list[str]:
    """One file per policy that has a preference."""
    return [path for name in host.names(POLICIES) if host.exists(path := f"{POLICIES}/{name}/{FILE}")]


def refusals(wish: CpuRequest, view: View) -> list[Refusal]:
    """A preference that is not known, or is locked by the governor."""
    if wish.epp is None:
        return []
    able = [policy for policy in view.policies if policy.epp is not None]
    if not able and wish.driver_mode == "active" and (wish.epp in WORDS or wish.epp.isdigit()):
        # The preference comes with the mode.
        return []
    if not able:
        return [Refusal("epp", wish.epp, "", probe(view.host).reason)]
    for policy in able:
        if wish.epp not in policy.epps and not wish.epp.isdigit():
            reason = f"{policy.name} has no such preference{nearest(wish.epp, policy.epps)}"
            return [Refusal("epp", wish.epp, ", ".join(policy.epps), reason)]
        governor = wish.governor or policy.governor
        if governor == LOCKED and driver.chooses_itself(wish, policy) and wish.epp not in {LOCKED, "0"}:
            reason = f"the governor {LOCKED} of driver {policy.driver} locks it"
            return [
                Refusal("epp", wish.epp, f"{LOCKED}, or with the governor powersave: {', '.join(policy.epps)}", reason)
            ]
    return []


def steps(wish: CpuRequest, view: View) -> list[Step]:
    """The preference of every policy that has one."""
    if wish.epp is None:
        return []
    return [
        Step(f"EPP of {policy.name}", policy.file(FILE), policy.epp, wish.epp, wish.epp)
        for policy in view.policies
        if policy.epp is not None
    ]


def steps_back(before: Snapshot, view: View) -> list[Step]:
    """The preferences that were; those that a governor locks came back with it."""
    return differing("EPP", paths(view.host), before, view)

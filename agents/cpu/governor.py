"""The cpufreq governor of every policy (`scaling_governor`)."""

from agents.cpu import driver
from agents.cpu.answer import Refusal
from agents.cpu.policies import POLICIES
from agents.cpu.snapshot import Snapshot
from agents.cpu.step import Step, View, differing, settable
from agents.cpu.wish import CpuWish
from agents.probing import Finding, HostFiles
from inventory.errors import nearest

FILE = "scaling_governor"


def probe(host: HostFiles) -> Finding:
    """Whether governors can be chosen."""
    return settable(host, paths(host), "no cpufreq policy (usual in virtual machines): there is no governor")


def paths(host: HostFiles) -> list[str]:
    """One file per policy."""
    return [path for name in host.names(POLICIES) if host.exists(path := f"{POLICIES}/{name}/{FILE}")]


def refusals(wish: CpuWish, view: View) -> list[Refusal]:
    """A governor that some policy lacks."""
    if wish.governor is None:
        return []
    if not view.policies:
        return [Refusal("governor", wish.governor, "", probe(view.host).reason)]
    for policy in view.policies:
        choices = driver.governors(wish, policy, view)
        if wish.governor not in choices:
            reason = f"{policy.name} (driver {policy.driver}) has no such governor{nearest(wish.governor, choices)}"
            return [Refusal("governor", wish.governor, ", ".join(choices), reason)]
    return []


def steps(wish: CpuWish, view: View) -> list[Step]:
    """The governor of every policy that works, each policy once."""
    if wish.governor is None:
        return []
    return [
        Step(f"governor of {policy.name}", policy.file(FILE), policy.governor or "", wish.governor, wish.governor)
        for policy in view.policies
    ]


def steps_back(before: Snapshot, view: View) -> list[Step]:
    """The governors that were."""
    return differing("governor", paths(view.host), before, view)

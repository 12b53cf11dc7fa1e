"""cpufreq governor of every policy (`scaling_governor`), and the clock set for the governor `userspace`.

Millrace never sets that clock (`scaling_setspeed`): a range with equal ends has the same effect with every driver. But
an operator may have set it, and the kernel drops it when the governor changes.
"""

from agents.cpu import driver
from agents.cpu.feature import SettingChange, View, differing, settable
from agents.cpu.policies import POLICIES, no_policy
from agents.cpu.request import CpuRequest
from agents.cpu.result import Refusal
from agents.cpu.snapshot import Snapshot
from agents.host_files import Finding, HostFiles
from inventory.errors import nearest

FILE, SPEED = "scaling_governor", "scaling_setspeed"
HOLDING = "userspace"


def probe(host: HostFiles) -> Finding:
    """Check whether governors can be set."""
    return settable(host, _governors(host), f"{no_policy(host)}: there is no governor")


def paths(host: HostFiles) -> list[str]:
    """Return one file per policy, and one more for the governor `userspace`."""
    return _governors(host) + _speeds(host)


def refusals(request: CpuRequest, view: View) -> list[Refusal]:
    """Refuse a governor that some policy does not offer."""
    if request.governor is None:
        return []
    if not view.policies:
        return [Refusal("governor", request.governor, "", probe(view.host).reason)]
    for policy in view.policies:
        choices = driver.governors(request, policy, view)
        if request.governor not in choices:
            reason = f"{policy.name} (driver {policy.driver}) has no such governor{nearest(request.governor, choices)}"
            return [Refusal("governor", request.governor, ", ".join(choices), reason)]
    return []


def changes(request: CpuRequest, view: View) -> list[SettingChange]:
    """Return the change of every online policy's governor."""
    if request.governor is None:
        return []
    return [
        SettingChange(
            f"governor of {policy.name}", policy.file(FILE), policy.governor or "", request.governor, request.governor
        )
        for policy in view.policies
    ]


def changes_back(before: Snapshot, view: View) -> list[SettingChange]:
    """Return the changes back to the old governors."""
    return differing("governor", _governors(view.host), before, view)


def held_clocks_back(before: Snapshot, view: View) -> list[SettingChange]:
    """Return the changes back to `userspace` clocks, once their governor and range are restored."""
    return differing("held clock", _speeds(view.host), before, view)


def _governors(host: HostFiles) -> list[str]:
    return [path for name in host.names(POLICIES) if host.exists(path := f"{POLICIES}/{name}/{FILE}")]


def _speeds(host: HostFiles) -> list[str]:
    return [
        path
        for name in host.names(POLICIES)
        if host.read_if_there(f"{POLICIES}/{name}/{FILE}") == HOLDING
        and host.exists(path := f"{POLICIES}/{name}/{SPEED}")
    ]

"""The cpufreq governor of every policy (`scaling_governor`), and the clock that the governor `userspace` holds.

We never ask for such a clock (`scaling_setspeed`): a range of one does the same with every driver. But an operator may
have, and the kernel forgets it with the governor.
"""

from agents.cpu import driver
from agents.cpu.answer import Refusal
from agents.cpu.policies import POLICIES, no_policy
from agents.cpu.snapshot import Snapshot
from agents.cpu.step import Step, View, differing, settable
from agents.cpu.wish import CpuRequest
from agents.host_files import Finding, HostFiles
from inventory.errors import nearest

FILE, SPEED = "scaling_governor", "scaling_setspeed"
HOLDING = "userspace"


def probe(host: HostFiles) -> Finding:
    """Whether governors can be chosen."""
    return settable(host, _governors(host), f"{no_policy(host)}: there is no governor")


def paths(host: HostFiles) -> list[str]:
    """One file per policy, and one more where a clock is held."""
    return _governors(host) + _speeds(host)


def refusals(wish: CpuRequest, view: View) -> list[Refusal]:
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


def steps(wish: CpuRequest, view: View) -> list[Step]:
    """The governor of every policy that works, each policy once."""
    if wish.governor is None:
        return []
    return [
        Step(f"governor of {policy.name}", policy.file(FILE), policy.governor or "", wish.governor, wish.governor)
        for policy in view.policies
    ]


def steps_back(before: Snapshot, view: View) -> list[Step]:
    """The governors that were."""
    return differing("governor", _governors(view.host), before, view)


def speeds_back(before: Snapshot, view: View) -> list[Step]:
    """The clocks that were held, once their governor and a range that they lie in are back."""
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

"""Fulfil a wish: write, read back, and say what took effect."""

import time
from collections.abc import Callable
from dataclasses import replace

from agents.cpu import driver, hotplug
from agents.cpu.answer import CpuAnswer, Setting
from agents.cpu.plan import FEATURES, found, plan
from agents.cpu.snapshot import Snapshot
from agents.cpu.step import Step, look, take
from agents.cpu.topology import Core, switch
from agents.cpu.wish import CpuRequest
from agents.host_files import HostFiles

MASK_WAIT_S = 2.0
"""How long the kernel's mask of CPUs on line may lag behind the switches."""


class SettingsKeeper:
    """What was found on a host, growing by the files that appear while it is set.

    Args:
        before: how the host was found.
        save: called with the grown snapshot before such a file is written; it must not return before that is safe.
    """

    def __init__(self, before: Snapshot, save: Callable[[Snapshot], None] = lambda _: None) -> None:
        self.before = before
        self._save = save

    def notice(self, host: HostFiles) -> None:
        """Keep what has appeared: policies of CPUs that came on line, before anything changes them."""
        if driver.is_switched(self.before, host):
            # What came with another driver mode goes with it.
            return
        now = found(host).values
        appeared = {path: value for path, value in now.items() if self.before.value(path) is None}
        if appeared:
            self.before = self.before.with_later(appeared)
            self._save(self.before)

    def may_write(self, path: str, host: HostFiles) -> bool:
        """Make sure that the old value is kept; False for a file that could not be read."""
        if path in self.before.unreadable:
            return False
        if self.before.value(path) is None:
            self.notice(host)
        return self.before.value(path) is not None or driver.is_switched(self.before, host)


def apply(wish: CpuRequest, host: HostFiles, keeper: SettingsKeeper) -> CpuAnswer:
    """Fulfil a wish, unless something of it is impossible: then nothing is written.

    A write that fails does not stop the others; it is in the answer.
    """
    refused = plan(wish, host, keeper.before).refused
    if refused:
        return CpuAnswer(refused=refused)
    taken: dict[str, Setting] = {}
    view = look(host, keeper.before.cores)
    # CPUs that the kernel did not describe show their cores once they are on: hotplug comes twice.
    for feature in [again for each in FEATURES for again in ([each, each] if each is hotplug else [each])]:
        settings = write(feature.steps(wish, view), host, keeper)
        for setting in settings:
            earlier = taken.get(setting.path)
            taken[setting.path] = replace(setting, before=earlier.before) if earlier else setting
        if any(setting.got != setting.before for setting in settings):
            view = look(host, keeper.before.cores)
            keeper.notice(host)
    for cpu in view.topology.unknown:
        # What is still of no known core is a sibling that SMT keeps off: nobody asked for it.
        taken.pop(switch(cpu), None)
    all_settings = list(taken.values())
    if wish.cores is not None:
        all_settings.append(_cores(wish.cores, host, keeper.before.cores))
    return CpuAnswer(any(s.got != s.before for s in taken.values()), tuple(all_settings))


def write(steps: list[Step], host: HostFiles, keeper: SettingsKeeper) -> list[Setting]:
    """Take steps whose old values are kept."""
    return [
        take(step, host)
        if keeper.may_write(step.path, host)
        else Setting(
            step.what, step.path, step.before, step.asked, None, False, "it could not be read, so that it is left alone"
        )
        for step in steps
    ]


def _cores(asked: int, host: HostFiles, known: tuple[Core, ...]) -> Setting:
    """The number of cores that came of it; the kernel's mask has the last word."""
    deadline = time.monotonic() + MASK_WAIT_S
    topology = look(host, known).topology
    while (mask := hotplug.mask(host)) is not None and mask != topology.online and time.monotonic() < deadline:
        time.sleep(0.02)
    got = len(topology.cores_online)
    if mask is not None and mask != topology.online:
        reason = f"the kernel's list of CPUs on line is {sorted(mask)}, the switches say {sorted(topology.online)}"
        return Setting("cores", "", "", str(asked), None, False, reason)
    return Setting("cores", "", "", str(asked), str(got), got == asked, "" if got == asked else f"{got} are on line")

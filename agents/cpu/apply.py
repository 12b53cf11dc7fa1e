"""Apply a request: write it, read it back, and report what took effect."""

import time
from collections.abc import Callable
from dataclasses import replace

from agents.cpu import driver, hotplug
from agents.cpu.feature import SettingChange, read_view, write_change
from agents.cpu.plan import FEATURES, plan, take_snapshot
from agents.cpu.request import CpuRequest
from agents.cpu.result import CpuResult, Setting
from agents.cpu.snapshot import Snapshot
from agents.cpu.topology import Core, switch
from agents.host_files import HostFiles

MASK_WAIT_S = 2.0
"""How long the kernel's mask of online CPUs may lag behind the `online` files."""


class SavedSettings:
    """Original settings of a host, extended by files that appear while settings change.

    Args:
        before: snapshot of the host before any change.
        save: called with the extended snapshot before a new file is written; it must return only once it is on disk.
    """

    def __init__(self, before: Snapshot, save: Callable[[Snapshot], None] = lambda _: None) -> None:
        self.before = before
        self._save = save

    def add_new_files(self, host: HostFiles) -> None:
        """Save the values of files that have appeared: policies of CPUs that came online, before they are changed."""
        if driver.is_switched(self.before, host):
            # Files that came with another driver mode disappear with it.
            return
        now = take_snapshot(host).values
        appeared = {path: value for path, value in now.items() if self.before.value(path) is None}
        if appeared:
            self.before = self.before.with_later(appeared)
            self._save(self.before)

    def may_write(self, path: str, host: HostFiles) -> bool:
        """Ensure that the old value of a file is saved; return False for a file that could not be read."""
        if path in self.before.unreadable:
            return False
        if self.before.value(path) is None:
            self.add_new_files(host)
        return self.before.value(path) is not None or driver.is_switched(self.before, host)


def apply(request: CpuRequest, host: HostFiles, saved: SavedSettings) -> CpuResult:
    """Apply a request; write nothing when any of its settings is impossible.

    A write that fails does not stop the others; the result reports it.
    """
    refused = plan(request, host, saved.before).refused
    if refused:
        return CpuResult(refused=refused)
    taken: dict[str, Setting] = {}
    view = read_view(host, saved.before.cores)
    # The kernel describes the cores of CPUs only once they are online, so hotplug runs twice.
    for feature in [again for each in FEATURES for again in ([each, each] if each is hotplug else [each])]:
        settings = write(feature.changes(request, view), host, saved)
        for setting in settings:
            earlier = taken.get(setting.path)
            taken[setting.path] = replace(setting, before=earlier.before) if earlier else setting
        if any(setting.got != setting.before for setting in settings):
            view = read_view(host, saved.before.cores)
            saved.add_new_files(host)
    for cpu in view.topology.unknown:
        # A CPU that still belongs to no known core is a sibling kept offline by SMT; it was not requested.
        taken.pop(switch(cpu), None)
    all_settings = list(taken.values())
    if request.cores is not None:
        all_settings.append(_cores(request.cores, host, saved.before.cores))
    return CpuResult(any(s.got != s.before for s in taken.values()), tuple(all_settings))


def write(changes: list[SettingChange], host: HostFiles, saved: SavedSettings) -> list[Setting]:
    """Write changes to files whose old values are saved."""
    return [
        write_change(change, host)
        if saved.may_write(change.path, host)
        else Setting(
            change.what,
            change.path,
            change.before,
            change.asked,
            None,
            False,
            "it could not be read and is left unchanged",
        )
        for change in changes
    ]


def _cores(asked: int, host: HostFiles, known: tuple[Core, ...]) -> Setting:
    """Return the number of online cores after the change, checked against the kernel's mask."""
    deadline = time.monotonic() + MASK_WAIT_S
    topology = read_view(host, known).topology
    while (mask := hotplug.online_mask(host)) is not None and mask != topology.online and time.monotonic() < deadline:
        time.sleep(0.02)
    got = len(topology.cores_online)
    if mask is not None and mask != topology.online:
        reason = f"the kernel lists CPUs {sorted(mask)} as online, their `online` files {sorted(topology.online)}"
        return Setting("cores", "", "", str(asked), None, False, reason)
    return Setting("cores", "", "", str(asked), str(got), got == asked, "" if got == asked else f"{got} are online")

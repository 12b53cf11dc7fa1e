"""Restore the values of a snapshot.

Each feature comes after those that affect it: SMT, CPUs on, driver mode (resets policies), turbo (drivers move limits
with it), governor, range, `userspace` clocks (ranges move them), EPP (locked by some governors). Finally SMT and CPUs
go off again.
"""

from collections.abc import Callable

from agents.cpu import driver, epp, frequency, governor, hotplug, smt, turbo
from agents.cpu.feature import SettingChange, View, read_view, write_change
from agents.cpu.result import CpuResult, Setting
from agents.cpu.snapshot import Snapshot
from agents.host_files import HostFiles

ORDER: tuple[Callable[[Snapshot, View], list[SettingChange]], ...] = (
    smt.changes_back,
    hotplug.changes_back,
    driver.changes_back,
    turbo.changes_back,
    governor.changes_back,
    frequency.changes_back,
    governor.held_clocks_back,
    epp.changes_back,
)


def restore(before: Snapshot, host: HostFiles) -> CpuResult:
    """Restore everything; a second call changes nothing, and after a reboot there is nothing to restore.

    Returns what was changed and, with `ok` false, what could not be restored.
    """
    if not before.is_of_this_boot(host):
        return CpuResult()
    at_start = {path: host.read_if_there(path) for path in before.values}
    results: dict[str, Setting] = {}
    view = read_view(host, before.cores)
    for changes_back in ORDER:
        changes = changes_back(before, view)
        results |= {change.path: write_change(change, host) for change in changes}
        if changes:
            view = read_view(host, before.cores)
    # Policies of CPUs that go offline again cannot be read afterwards.
    policies = {path: host.read_if_there(path) for path in before.values if "/policy" in path}
    for off_again in (smt.changes_off_again, hotplug.changes_off_again):
        results |= {
            change.path: write_change(change, host) for change in off_again(before, read_view(host, before.cores))
        }
    at_end = {path: policies.get(path, host.read_if_there(path)) for path in before.values}
    settings = [setting for path, setting in results.items() if path in before.later and not setting.ok]
    for path, old in before.values.items():
        if at_start[path] == old == at_end[path]:
            continue
        taken = results.get(path)
        what = taken.what if taken else path
        reason = taken.reason if taken else "it no longer exists" if at_end[path] is None else ""
        settings.append(Setting(what, path, at_start[path] or "", old, at_end[path], at_end[path] == old, reason))
    return CpuResult(any(s.before != s.got for s in settings), tuple(settings))


def differences(before: Snapshot, host: HostFiles) -> CpuResult:
    """Return what `restore` would change, without writing."""
    if not before.is_of_this_boot(host):
        return CpuResult()
    now = {path: host.read_if_there(path) for path in before.values}
    settings = [Setting(path, path, now[path] or "", old) for path, old in before.values.items() if now[path] != old]
    return CpuResult(bool(settings), tuple(settings))

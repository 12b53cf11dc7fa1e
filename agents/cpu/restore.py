"""Put back what a snapshot holds.

Each feature comes after those that would disturb it: SMT, CPUs on, driver mode (policies begin anew with it), turbo
(drivers move limits with it), governor, range, held clocks (ranges move them), EPP (locked by some governors); at last
SMT and CPUs go off again.
"""

from collections.abc import Callable

from agents.cpu import driver, epp, frequency, governor, hotplug, smt, turbo
from agents.cpu.answer import CpuAnswer, Setting
from agents.cpu.snapshot import Snapshot
from agents.cpu.step import Step, View, look, take
from agents.host_files import HostFiles

ORDER: tuple[Callable[[Snapshot, View], list[Step]], ...] = (
    smt.steps_back,
    hotplug.steps_back,
    driver.steps_back,
    turbo.steps_back,
    governor.steps_back,
    frequency.steps_back,
    governor.speeds_back,
    epp.steps_back,
)


def restore(before: Snapshot, host: HostFiles) -> CpuAnswer:
    """Put everything back; twice changes nothing, and after a reboot there is nothing to put back.

    Returns what was changed and, with `ok` false, what could not be put back.
    """
    if not before.is_of_this_boot(host):
        return CpuAnswer()
    at_start = {path: host.read_if_there(path) for path in before.values}
    told: dict[str, Setting] = {}
    view = look(host, before.cores)
    for steps_back in ORDER:
        steps = steps_back(before, view)
        told |= {step.path: take(step, host) for step in steps}
        if steps:
            view = look(host, before.cores)
    # Policies of CPUs that go off again cannot be read afterwards.
    policies = {path: host.read_if_there(path) for path in before.values if "/policy" in path}
    for off_again in (smt.steps_off_again, hotplug.steps_off_again):
        told |= {step.path: take(step, host) for step in off_again(before, look(host, before.cores))}
    at_end = {path: policies.get(path, host.read_if_there(path)) for path in before.values}
    settings = [setting for path, setting in told.items() if path in before.later and not setting.ok]
    for path, old in before.values.items():
        if at_start[path] == old == at_end[path]:
            continue
        taken = told.get(path)
        what = taken.what if taken else path
        reason = taken.reason if taken else "it is not there any more" if at_end[path] is None else ""
        settings.append(Setting(what, path, at_start[path] or "", old, at_end[path], at_end[path] == old, reason))
    return CpuAnswer(any(s.before != s.got for s in settings), tuple(settings))


def differences(before: Snapshot, host: HostFiles) -> CpuAnswer:
    """What `restore` would have to change. Nothing is written."""
    if not before.is_of_this_boot(host):
        return CpuAnswer()
    now = {path: host.read_if_there(path) for path in before.values}
    settings = [Setting(path, path, now[path] or "", old) for path, old in before.values.items() if now[path] != old]
    return CpuAnswer(bool(settings), tuple(settings))

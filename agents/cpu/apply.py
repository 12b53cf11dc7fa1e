"""Apply a request: write it, read it back, report what took effect; restore a snapshot; verify settings and clocks.

The clock can differ from the cpufreq files: cores spin while the processor counts their cycles (perf). Where cycles
cannot be counted, the kernel's estimate is read while they spin. For a node with its own copy of `/sys`, the clock is
read from these files.
"""

import os
import signal
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from agents.cpu.cores import online_mask
from agents.cpu.feature import CpuView, SettingChange, read_view, write_change
from agents.cpu.frequency import HIGH, LOW
from agents.cpu.governor import is_switched
from agents.cpu.journal import CpuSnapshot
from agents.cpu.plan import (
    CLOCK_RANGE,
    CORES,
    DRIVER_MODE,
    EPP,
    FEATURES,
    GOVERNOR,
    SMT,
    TURBO,
    impossible,
    is_real_sysfs,
    plan,
    take_snapshot,
)
from agents.cpu.request import CpuRequest, CpuResult, Setting
from agents.cpu.topology import POLICIES, Core, Policy, online_file
from agents.host_files import HostFiles, open_event

MASK_WAIT_S = 2.0
"""Longest time for which the kernel's mask of online CPUs may lag behind the `online` files."""

RESTORE_ORDER: tuple[Callable[[CpuSnapshot, CpuView], list[SettingChange]], ...] = (
    SMT.changes_back,
    CORES.changes_back,
    DRIVER_MODE.changes_back,
    TURBO.changes_back,
    GOVERNOR.changes_back,
    CLOCK_RANGE.changes_back,
    GOVERNOR.held_clocks_back,
    EPP.changes_back,
)
"""Each feature comes after those that affect it: a driver mode resets policies, drivers move limits with turbo, ranges
move `userspace` clocks, and some governors lock the EPP. Finally SMT and CPUs go off again."""

TOLERANCE = 0.03
"""Relative tolerance of the clock of a busy core."""

SPIN_S = 1.0
SETTLE_S = 0.1
"""Time for governors and processors to react to a busy core."""

_HARDWARE, CYCLES = 0, 0
"""`PERF_TYPE_HARDWARE` and `PERF_COUNT_HW_CPU_CYCLES`; halted cycles are not counted."""

ESTIMATES = ("cpuinfo_avg_freq", "scaling_cur_freq")


class SavedSettings:
    """Original settings of a host, extended by files that appear while settings change.

    Args:
        before: snapshot of the host before any change.
        save: called with the extended snapshot before a new file is written; it must return only once it is on disk.
    """

    def __init__(self, before: CpuSnapshot, save: Callable[[CpuSnapshot], None] = lambda _: None) -> None:
        self.before = before
        self._save = save

    def add_new_files(self, host: HostFiles) -> None:
        """Save the values of files that have appeared: policies of CPUs that came online, before they are changed."""
        if is_switched(self.before, host):
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
        return self.before.value(path) is not None or is_switched(self.before, host)


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
    for feature in [again for each in FEATURES for again in ([each, each] if each is CORES else [each])]:
        settings = write(feature.changes(request, view), host, saved)
        for setting in settings:
            earlier = taken.get(setting.path)
            taken[setting.path] = replace(setting, before=earlier.before) if earlier else setting
        if any(setting.got != setting.before for setting in settings):
            view = read_view(host, saved.before.cores)
            saved.add_new_files(host)
    for cpu in view.topology.unknown:
        # A CPU that still belongs to no known core is a sibling kept offline by SMT; it was not requested.
        taken.pop(online_file(cpu), None)
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
    while (mask := online_mask(host)) is not None and mask != topology.online and time.monotonic() < deadline:
        time.sleep(0.02)
    got = len(topology.cores_online)
    if mask is not None and mask != topology.online:
        reason = f"the kernel lists CPUs {sorted(mask)} as online, their `online` files {sorted(topology.online)}"
        return Setting("cores", "", "", str(asked), None, False, reason)
    return Setting("cores", "", "", str(asked), str(got), got == asked, "" if got == asked else f"{got} are online")


def restore_settings(before: CpuSnapshot, host: HostFiles) -> CpuResult:
    """Restore everything; a second call changes nothing, and after a reboot there is nothing to restore.

    Returns what was changed and, with `ok` false, what could not be restored.
    """
    if not before.is_of_this_boot(host):
        return CpuResult()
    at_start = {path: host.read_if_there(path) for path in before.values}
    results: dict[str, Setting] = {}
    view = read_view(host, before.cores)
    for changes_back in RESTORE_ORDER:
        changes = changes_back(before, view)
        results |= {change.path: write_change(change, host) for change in changes}
        if changes:
            view = read_view(host, before.cores)
    # Policies of CPUs that go offline again cannot be read afterwards.
    policies = {path: host.read_if_there(path) for path in before.values if "/policy" in path}
    for off_again in (SMT.changes_off_again, CORES.changes_off_again):
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


def differences(before: CpuSnapshot, host: HostFiles) -> CpuResult:
    """Return what `restore` would change, without writing."""
    if not before.is_of_this_boot(host):
        return CpuResult()
    now = {path: host.read_if_there(path) for path in before.values}
    settings = [Setting(path, path, now[path] or "", old) for path, old in before.values.items() if now[path] != old]
    return CpuResult(bool(settings), tuple(settings))


def verify(request: CpuRequest, host: HostFiles, before: CpuSnapshot | None = None) -> dict[str, Any]:
    """Compare all settings; return JSON: `{ok, checks: [{what, asked, got, unit, ok, reason}]}`.

    A clock takes a second to check: every online core spins. `ok` is null where the clock is unknown or not limited.
    """
    view = read_view(host, before.cores if before else ())
    refused = impossible(request, view)
    checks = [_check(refusal.what, refusal.asked, None, "", False, str(refusal)) for refusal in refused]
    if request.cores is not None:
        got = len(view.topology.cores_online)
        checks.append(_check("cores on line", request.cores, got, "cores", got == request.cores))
    for feature in FEATURES:
        for change in feature.changes(request, view):
            unit = "kHz" if change.within else ""
            checks.append(_check(change.what, change.asked, change.before, unit, change.accepts(change.before)))
    if view.policies and (request.min_ghz is not None or request.max_ghz is not None):
        checks += _clocks(request, view)
    return {"ok": all(check["ok"] is not False for check in checks), "checks": checks}


def _clocks(request: CpuRequest, view: CpuView) -> list[dict[str, Any]]:
    first = [min(view.topology.online.intersection(core.cpus)) for core in view.topology.cores_online]
    clocks = busy_clocks(view.host, first, is_real_sysfs(view.host))
    changes = {change.path: change for change in CLOCK_RANGE.changes(request, view)}
    checks = []
    for cpu, clock in clocks.items():
        policy = next((policy for policy in view.policies if cpu in policy.cpus), None)
        if policy is None or policy.low is None or policy.high is None:
            continue
        what = f"clock of cpu{cpu} under load"
        low, high = _range(policy, changes)
        asked = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        ghz = None if clock.hz is None else round(clock.hz / 1e9, 3)
        ok, reason = _judge(low, high, policy.base, ghz)
        checks.append(_check(what, asked, ghz, "GHz", ok, f"{reason} ({clock.source})".strip()))
    return checks


def _range(policy: Policy, changes: Mapping[str, SettingChange]) -> tuple[float, float]:
    """Return the requested range in GHz. An end that is not requested, or is in effect, is the policy's current one."""
    ends = []
    for file, now in ((LOW, policy.low), (HIGH, policy.high)):
        change = changes.get(policy.file(file))
        ends.append((now or 0) if change is None or change.accepts(change.before) else int(change.write))
    low, high = ends
    return min(low, high) / 1e6, high / 1e6


def _judge(low: float, high: float, base_khz: int | None, ghz: float | None) -> tuple[bool | None, str]:
    """Return whether a clock is within a range, both in GHz, and the reason; None when it is not bound to it."""
    if ghz is None:
        return None, "unknown"
    if base_khz is not None and low > base_khz / 1e6 * (1 + TOLERANCE) and ghz < low:
        return None, "above the base clock the processor chooses the clock"
    ok = low * (1 - TOLERANCE) <= ghz <= high * (1 + TOLERANCE)
    return ok, "" if ok else "outside of the requested range"


def _check(what: str, asked: object, got: object, unit: str, ok: bool | None, reason: str = "") -> dict[str, Any]:
    return {"what": what, "asked": asked, "got": got, "unit": unit, "ok": ok, "reason": reason}


@dataclass(frozen=True, slots=True)
class CpuClock:
    """Clock of one busy CPU in Hz, None when unknown; and its source, or the reason why it is unknown."""

    hz: float | None
    source: str


def busy_clocks(host: HostFiles, cpus: Sequence[int], is_real: bool) -> dict[int, CpuClock]:
    """Spin on these CPUs for a second, all at once, and return the clock of each.

    Args:
        host: the host that runs this process.
        cpus: one CPU per core.
        is_real: whether its files are those of the machine's kernel, so that perf cycles apply.
    """
    counters: dict[int, int] = {}
    refused = "the files are this node's own"
    with _spinning(cpus), _closing(counters):
        time.sleep(SETTLE_S)
        begins: dict[int, float] = {}
        for cpu in cpus if is_real else ():
            try:
                counters[cpu] = open_event(_HARDWARE, CYCLES, cpu)
                begins[cpu] = time.monotonic()
            except OSError as fault:
                refused = f"cycles cannot be counted: {fault.strerror or fault}"
        time.sleep(SPIN_S)
        clocks = {}
        for cpu in cpus:
            if cpu in counters:
                (cycles,) = struct.unpack("q", os.read(counters[cpu], 8))
                hz = cycles / (time.monotonic() - begins[cpu])
                # Virtual machines may offer counters that never advance.
                clocks[cpu] = CpuClock(hz, "perf cycles") if cycles else _estimate(host, cpu, "no cycle was counted")
            else:
                clocks[cpu] = _estimate(host, cpu, refused)
        return clocks


def _estimate(host: HostFiles, cpu: int, refused: str) -> CpuClock:
    for file in ESTIMATES:
        for path in (f"sys/devices/system/cpu/cpu{cpu}/cpufreq/{file}", f"{POLICIES}/policy{cpu}/{file}"):
            text = host.read_if_there(path)
            if text and text.isdigit() and int(text):
                return CpuClock(int(text) * 1000.0, file)
    return CpuClock(None, refused)


@contextmanager
def _spinning(cpus: Sequence[int]) -> Iterator[None]:
    """Run one spinning process per CPU, pinned to it."""
    children = []
    try:
        for cpu in cpus:
            child = os.fork()
            if child == 0:
                _spin(cpu)
            children.append(child)
        yield
    finally:
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _spin(cpu: int) -> None:
    # End without help if the parent is killed.
    end = time.monotonic() + 10 * SPIN_S
    try:
        os.sched_setaffinity(0, {cpu})
        while time.monotonic() < end:
            pass
    finally:
        os._exit(0)


@contextmanager
def _closing(counters: dict[int, int]) -> Iterator[None]:
    try:
        yield
    finally:
        for descriptor in counters.values():
            os.close(descriptor)

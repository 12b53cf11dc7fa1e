"""Comparison of a host's CPUs with a request, including the measured clock of busy cores."""

from collections.abc import Mapping
from typing import Any

from agents.cpu import frequency
from agents.cpu.clock import busy_clocks
from agents.cpu.feature import SettingChange, View, read_view
from agents.cpu.frequency import HIGH, LOW
from agents.cpu.plan import FEATURES, impossible, is_real_sysfs
from agents.cpu.policies import Policy
from agents.cpu.request import CpuRequest
from agents.cpu.snapshot import Snapshot
from agents.host_files import HostFiles

TOLERANCE = 0.03
"""Relative tolerance of the clock of a busy core."""


def verify(request: CpuRequest, host: HostFiles, before: Snapshot | None = None) -> dict[str, Any]:
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


def _clocks(request: CpuRequest, view: View) -> list[dict[str, Any]]:
    first = [min(view.topology.online.intersection(core.cpus)) for core in view.topology.cores_online]
    clocks = busy_clocks(view.host, first, is_real_sysfs(view.host))
    changes = {change.path: change for change in frequency.changes(request, view)}
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

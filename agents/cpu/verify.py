"""Whether a host's CPUs are as a wish wants them: asked against got, the clock of busy cores included."""

from collections.abc import Mapping
from typing import Any

from agents.cpu import frequency
from agents.cpu.clock import busy_clocks
from agents.cpu.frequency import HIGH, LOW
from agents.cpu.plan import FEATURES, impossible, is_kernels_own
from agents.cpu.policies import Policy
from agents.cpu.snapshot import Snapshot
from agents.cpu.step import Step, View, look
from agents.cpu.wish import CpuRequest
from agents.host_files import HostFiles

TOLERANCE = 0.03
"""How far the clock of a busy core may be from what was set."""


def verify(wish: CpuRequest, host: HostFiles, before: Snapshot | None = None) -> dict[str, Any]:
    """Compare, setting by setting, as JSON: `{ok, checks: [{what, asked, got, unit, ok, reason}]}`.

    A wish for a clock takes a second: every core on line spins. `ok` is null where nothing tells or limits the clock.
    """
    view = look(host, before.cores if before else ())
    refused = impossible(wish, view)
    checks = [_check(refusal.what, refusal.asked, None, "", False, str(refusal)) for refusal in refused]
    if wish.cores is not None:
        got = len(view.topology.cores_online)
        checks.append(_check("cores on line", wish.cores, got, "cores", got == wish.cores))
    for feature in FEATURES:
        for step in feature.steps(wish, view):
            unit = "kHz" if step.within else ""
            checks.append(_check(step.what, step.asked, step.before, unit, step.accepts(step.before)))
    if view.policies and (wish.min_ghz is not None or wish.max_ghz is not None):
        checks += _clocks(wish, view)
    return {"ok": all(check["ok"] is not False for check in checks), "checks": checks}


def _clocks(wish: CpuRequest, view: View) -> list[dict[str, Any]]:
    first = [min(view.topology.online.intersection(core.cpus)) for core in view.topology.cores_online]
    clocks = busy_clocks(view.host, first, is_kernels_own(view.host))
    steps = {step.path: step for step in frequency.steps(wish, view)}
    checks = []
    for cpu, clock in clocks.items():
        policy = next((policy for policy in view.policies if cpu in policy.cpus), None)
        if policy is None or policy.low is None or policy.high is None:
            continue
        what = f"clock of cpu{cpu} under load"
        low, high = _range(policy, steps)
        asked = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        ghz = None if clock.hz is None else round(clock.hz / 1e9, 3)
        ok, reason = _judge(low, high, policy.base, ghz)
        checks.append(_check(what, asked, ghz, "GHz", ok, f"{reason} ({clock.source})".strip()))
    return checks


def _range(policy: Policy, steps: Mapping[str, Step]) -> tuple[float, float]:
    """What was asked for in GHz. An end that a wish leaves open, or that was taken, is where the policy has it."""
    ends = []
    for file, now in ((LOW, policy.low), (HIGH, policy.high)):
        step = steps.get(policy.file(file))
        ends.append((now or 0) if step is None or step.accepts(step.before) else int(step.write))
    low, high = ends
    return min(low, high) / 1e6, high / 1e6


def _judge(low: float, high: float, base_khz: int | None, ghz: float | None) -> tuple[bool | None, str]:
    """Whether a clock keeps to a range, both in GHz; None when it need not."""
    if ghz is None:
        return None, "not known"
    if base_khz is not None and low > base_khz / 1e6 * (1 + TOLERANCE) and ghz < low:
        return None, "above the base clock the processor decides"
    ok = low * (1 - TOLERANCE) <= ghz <= high * (1 + TOLERANCE)
    return ok, "" if ok else "outside of what was asked for"


def _check(what: str, asked: object, got: object, unit: str, ok: bool | None, reason: str = "") -> dict[str, Any]:
    return {"what": what, "asked": asked, "got": got, "unit": unit, "ok": ok, "reason": reason}

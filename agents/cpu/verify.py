"""Whether a host's CPUs are as a wish wants them: asked against got, the clock of busy cores included."""

from typing import Any

from agents.cpu.clock import busy_clocks
from agents.cpu.plan import FEATURES, impossible, is_kernels_own
from agents.cpu.policies import Policy
from agents.cpu.snapshot import Snapshot
from agents.cpu.step import View, look
from agents.cpu.wish import CpuWish
from agents.probing import HostFiles

TOLERANCE = 0.03
"""How far the clock of a busy core may be from what was set."""


def verify(wish: CpuWish, host: HostFiles, before: Snapshot | None = None) -> dict[str, Any]:
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
        checks += _clocks(view)
    return {"ok": all(check["ok"] is not False for check in checks), "checks": checks}


def _clocks(view: View) -> list[dict[str, Any]]:
    first = [min(view.topology.online.intersection(core.cpus)) for core in view.topology.cores_online]
    clocks = busy_clocks(view.host, first, is_kernels_own(view.host))
    checks = []
    for cpu, clock in clocks.items():
        policy = next((policy for policy in view.policies if cpu in policy.cpus), None)
        if policy is None or policy.low is None or policy.high is None:
            continue
        what = f"clock of cpu{cpu} under load"
        low, high = policy.low / 1e6, policy.high / 1e6
        asked = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        ghz = None if clock.hz is None else round(clock.hz / 1e9, 3)
        ok, reason = _judge(policy, clock.hz)
        checks.append(_check(what, asked, ghz, "GHz", ok, f"{reason} ({clock.source})".strip()))
    return checks


def _judge(policy: Policy, hz: float | None) -> tuple[bool | None, str]:
    """Whether a clock keeps to the policy's range; None when it need not."""
    if hz is None or policy.low is None or policy.high is None:
        return None, "not known"
    khz = hz / 1000
    if policy.base is not None and policy.low > policy.base * (1 + TOLERANCE) and khz < policy.low:
        return None, "above the base clock the processor decides"
    ok = policy.low * (1 - TOLERANCE) <= khz <= policy.high * (1 + TOLERANCE)
    return ok, "" if ok else "outside of what was set"


def _check(what: str, asked: object, got: object, unit: str, ok: bool | None, reason: str = "") -> dict[str, Any]:
    return {"what": what, "asked": asked, "got": got, "unit": unit, "ok": ok, "reason": reason}

"""Whether a host's CPUs are as a wish wants them: asked against got, and nothing is written."""

from typing import Any

from agents.cpu.plan import FEATURES, plan
from agents.cpu.snapshot import Snapshot
from agents.cpu.step import look
from agents.cpu.wish import CpuWish
from agents.probing import HostFiles


def verify(wish: CpuWish, host: HostFiles, before: Snapshot | None = None) -> dict[str, Any]:
    """Compare, setting by setting, as JSON: `{ok, checks: [{what, asked, got, unit, ok, reason}]}`."""
    refused = plan(wish, host, before).refused
    checks = [_check(refusal.what, refusal.asked, None, "", False, str(refusal)) for refusal in refused]
    view = look(host, before.cores if before else ())
    if wish.cores is not None:
        got = len(view.topology.cores_online)
        checks.append(_check("cores on line", wish.cores, got, "cores", got == wish.cores))
    for feature in FEATURES:
        for step in feature.steps(wish, view):
            unit = "kHz" if step.within else ""
            checks.append(_check(step.what, step.asked, step.before, unit, step.accepts(step.before)))
    return {"ok": all(check["ok"] is not False for check in checks), "checks": checks}


def _check(what: str, asked: object, got: object, unit: str, ok: bool, reason: str = "") -> dict[str, Any]:
    return {"what": what, "asked": asked, "got": got, "unit": unit, "ok": ok, "reason": reason}

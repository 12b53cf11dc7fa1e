"""`python -P -m agents.cpu VERB`: one request as JSON on standard input, one answer as JSON on standard output.

Request, all keys optional: `{"requested": {...}, "root": "/", "check": false, "before": {...}, "owner": "..."}`.

| verb | answer |
|---|---|
| `facts` | `{"facts": {...}, "before": {...}}`; `before` is the input of `restore` and `apply` |
| `plan` | `{ok, changed, settings, refused}`; nothing is written |
| `apply` | as `plan`, but written and read back; `before` includes new files; with `check` the same as `plan` |
| `restore` | `{ok, changed, settings, refused}`: the differences from `before`; `check` writes nothing |
| `verify` | `{ok, checks: [{what, asked, got, unit, ok, reason}]}`: the settings, and the clock of busy cores |

The caller must save `before` before it applies anything. `restore` without `before` restores the host's journal, which
a dead campaign has left behind. A setting is `{what, path, before, asked, got, ok, reason}`, a refusal `{what, asked,
possible, reason, message}`. Exit status: 0; 1 when a setting did not take effect as requested; 2 for an invalid
request; 3 when a requested setting is impossible on this host. A request that fails gets `{"error": "..."}`.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agents.cpu.apply import SavedSettings, apply, differences, restore_settings, verify
from agents.cpu.control import put_back
from agents.cpu.journal import CpuSnapshot, read_journal
from agents.cpu.plan import facts, plan, take_snapshot
from agents.cpu.request import CpuRequest, CpuResult
from agents.host_files import HostFiles
from inventory.errors import InputError, MillraceError, nearest

KEYS = ("requested", "root", "check", "before", "owner")


class Invocation:
    """The request on standard input, parsed and checked."""

    def __init__(self, document: Any) -> None:
        if not isinstance(document, dict):
            raise InputError("request: expected a JSON object")
        for key in document:
            if key not in KEYS:
                raise InputError(f"request: unknown key {key!r}{nearest(key, KEYS)}")
        self.root = Path(str(document.get("root") or "/"))
        if not self.root.is_dir():
            raise InputError(f"request: root: {str(self.root)!r} is not a folder")
        self.host = HostFiles(self.root)
        self.request = CpuRequest.from_document(document.get("requested") or {})
        self.check = document.get("check") is True
        before = document.get("before")
        self.before = None if before is None else CpuSnapshot.from_document(before)
        self.owner = str(document.get("owner") or "a call of agents.cpu")

    @property
    def known(self) -> CpuSnapshot | None:
        """The host's settings before any change, from the request or from the journal."""
        if self.before is not None:
            return self.before
        journal = read_journal(self.root)
        return journal.before if journal and journal.before.is_of_this_boot(self.host) else None


def _facts(invocation: Invocation) -> dict[str, Any]:
    known = invocation.known
    before = take_snapshot(invocation.host)
    return {"facts": facts(invocation.host, known.cores if known else ()), "before": before.to_document()}


def _plan(invocation: Invocation) -> dict[str, Any]:
    return plan(invocation.request, invocation.host, invocation.known).to_document()


def _apply(invocation: Invocation) -> dict[str, Any]:
    if invocation.check:
        return _plan(invocation)
    if invocation.before is None:
        raise InputError("request: before: missing; save the output of `facts`, so that it can be restored")
    saved = SavedSettings(invocation.before)
    return {**apply(invocation.request, invocation.host, saved).to_document(), "before": saved.before.to_document()}


def _restore(invocation: Invocation) -> dict[str, Any]:
    if invocation.check:
        return (differences(invocation.known, invocation.host) if invocation.known else CpuResult()).to_document()
    if invocation.before is None:
        return put_back(invocation.host, invocation.owner).to_document()
    return restore_settings(invocation.before, invocation.host).to_document()


def _verify(invocation: Invocation) -> dict[str, Any]:
    return verify(invocation.request, invocation.host, invocation.known)


VERBS: Mapping[str, Callable[[Invocation], dict[str, Any]]] = {
    "facts": _facts,
    "plan": _plan,
    "apply": _apply,
    "restore": _restore,
    "verify": _verify,
}


def main() -> int:
    """Handle the request; return the exit status."""
    verb = sys.argv[1] if len(sys.argv) == 2 else ""
    try:
        if verb not in VERBS:
            raise InputError(f"expected one verb, got {' '.join(sys.argv[1:]) or 'none'}{nearest(verb, VERBS)}")
        try:
            document = json.loads(sys.stdin.read() or "{}")
        except ValueError as fault:
            raise InputError(f"request: not JSON: {fault}") from None
        response = VERBS[verb](Invocation(document))
    except MillraceError as fault:
        response = {"error": str(fault)}
        status = fault.exit_status
    else:
        status = 3 if response.get("refused") else 0 if response.get("ok", True) else 1
    json.dump(response, sys.stdout)
    sys.stdout.write("\n")
    return status


if __name__ == "__main__":
    sys.exit(main())

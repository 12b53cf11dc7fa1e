"""`python -P -m agents.cpu VERB`: one request as JSON on standard input, one answer as JSON on standard output.

Request, all keys optional: `{"wish": {...}, "root": "/", "check": false, "before": {...}, "owner": "..."}`.

| verb | answer |
|---|---|
| `facts` | `{"facts": {...}, "before": {...}}`; `before` is what `restore` and `apply` take |
| `plan` | `{ok, changed, settings, refused}`; nothing is written |
| `apply` | as `plan`, but written and read back, and `before`, grown by files that appeared; `check`: only `plan` |
| `restore` | `{ok, changed, settings, refused}`: what differed from `before`; `check` writes nothing |
| `verify` | `{ok, checks: [{what, asked, got, unit, ok, reason}]}`: the settings, and the clock of busy cores |

The caller keeps what was found before it applies anything. `restore` without `before` puts back what a dead
campaign has left in the host's journal. A setting is `{what, path, before, asked, got, ok, reason}`, a refusal
`{what, asked, possible, reason, message}`. Exit status: 0, 1 when something came out otherwise than asked, 2 for a
wrong request, 3 when the wish is impossible here; a request that fails is answered with `{"error": "..."}`.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agents.cpu.answer import CpuAnswer
from agents.cpu.apply import SettingsKeeper, apply
from agents.cpu.control import put_back
from agents.cpu.facts import facts
from agents.cpu.journal import read_journal
from agents.cpu.plan import found, plan
from agents.cpu.restore import differences, restore
from agents.cpu.snapshot import Snapshot
from agents.cpu.verify import verify
from agents.cpu.wish import CpuRequest
from agents.host_files import HostFiles
from inventory.errors import InputError, MillraceError, nearest

KEYS = ("wish", "root", "check", "before", "owner")


class Request:
    """What was asked, read and checked."""

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
        self.wish = CpuRequest.from_document(document.get("wish") or {})
        self.check = document.get("check") is True
        before = document.get("before")
        self.before = None if before is None else Snapshot.from_document(before)
        self.owner = str(document.get("owner") or "a call of agents.cpu")

    @property
    def known(self) -> Snapshot | None:
        """How the host was before anything was set, by the caller's word or the journal's."""
        if self.before is not None:
            return self.before
        journal = read_journal(self.root)
        return journal.before if journal and journal.before.is_of_this_boot(self.host) else None


def _facts(request: Request) -> dict[str, Any]:
    known = request.known
    before = found(request.host)
    return {"facts": facts(request.host, known.cores if known else ()), "before": before.to_document()}


def _plan(request: Request) -> dict[str, Any]:
    return plan(request.wish, request.host, request.known).to_document()


def _apply(request: Request) -> dict[str, Any]:
    if request.check:
        return _plan(request)
    if request.before is None:
        raise InputError("request: before: missing; keep what `facts` answers, so that it can be put back")
    keeper = SettingsKeeper(request.before)
    return {**apply(request.wish, request.host, keeper).to_document(), "before": keeper.before.to_document()}


def _restore(request: Request) -> dict[str, Any]:
    if request.check:
        return (differences(request.known, request.host) if request.known else CpuAnswer()).to_document()
    if request.before is None:
        return put_back(request.host, request.owner).to_document()
    return restore(request.before, request.host).to_document()


def _verify(request: Request) -> dict[str, Any]:
    return verify(request.wish, request.host, request.known)


VERBS: Mapping[str, Callable[[Request], dict[str, Any]]] = {
    "facts": _facts,
    "plan": _plan,
    "apply": _apply,
    "restore": _restore,
    "verify": _verify,
}


def main() -> int:
    """Answer the one request; return the exit status."""
    verb = sys.argv[1] if len(sys.argv) == 2 else ""
    try:
        if verb not in VERBS:
            raise InputError(f"expected one verb, got {' '.join(sys.argv[1:]) or 'none'}{nearest(verb, VERBS)}")
        try:
            document = json.loads(sys.stdin.read() or "{}")
        except ValueError as fault:
            raise InputError(f"request: not JSON: {fault}") from None
        answer = VERBS[verb](Request(document))
    except MillraceError as fault:
        answer = {"error": str(fault)}
        status = fault.exit_status
    else:
        status = 3 if answer.get("refused") else 0 if answer.get("ok", True) else 1
    json.dump(answer, sys.stdout)
    sys.stdout.write("\n")
    return status


if __name__ == "__main__":
    sys.exit(main())

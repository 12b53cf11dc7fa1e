"""What became of a wish: one line per setting, and what was refused."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """One file of the kernel: what was there, what was asked for, and what it says now.

    Attributes:
        what: the setting in words, like `governor of policy0`.
        path: the file, from the host's root and without a leading slash.
        before: what it held.
        asked: what was asked for, in the file's own unit.
        got: what was read back; None when it could not be read, and in a plan, where nothing is written.
        ok: whether `got` is what was asked for, up to the driver's steps; None in a plan.
        reason: why not, in words; empty when there is nothing to say.
    """

    what: str
    path: str
    before: str
    asked: str
    got: str | None = None
    ok: bool | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A wish that this host cannot fulfil.

    Attributes:
        what: the setting, by its name in a `CpuWish`, or `host` when nothing can be set at all.
        asked: its value.
        possible: what can be asked for here, in words; empty when nothing can.
        reason: what is in the way.
    """

    what: str
    asked: str
    possible: str
    reason: str

    def __str__(self) -> str:
        return f"{self.what}: {self.asked}: {self.reason}" + (f"; possible: {self.possible}" if self.possible else "")


@dataclass(frozen=True, slots=True)
class CpuAnswer:
    """All settings that a wish speaks of, those included that were right already.

    Attributes:
        changed: whether anything is different from before (in a plan: would be).
        settings: one per file.
        refused: what is impossible; when there is any, nothing was written.
    """

    changed: bool = False
    settings: tuple[Setting, ...] = ()
    refused: tuple[Refusal, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether nothing was refused and nothing came out otherwise than asked."""
        return not self.refused and all(setting.ok is not False for setting in self.settings)

    def to_document(self) -> dict[str, Any]:
        """As JSON: `{ok, changed, settings: [...], refused: [{what, asked, possible, reason, message}]}`."""
        return {
            "ok": self.ok,
            "changed": self.changed,
            "settings": [dataclasses.asdict(setting) for setting in self.settings],
            "refused": [{**dataclasses.asdict(refusal), "message": str(refusal)} for refusal in self.refused],
        }

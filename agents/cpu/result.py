"""Result of a CPU request: one entry per setting, and the refusals."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """One kernel file: its value before, the requested value, and the value read back.

    Attributes:
        what: the setting as text, such as `governor of policy0`.
        path: the file, relative to the host's root and without a leading slash.
        before: value before the change.
        asked: requested value, in the file's own unit.
        got: value read back; None when it could not be read, and in a plan, where nothing is written.
        ok: whether `got` is the requested value, up to the driver's rounding; None in a plan.
        reason: why it is not; may be empty.
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
    """A requested setting that this host does not support.

    Attributes:
        what: the setting's name in `CpuRequest`, or `host` when nothing can be set at all.
        asked: requested value.
        possible: values that this host supports, as text; empty when there is none.
        reason: why the value is not possible.
    """

    what: str
    asked: str
    possible: str
    reason: str

    def __str__(self) -> str:
        return f"{self.what}: {self.asked}: {self.reason}" + (f"; possible: {self.possible}" if self.possible else "")


@dataclass(frozen=True, slots=True)
class CpuResult:
    """All settings of a request, including those that already had the requested value.

    Attributes:
        changed: whether any value changed (in a plan: would change).
        settings: one per file.
        refused: unsupported settings; when there is any, nothing was written.
    """

    changed: bool = False
    settings: tuple[Setting, ...] = ()
    refused: tuple[Refusal, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether nothing was refused and every setting took effect as requested."""
        return not self.refused and all(setting.ok is not False for setting in self.settings)

    def to_document(self) -> dict[str, Any]:
        """Return JSON: `{ok, changed, settings: [...], refused: [{what, asked, possible, reason, message}]}`."""
        return {
            "ok": self.ok,
            "changed": self.changed,
            "settings": [dataclasses.asdict(setting) for setting in self.settings],
            "refused": [{**dataclasses.asdict(refusal), "message": str(refusal)} for refusal in self.refused],
        }

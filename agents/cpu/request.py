"""Requested CPU settings of a host, and the result: one entry per setting, and the refusals."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from inventory.errors import InputError, nearest


@dataclass(frozen=True, slots=True)
class CpuRequest:
    """Settings of one host; None leaves a setting unchanged.

    Attributes:
        cores: physical online cores, spread evenly over the sockets; siblings go together.
        governor: cpufreq governor of every policy.
        min_ghz: lower end of the clock range; equal ends fix the clock.
        max_ghz: upper end of the clock range.
        turbo: whether clocks above the base clock are allowed.
        epp: energy-performance preference of every policy, one of the kernel's names or 0 to 255.
        smt: whether siblings of a core are online.
        driver_mode: `active`, `passive` or `guided`; only where the driver has modes.
    """

    cores: int | None = None
    governor: str | None = None
    min_ghz: float | None = None
    max_ghz: float | None = None
    turbo: bool | None = None
    epp: str | None = None
    smt: bool | None = None
    driver_mode: str | None = None

    @classmethod
    def from_document(cls, document: Mapping[str, Any], where: str = "requested") -> Self:
        """Read a request from JSON-like data; null means not given.

        Raises:
            InputError: an unknown key or a value of the wrong type; the message begins with `where`.
        """
        taken: dict[str, Any] = {}
        for key, value in document.items():
            if key not in _READERS:
                raise InputError(f"{where}: unknown setting {key!r}{nearest(key, _READERS)}")
            if value is None:
                continue
            expected, reader = _READERS[key]
            read = reader(value)
            if read is None:
                raise InputError(f"{where}: {key}: got {value!r}, expected {expected}")
            taken[key] = read
        request = cls(**taken)
        if request.min_ghz is not None and request.max_ghz is not None and request.min_ghz > request.max_ghz:
            low, high = request.min_ghz, request.max_ghz
            raise InputError(f"{where}: min_ghz: got {low:g}, expected at most max_ghz, {high:g}")
        return request

    def to_document(self) -> dict[str, Any]:
        """Return the settings that are not None."""
        return {key: value for key, value in dataclasses.asdict(self).items() if value is not None}


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _clock(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # A value far outside is a clock in another unit.
    return float(value) if 0 < value < 100 else None


def _word(value: object) -> str | None:
    return (
        value if isinstance(value, str) and value and value.isascii() and not any(c.isspace() for c in value) else None
    )


def _preference(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if 0 <= value <= 255 else None
    return _word(value)


def _switch(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


_READERS: Mapping[str, tuple[str, Callable[[object], Any]]] = {
    "cores": ("a whole number from 1 on", _whole),
    "governor": ("a governor's name", _word),
    "min_ghz": ("a clock in GHz, above 0 and below 100", _clock),
    "max_ghz": ("a clock in GHz, above 0 and below 100", _clock),
    "turbo": ("true or false", _switch),
    "epp": ("a preference's name, or 0 to 255", _preference),
    "smt": ("true or false", _switch),
    "driver_mode": ("a driver mode's name", _word),
}
"""Key -> description of the expected value, and its parser, which returns None for an invalid value."""


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
        """True if nothing was refused and every setting took effect as requested."""
        return not self.refused and all(setting.ok is not False for setting in self.settings)

    def to_document(self) -> dict[str, Any]:
        """Return JSON: `{ok, changed, settings: [...], refused: [{what, asked, possible, reason, message}]}`."""
        return {
            "ok": self.ok,
            "changed": self.changed,
            "settings": [dataclasses.asdict(setting) for setting in self.settings],
            "refused": [{**dataclasses.asdict(refusal), "message": str(refusal)} for refusal in self.refused],
        }

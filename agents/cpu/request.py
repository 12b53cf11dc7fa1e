"""Requested CPU settings of a host."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
    def from_document(cls, document: Mapping[str, Any], where: str = "wish") -> Self:
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
